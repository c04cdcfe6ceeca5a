"""Plans settling by receipt: the changes of the cursor that these receipts require.

A plan starts from the cached cursor, or from the contents of the receipts alone. Its guards make a stale cache
harmless: the write is rejected and returns the cursor, from which the next plan is made. When nothing is left to
change, the cursor shows the standing of each receipt; if it came from the cache until then, it is read."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import field, replace
from enum import Enum

from chalicelib.core.base.errors import StoreUnavailable
from chalicelib.core.base.fields import Answer, required, string
from chalicelib.core.base.limits import LEASES_MAX, TAKEOVERS_MAX
from chalicelib.core.base.records import mutable, record
from chalicelib.core.catalogue.group import BY_DELIVERY, BY_MESSAGE, BY_RECEIPT
from chalicelib.core.cursors import cursor_writes
from chalicelib.core.cursors.cursor import Cursor, ReceiptState
from chalicelib.core.cursors.cursor_writes import NO_CHANGE, CursorChange
from chalicelib.core.cursors.lease import UNKNOWN_MS, Lease, Receipt, delivery, runs
from chalicelib.core.table.writes import Key

ACKED_TOGETHER_MAX = 10
"""Further leases of which one write acks messages."""

LEASE_LOST = "LeaseLost"
RECEIPT_INVALID = "ReceiptInvalid"

Moved = dict[tuple[str, int], Lease]
"""The token and offset of a receipt whose message was moved, and the lease that has it now."""

Owed = tuple[Lease, list[int]]
"""A lease, and the indexes of those of its messages that a plan is about."""

Split = Callable[[Lease, range], Lease]
"""Makes the lease to which a run of a lease's offsets moves."""


@record
class Plan:
    """`change`: of the cursor; empty when nothing is left to do. `tokens`: the leases that it is about. `acked`,
    `moved`: the messages that it settles, and those that it moves."""

    change: CursorChange = NO_CHANGE
    tokens: Collection[str] = ()
    acked: Sequence[Owed] = ()
    moved: Moved = field(default_factory=dict)


NOTHING = Plan()


@record
class Failure(Answer):
    """A receipt that did not count.

    receipt: The receipt as it was given.
    code: `LeaseLost`: the lease expired and another pop took the message, or the receipt is from before an extend or a
        reset, or the message was nacked, unless the group's `settle_by` says otherwise; for nack, bury and extend, also
        a message that is settled. `ReceiptInvalid`: this service did not issue it for this group, or it was altered, or
        the topic or the group was deleted since.
    """

    receipt: str = required(string(examples=["MTo3ZDFhOmMyOWI6MTowOnA0d3o4MTg"]))
    code: str = required(string(enum=[LEASE_LOST, RECEIPT_INVALID]))


class CursorFull(StoreUnavailable):
    """A cursor has as many leases and retries under way as it can hold."""

    def __init__(self, queue: int) -> None:
        super().__init__(f"queue {queue} has as many leases and retries under way as a cursor can hold")

    @property
    def code(self) -> str:
        return StoreUnavailable.__name__


class CursorState(Enum):
    """The state of a cursor as this call has read it."""

    ASSUMED = "nothing: it is as the cache or the receipts say, and perhaps from before a reset"
    FOUND = "the cursor"
    MISSING = "that there is none: the receipts are of another group, or of a deleted one"
    FORGOTTEN = "that there is none any more: the group has forgotten the receipts' consumer"


_MISSING = (CursorState.MISSING, CursorState.FORGOTTEN)


