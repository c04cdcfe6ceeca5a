"""Plans settling by receipt: the changes of the cursor that these receipts require.

A plan starts from the cached cursor, or from the contents of the receipts alone. Its guards make a stale cache
harmless: the write is rejected and returns the cursor, from which the next plan is made. When nothing is left to
change, the cursor shows the standing of each receipt; if it came from the cache until then, it is read."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import field, replace
from enum import Enum

from chalicelib.base.errors import StoreUnavailable
from chalicelib.base.fields import Answer, required
from chalicelib.base.limits import LEASES_MAX, TAKEOVERS_MAX
from chalicelib.base.records import mutable, record
from chalicelib.base.schema import string
from chalicelib.cursors import cursor_writes
from chalicelib.cursors.cursor import Cursor, Standing
from chalicelib.cursors.cursor_writes import Change
from chalicelib.cursors.lease import Lease, runs
from chalicelib.cursors.receipt import Receipt
from chalicelib.table.writes import Key

ACKED_TOGETHER_MAX = 10
"""Further leases of which one write acks messages."""

_UNKNOWN_MS = 0
"""The deadline of a lease of which only a receipt is known."""

LEASE_LOST = "LeaseLost"
RECEIPT_INVALID = "ReceiptInvalid"

Moved = dict[tuple[str, int], Lease]
"""The token and offset of a message that left its lease, and the lease it moved to."""

Owed = tuple[Lease, list[int]]
"""A lease, and the indexes of those of its messages that a plan is about."""

Split = Callable[[Lease, range], Lease]
"""Makes the lease to which a run of a lease's offsets moves."""


@record
class Plan:
    """`change`: of the cursor; empty when nothing is left to do. `tokens`: the leases that it is about. `acked`,
    `moved`: the messages that it settles, and those that it moves."""

    change: Change = field(default_factory=Change)
    tokens: Collection[str] = ()
    acked: Sequence[Owed] = ()
    moved: Moved = field(default_factory=dict)


NOTHING = Plan()


@record
class Failure(Answer):
    """A receipt that did not count.

    receipt: The receipt as it was given.
    code: `LeaseLost`: the lease expired and another pop took the message, or the receipt is from before an extend or a
        reset, or the message was nacked; for nack, bury and extend, also a message that is settled. `ReceiptInvalid`:
        this service did not issue it for this group, or it was altered, or the topic or the group was deleted since.
    """

    receipt: str = required(string(examples=["MTo3ZDFhOmMyOWI6MTowOnA0d3o4MTg"]))
    code: str = required(string(enum=[LEASE_LOST, RECEIPT_INVALID]))


class Seen(Enum):
    """The state of a cursor as this call has read it."""

    ASSUMED = "nothing: it is as the cache or the receipts say, and perhaps from before a reset"
    FOUND = "the cursor"
    MISSING = "that there is none: the receipts are of another group, or of a deleted one"
    FORGOTTEN = "that there is none any more: the group has forgotten the receipts' consumer"


_MISSING = (Seen.MISSING, Seen.FORGOTTEN)


