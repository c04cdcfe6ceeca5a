"""Plans settling by receipt: the changes of the cursor that these receipts require.

A plan starts from the cached cursor, or from the contents of the receipts alone. Its guards make a stale cache
harmless: the write is rejected and returns the cursor, from which the next plan is made. When nothing is left to
change, the cursor shows the standing of each receipt; if it came from the cache until then, it is read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from chalicelib.base.errors import StoreUnavailable
from chalicelib.base.limits import LEASES_MAX, TAKEOVERS_MAX
from chalicelib.cursors.cursor import Cursor, Standing
from chalicelib.cursors.cursor_writes import (
    INERT_MAX,
    LEASES_ROOM,
    PRUNED_ALONE_MAX,
    Change,
    ack,
    ends,
    forget,
    has_room,
    move,
    prune,
)
from chalicelib.cursors.lease import Lease, runs
from chalicelib.cursors.receipt import Receipt
from chalicelib.table.writes import Item, Key

ACKED_TOGETHER_MAX = 10
"""Further leases of which one write acks messages."""

LEASE_LOST = "LeaseLost"
RECEIPT_INVALID = "ReceiptInvalid"

Moved = dict[tuple[str, int], Lease]
"""The token and offset of a message that left its lease, and the lease it moved to."""

Plan = tuple[Change, Moved]
"""The change (empty: done), and the messages that it moves."""

Split = Callable[[Lease, range], Lease]
"""Makes the lease to which a run of a lease's messages moves."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A receipt that settled nothing, and why: `LEASE_LOST` or `RECEIPT_INVALID`."""

    receipt: str
    code: str


class Seen(Enum):
    """The state of a cursor as this call has read it."""

    ASSUMED = "nothing: it is as the cache or the receipts say, and perhaps from before a reset"
    FOUND = "the cursor"
    MISSING = "that there is none: the receipts are of another group, or of a deleted one"
    FORGOTTEN = "that there is none any more: the group has forgotten the receipts' consumer"


@dataclass(slots=True)
class ReceiptBatch:
    """The receipts of one call for one cursor, with what is known of the cursor so far."""

    cursor: Cursor
    receipts: list[tuple[str, Receipt]]
    moved: Moved = field(default_factory=dict)
    """The messages that this call has moved."""
    seen: Seen = Seen.ASSUMED
    closed: set[str] = field(default_factory=set)
    """Tokens of the leases that this call has acked completely."""
    lost: set[int] = field(default_factory=set)
    """Offsets of these receipts that are dead letters or wait in a retry page."""

    def standing(self, receipt: Receipt) -> Standing:
        if receipt.epoch != self.cursor.epoch:
            return Standing.LOST
        if receipt.offset in self.lost:
            return Standing.LOST
        return self.cursor.standing(receipt.token, receipt.start, receipt.offset)

    @property
    def is_seen(self) -> bool:
        return self.seen is not Seen.ASSUMED

    @property
    def is_missing(self) -> bool:
        return self.seen in (Seen.MISSING, Seen.FORGOTTEN)

    @property
    def tokens(self) -> set[str]:
        return {receipt.token for _, receipt in self.receipts}

    @property
    def queue(self) -> int:
        return self.receipts[0][1].queue

    @property
    def group_id(self) -> str:
        return self.receipts[0][1].group_id

    @property
    def consumer(self) -> str:
        return self.receipts[0][1].consumer

    def is_late(self, cursor: Cursor, now: int) -> bool:
        """Whether a lease of these receipts has expired, so that its other messages can be taken over."""
        return any(lease.is_due(now) for token, lease in cursor.leases.items() if token in self.tokens)

    def freed(self, now: int) -> int:
        """How many messages in flight `acks` settles."""
        acked = self.owed()[:ACKED_TOGETHER_MAX]
        return sum(len(indexes) for lease, indexes in acked if lease.deadline > now)

    def owed(self) -> list[tuple[Lease, list[int]]]:
        """The leases that owe messages of these receipts, and which messages."""
        if self.is_missing:
            return []
        found: dict[str, set[int]] = {}
        for _, receipt in self.receipts:
            if self.standing(receipt) is Standing.OWED:
                found.setdefault(receipt.token, set()).add(receipt.index)
        return [(self.cursor.leases[token], sorted(indexes)) for token, indexes in found.items()]

    def acks(self) -> Plan:
        """Settles owed messages of as many leases as one write can name, and removes leases that others have acked
        completely."""
        owed = self.owed()[:ACKED_TOGETHER_MAX]
        change = Change()
        for lease, indexes in owed:
            change += ack(lease, indexes)
        mine = map(self.cursor.leases.get, self.tokens)
        done = [lease for lease in mine if lease and not lease.owed and not lease.moved]
        return change + forget(done[: ACKED_TOGETHER_MAX - len(owed)]), {}

    def moves(self, split: Split) -> Plan:
        """Moves owed messages into new leases, as many as one write can name. Every move leaves a witness; the same
        write removes surplus ones, or heartbeats would fill the cursor."""
        owed = self.owed()
        if owed and len(self.cursor.inert) > INERT_MAX:
            return prune(self.cursor, 0, (), PRUNED_ALONE_MAX), {}
        if owed and self.is_seen and len(self.cursor.leases) >= LEASES_MAX + LEASES_ROOM:
            raise StoreUnavailable(f"queue {self.queue} has as many leases and retries under way as a cursor can hold")
        change = Change()
        moved: Moved = {}
        for lease, indexes in owed:
            chosen = runs(indexes)[: TAKEOVERS_MAX - len(change.tokens)]
            if not chosen:
                break
            new = [split(lease, run) for run in chosen]
            change += move(lease, [index for run in chosen for index in run], new)
            moved |= {(lease.token, offset): each for each in new for offset in each.owed_offsets}
        return (change + has_room() + prune(self.cursor, 0, self.tokens) if change else change), moved

    def settled(self) -> set[str]:
        """Tokens of the leases that owe nothing after `acks`."""
        return {lease.token for lease, indexes in self.owed()[:ACKED_TOGETHER_MAX] if set(lease.owed) <= set(indexes)}

    def ended(self) -> set[str]:
        """Tokens of the leases that `acks` removes."""
        return {lease.token for lease, indexes in self.owed()[:ACKED_TOGETHER_MAX] if ends(lease, indexes)}

    def perhaps_lost(self) -> list[Receipt]:
        """Receipts of messages that no lease owes and whose lease is gone, though not by this call: the messages were
        acked, are dead, or wait in a page."""
        if self.is_missing or not (self.cursor.dead or self.cursor.pages):
            return []
        gone = [each for _, each in self.receipts if each.token not in self.cursor.leases.keys() | self.closed]
        return [receipt for receipt in gone if self.standing(receipt) is Standing.ACKED]

    def learn(self, item: Item | None) -> None:
        """Records the cursor after a write, or the one it found."""
        self.know(Cursor.of(item) if item else None)

    def know(self, cursor: Cursor | None) -> None:
        self.seen = Seen.FOUND if cursor else Seen.MISSING
        self.cursor = cursor or self.cursor

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
    told = {
        receipt.token: Lease(receipt.token, receipt.start, receipt.count, 0, receipt.attempt)
        for _, receipt in receipts
        if receipt.epoch == known.epoch
    }
    return replace(known, leases={**told, **known.leases})


def cursor_from(key: Key, receipts: Sequence[tuple[str, Receipt]]) -> Cursor:
    """A cursor of which only the receipts' contents are known."""
    epoch = max(receipt.epoch for _, receipt in receipts)
    return Cursor(key, epoch, max(receipt.offset for _, receipt in receipts) + 1, {})