@mutable
class ReceiptBatch:
    """The receipts of one call for one cursor, and the cursor as far as it is known."""

    cursor: Cursor
    receipts: list[tuple[str, Receipt]]
    moved: Moved = field(default_factory=dict)
    """The messages that this call has moved."""
    cursor_state: CursorState = CursorState.ASSUMED
    closed: dict[str, Lease] = field(default_factory=dict)
    """The leases that this call has acked completely, by token."""
    acked: list[Owed] = field(default_factory=list)
    """The messages that this call has acked."""
    is_done: bool = False
    """Whether this call has acked all of it, and with it the whole leases: no plan has anything left to change."""
    lost: set[int] = field(default_factory=set)
    """Offsets of these receipts that are dead letters or wait in a retry page."""
    searched: set[str] = field(default_factory=set)
    """The retry pages that hold none of these messages, by id."""
    settle_by: str | None = None
    """The group's `settle_by`. None: not known yet; then a plan counts on nothing but that they name a lease
    that is not due."""
    now: int = 0
    """The time of the plan."""

    @classmethod
    def of(cls, key: Key, receipts: list[tuple[str, Receipt]], cached: Cursor | None) -> ReceiptBatch:
        """Starts from the cached cursor, unless the receipts are newer: then from one of which only their contents are
        known."""
        epoch = max(receipt.epoch for _, receipt in receipts)
        if cached is None or cached.epoch < epoch:
            cached = Cursor(key, epoch, max(receipt.offset for _, receipt in receipts) + 1, {})
        return cls(assume(cached, receipts), receipts)

    def state_of(self, receipt: Receipt) -> ReceiptState:
        if receipt.epoch != self.cursor.epoch or receipt.offset in self.lost:
            return ReceiptState.LOST
        if self.closed and self._is_closed(receipt):  # at once: else each asks all leases of the cursor
            return ReceiptState.ACKED
        if not self.names_more:
            return self.cursor.state_of(receipt.token, receipt.start, receipt.offset)
        if self.holder(receipt):
            return ReceiptState.OWED
        return ReceiptState.ACKED if self.cursor.is_settled(receipt.offset) else ReceiptState.LOST

    @property
    def names_more(self) -> bool:
        """Whether a receipt names more than one lease: then no witness is needed, and only what some lease owes can be
        lost."""
        return self.settle_by in (BY_DELIVERY, BY_MESSAGE)

    def holder(self, receipt: Receipt) -> Lease | None:
        """The lease that owes the message, if the receipt is good for it."""
        lease = self.cursor.leases.get(receipt.token)
        if lease is None or not lease.owes(receipt.offset):
            lease = self.cursor.owing_lease(receipt.offset)
        is_good = lease is not None and self._names(receipt, lease)
        return lease if is_good and not (self.settle_by == BY_DELIVERY and self._is_over(lease)) else None

    def _names(self, receipt: Receipt, lease: Lease) -> bool:
        is_of_delivery = delivery(lease.token, lease.attempt) == delivery(receipt.token, receipt.attempt)
        return receipt.offset in lease.offsets and (is_of_delivery or self.settle_by == BY_MESSAGE)

    def _is_over(self, lease: Lease | None) -> bool:
        return lease is not None and lease.deadline != UNKNOWN_MS and lease.deadline <= self.now

    def _is_closed(self, receipt: Receipt) -> bool:
        """Whether this call has acked the message, and with it the whole lease."""
        named = self.closed.get(receipt.token)
        closed = self.closed.values() if self.names_more else [named] if named else ()
        return any(self._names(receipt, lease) and receipt.offset - lease.start not in lease.moved for lease in closed)

    @property
    def needs_rule(self) -> bool:
        """Whether what receipts of the group name decides about some of these. Until then it need not be known."""
        if self.settle_by is not None:
            return False
        return bool(self.perhaps_lost()) or any(self._is_in_doubt(receipt) for receipt in self._unmoved())

    def _is_in_doubt(self, receipt: Receipt) -> bool:
        return self._is_over(self.holder(receipt)) or self.state_of(receipt) is ReceiptState.LOST

    def _unmoved(self) -> list[Receipt]:
        if not self.moved:
            return [receipt for _, receipt in self.receipts]
        return [receipt for _, receipt in self.receipts if _named(receipt) not in self.moved]

    @property
    def has_unknown_ends(self) -> bool:
        """Whether the cursor is to be read before a move: where extensions stay in place, only the deadline tells that
        there was one since."""
        return self.names_more and any(lease.deadline == UNKNOWN_MS for lease, _ in self.owed())

    @property
    def is_seen(self) -> bool:
        return self.cursor_state is not CursorState.ASSUMED

    @property
    def is_missing(self) -> bool:
        return self.cursor_state in _MISSING

    @property
    def tokens(self) -> set[str]:
        return {receipt.token for _, receipt in self.receipts}

    @property
    def group_id(self) -> str:
        return self.receipts[0][1].group_id

    def is_late(self, cursor: Cursor, now: int) -> bool:
        """Whether a lease is over whose other messages can be taken: one that these receipts name, or, where they name
        messages, one that holds some of these by now, or that may come back out of a page."""
        tokens, by_message = self.tokens, self.settle_by == BY_MESSAGE
        if by_message and any(page.due <= now for page in cursor.pages.values()):
            return True
        named = {receipt.offset for _, receipt in self.receipts} if by_message else set()
        return any(lease.token in tokens or not named.isdisjoint(lease.owed_offsets) for lease in cursor.due(now))

    def is_unseen(self, cursor: Cursor) -> bool:
        """Whether these name a lease that the cursor does not show: it is newer, or long gone."""
        return any(receipt.token not in cursor.leases for _, receipt in self.receipts)

    def leaves_a_rest(self, cursor: Cursor) -> bool:
        """Whether these settle a part of a lease that the cursor does not show: the rest is owed, or long gone."""
        own = {receipt for _, receipt in self.receipts if receipt.token not in cursor.leases}
        return any(sum(other.token == each.token for other in own) < each.count for each in own)

    def owed(self) -> list[Owed]:
        """The leases that owe messages of these receipts, and which messages."""
        return [(lease, _indexes(lease, receipts)) for lease, receipts in self._by_lease()]

    def _by_lease(self) -> list[tuple[Lease, list[Receipt]]]:
        """The leases that owe messages of these receipts, and their receipts."""
        by_token: dict[str, tuple[Lease, list[Receipt]]] = {}
        for receipt in () if self.is_missing else self._unmoved():
            if self.state_of(receipt) is not ReceiptState.OWED:
                continue
            lease = self.holder(receipt) if self.names_more else self.cursor.leases.get(receipt.token)
            if lease:
                by_token.setdefault(lease.token, (lease, []))[1].append(receipt)
        return list(by_token.values())

    def acks(self) -> Plan:
        """Settles owed messages of as many leases as one write can name, and removes leases that others have acked
        completely."""
        acked = self.owed()[:ACKED_TOGETHER_MAX]
        change, has_witness = NO_CHANGE, not self.names_more
        for lease, indexes in acked:
            change += cursor_writes.ack(lease, indexes, has_witness) + self._demands(lease)
        tokens, leases = self.tokens | {lease.token for lease, _ in acked}, self.cursor.leases
        mine = [leases[token] for token in tokens if token in leases]
        done = [lease for lease in mine if not lease.owed and not lease.moved]
        if done:
            change += cursor_writes.forget(done[: ACKED_TOGETHER_MAX - len(acked)])
        return Plan(change, tokens, acked)

    def _demands(self, lease: Lease) -> CursorChange:
        """A receipt that names a delivery is worth nothing after it."""
        is_sure = self.settle_by in (BY_RECEIPT, BY_MESSAGE)
        return NO_CHANGE if is_sure else cursor_writes.lasts_beyond(lease, self.now)

    def _lasts_as_seen(self, lease: Lease) -> CursorChange:
        return cursor_writes.lasts_as_seen(lease) if self.names_more else NO_CHANGE

    def extends(self, deadline: int, split: Split) -> Plan:
        """Sets the deadline of leases that owe just these messages, in place; others move into new leases."""
        owed = self._by_lease()
        if any(lease.deadline == UNKNOWN_MS for lease, _ in owed):
            return NOTHING  # the cursor is to be read
        whole = [(lease, receipts) for lease, receipts in owed if _is_whole(lease, receipts)]
        change, moved = CursorChange(), Moved()
        for lease, receipts in whole[:TAKEOVERS_MAX]:
            change += cursor_writes.prolong(lease, deadline) + self._demands(lease)
            moved |= dict.fromkeys(map(_named, receipts), lease)
        return Plan(change, moved=moved) if change else self.moves(split)

    def moved_out_of(self, leases: Iterable[Owed]) -> Moved:
        """The receipts whose messages have left these leases."""
        own, moved = {lease.token: receipts for lease, receipts in self._by_lease()}, Moved()
        for lease, indexes in leases:
            moved |= _moved(own[lease.token], {lease.start + index: lease for index in indexes})
        return moved

    def moves(self, split: Split) -> Plan:
        """Moves owed messages into new leases, as many as one write can name. Where a move leaves a witness, the same
        write removes surplus ones, or heartbeats would fill the cursor."""
        owed = self._by_lease()
        if owed and len(self.cursor.inert) > cursor_writes.INERT_MAX:
            return Plan(cursor_writes.prune(self.cursor, 0, (), cursor_writes.PRUNED_ALONE_MAX))
        if owed and self.is_seen and len(self.cursor.leases) >= LEASES_MAX + cursor_writes.LEASES_ROOM:
            raise CursorFull(self.cursor.queue)
        change = CursorChange()
        moved: Moved = {}
        for lease, receipts in owed:
            chosen = runs(_indexes(lease, receipts))[: TAKEOVERS_MAX - len(change.tokens)]
            if not chosen:
                break
            made = [split(lease, lease.offsets[run.start : run.stop]) for run in chosen]
            indexes = [index for run in chosen for index in run]
            change += cursor_writes.move(lease, indexes, made, not self.names_more)
            change += self._demands(lease) + self._lasts_as_seen(lease)
            moved |= _moved(receipts, {offset: new for new in made for offset in new.offsets})
        if not change:
            return NOTHING
        return Plan(change + cursor_writes.has_room() + cursor_writes.prune(self.cursor, 0), moved=moved)

    def perhaps_lost(self) -> list[Receipt]:
        """Receipts of messages that no lease owes and whose lease is gone, though not by this call: the messages were
        acked, are dead, or wait in a page."""
        if not (self.cursor.dead or self.cursor.pages) or self.is_missing:
            return []
        return [receipt for receipt in self._unmoved() if self._is_gone(receipt) and not self._is_closed(receipt)]

    def _is_gone(self, receipt: Receipt) -> bool:
        """Whether its lease does not tell what became of the message. A late claim may have made one under the same
        token, further on."""
        lease = self.cursor.leases.get(receipt.token)
        tells = lease is not None and lease.start == receipt.start and receipt.index not in lease.moved
        return not tells and self.state_of(receipt) is ReceiptState.ACKED

    def learn(self, cursor: Cursor | None, written: Plan = NOTHING) -> None:
        """Records the cursor as a request returned it (None: there is none), and the plan that the request wrote."""
        self.cursor_state = CursorState.FOUND if cursor else CursorState.MISSING
        self.cursor = cursor or self.cursor
        self.moved |= written.moved
        if written.acked:
            self.closed |= {lease.token: lease for lease, _ in written.acked if lease.token not in self.cursor.leases}
            self.acked += written.acked
            own = (receipt for _, receipt in self.receipts)
            self.is_done = all(each.epoch == self.cursor.epoch and self._is_closed(each) for each in own)

    def attempt(self, receipt: Receipt) -> int:
        """The attempt of the delivery that this call has settled or moved by a receipt: another than the receipt's own,
        where one names the message."""
        acked = (lease for lease, indexes in self.acked if receipt.offset - lease.start in indexes)
        lease = self.moved.get(_named(receipt)) or next(acked, None)
        return lease.attempt if lease else receipt.attempt

    def unacked(self) -> list[Failure]:
        return self._failures(lambda receipt: self.state_of(receipt) is ReceiptState.ACKED)

    def unmoved(self) -> list[Failure]:
        return self._failures(lambda receipt: _named(receipt) in self.moved)

    def _failures(self, is_settled: Callable[[Receipt], bool]) -> list[Failure]:
        if self.is_missing:
            code = LEASE_LOST if self.cursor_state is CursorState.FORGOTTEN else RECEIPT_INVALID
            return [Failure(text, code) for text, _ in self.receipts]
        return [Failure(text, LEASE_LOST) for text, receipt in self.receipts if not is_settled(receipt)]


def _named(receipt: Receipt) -> tuple[str, int]:
    return receipt.token, receipt.offset


def _indexes(lease: Lease, receipts: Iterable[Receipt]) -> list[int]:
    return sorted({receipt.offset - lease.start for receipt in receipts})


def _is_whole(lease: Lease, receipts: Sequence[Receipt]) -> bool:
    """Whether a lease that somebody holds owes just these messages."""
    return not lease.parked and len(lease.owed) == len(_indexes(lease, receipts))


def _moved(receipts: Iterable[Receipt], to: Mapping[int, Lease]) -> Moved:
    """`to`: by offset."""
    return {_named(receipt): to[receipt.offset] for receipt in receipts if receipt.offset in to}


def assume(known: Cursor, receipts: Sequence[tuple[str, Receipt]]) -> Cursor:
    """The cached cursor, or one made of the receipts: unchanged since their pop."""
    issued = {
        receipt.token: Lease(
            receipt.token, receipt.start, receipt.count, UNKNOWN_MS, receipt.attempt, (), receipt.first_at_ms
        )
        for _, receipt in receipts
        if receipt.epoch == known.epoch and receipt.token not in known.leases
    }
    return replace(known, leases={**issued, **known.leases}) if issued else known