@mutable
class ReceiptBatch:
    """The receipts of one call for one cursor, and the cursor as far as it is known."""

    cursor: Cursor
    receipts: list[tuple[str, Receipt]]
    moved: Moved = field(default_factory=dict)
    """The messages that this call has moved."""
    seen: Seen = Seen.ASSUMED
    closed: dict[str, int] = field(default_factory=dict)
    """The leases that this call has acked completely: token -> start."""
    lost: set[int] = field(default_factory=set)
    """Offsets of these receipts that are dead letters or wait in a retry page."""

    @classmethod
    def of(cls, key: Key, receipts: list[tuple[str, Receipt]], cached: Cursor | None) -> ReceiptBatch:
        """Starts from the cached cursor, unless the receipts are newer: then from one of which only their contents are
        known."""
        epoch = max(receipt.epoch for _, receipt in receipts)
        if cached is None or not cached.stands or cached.epoch < epoch:
            cached = Cursor(key, epoch, max(receipt.offset for _, receipt in receipts) + 1, {})
        return cls(assume(cached, receipts), receipts)

    def standing(self, receipt: Receipt) -> Standing:
        if receipt.epoch != self.cursor.epoch or receipt.offset in self.lost:
            return Standing.LOST
        if self.closed.get(receipt.token) == receipt.start:
            return Standing.ACKED
        return self.cursor.standing(receipt.token, receipt.start, receipt.offset)

    @property
    def is_seen(self) -> bool:
        return self.seen is not Seen.ASSUMED

    @property
    def is_missing(self) -> bool:
        return self.seen in _MISSING

    @property
    def tokens(self) -> set[str]:
        return {receipt.token for _, receipt in self.receipts}

    @property
    def group_id(self) -> str:
        return self.receipts[0][1].group_id

    def is_late(self, cursor: Cursor, now: int) -> bool:
        """Whether a lease of these receipts has expired, so that its other messages can be taken over."""
        return any(lease.is_due(now) for token, lease in cursor.leases.items() if token in self.tokens)

    def owed(self) -> list[Owed]:
        """The leases that owe messages of these receipts, and which messages."""
        if self.is_missing:
            return []
        by_token: dict[str, set[int]] = {}
        leases = self.cursor.leases
        for _, receipt in self.receipts:
            if receipt.token in leases and self.standing(receipt) is Standing.OWED:
                by_token.setdefault(receipt.token, set()).add(receipt.index)
        return [(leases[token], sorted(indexes)) for token, indexes in by_token.items()]

    def ends_sooner(self, deadline: int) -> bool:
        """Whether a lease that ends then could end sooner than it does now, as far as that is known."""
        return any(lease.deadline > deadline or lease.deadline == _UNKNOWN_MS for lease, _ in self.owed())

    def acks(self) -> Plan:
        """Settles owed messages of as many leases as one write can name, and removes leases that others have acked
        completely."""
        acked = self.owed()[:ACKED_TOGETHER_MAX]
        change = Change()
        for lease, indexes in acked:
            change += cursor_writes.ack(lease, indexes)
        tokens, leases = self.tokens, self.cursor.leases
        mine = [leases[token] for token in tokens if token in leases]
        if done := [lease for lease in mine if not lease.owed and not lease.moved]:
            change += cursor_writes.forget(done[: ACKED_TOGETHER_MAX - len(acked)])
        return Plan(change, tokens, acked)

    def moves(self, split: Split) -> Plan:
        """Moves owed messages into new leases, as many as one write can name. Every move leaves a witness; the same
        write removes surplus ones, or heartbeats would fill the cursor."""
        owed = self.owed()
        if owed and len(self.cursor.inert) > cursor_writes.INERT_MAX:
            return Plan(cursor_writes.prune(self.cursor, 0, (), cursor_writes.PRUNED_ALONE_MAX))
        if owed and self.is_seen and len(self.cursor.leases) >= LEASES_MAX + cursor_writes.LEASES_ROOM:
            raise StoreUnavailable(
                f"queue {self.cursor.queue} has as many leases and retries under way as a cursor can hold"
            )
        change = Change()
        moved: Moved = {}
        for lease, indexes in owed:
            chosen = runs(indexes)[: TAKEOVERS_MAX - len(change.tokens)]
            if not chosen:
                break
            made = [split(lease, lease.offsets[run.start : run.stop]) for run in chosen]
            change += cursor_writes.move(lease, [index for run in chosen for index in run], made)
            moved |= {(lease.token, offset): new for new in made for offset in new.offsets}
        if not change:
            return NOTHING
        return Plan(change + cursor_writes.has_room() + cursor_writes.prune(self.cursor, 0, self.tokens), moved=moved)

    def perhaps_lost(self) -> list[Receipt]:
        """Receipts of messages that no lease owes and whose lease is gone, though not by this call: the messages were
        acked, are dead, or wait in a page."""
        if self.is_missing or not (self.cursor.dead or self.cursor.pages):
            return []
        known = self.cursor.leases.keys() | self.closed.keys()
        late = [receipt for _, receipt in self.receipts if receipt.token not in known]
        return [receipt for receipt in late if self.standing(receipt) is Standing.ACKED]

    def learn(self, cursor: Cursor | None, written: Plan = NOTHING) -> None:
        """Records the cursor as a request returned it (None: there is none), and the plan that the request wrote."""
        self.seen = Seen.FOUND if cursor else Seen.MISSING
        self.cursor = cursor or self.cursor
        self.closed |= {lease.token: lease.start for lease, _ in written.acked if lease.token not in self.cursor.leases}
        self.moved |= written.moved

    def unacked(self) -> list[Failure]:
        return self._failures(lambda receipt: self.standing(receipt) is Standing.ACKED)

    def unmoved(self) -> list[Failure]:
        return self._failures(lambda receipt: (receipt.token, receipt.offset) in self.moved)

    def _failures(self, is_settled: Callable[[Receipt], bool]) -> list[Failure]:
        if self.is_missing:
            code = LEASE_LOST if self.seen is Seen.FORGOTTEN else RECEIPT_INVALID
            return [Failure(text, code) for text, _ in self.receipts]
        return [Failure(text, LEASE_LOST) for text, receipt in self.receipts if not is_settled(receipt)]


def assume(known: Cursor, receipts: Sequence[tuple[str, Receipt]]) -> Cursor:
    """The cached cursor, or one made of the receipts: unchanged since their pop."""
    issued = {
        receipt.token: Lease(receipt.token, receipt.start, receipt.count, _UNKNOWN_MS, receipt.attempt)
        for _, receipt in receipts
        if receipt.epoch == known.epoch and receipt.token not in known.leases
    }
    return replace(known, leases={**issued, **known.leases}) if issued else known
