"""Settling: ack, nack, extend and bury by receipt. The usual case is one write and no read; see `receipt_batch`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from chalicelib.base.errors import StoreUnavailable
from chalicelib.base.limits import BATCH_MESSAGES_MAX
from chalicelib.catalogue.env import Env
from chalicelib.catalogue.group import Group
from chalicelib.catalogue.topic import Topic
from chalicelib.consuming.late_acks import LateAcks
from chalicelib.consuming.receipt_batch import RECEIPT_INVALID, Failure, Moved, Plan, ReceiptBatch, believe, unknown
from chalicelib.cursors import Cursors
from chalicelib.cursors.cursor import Cursor
from chalicelib.cursors.cursor_writes import Change, write
from chalicelib.cursors.lease import SPLIT_CHARS, TOKEN_CHARS, Lease, parked
from chalicelib.cursors.receipt import Receipt
from chalicelib.cursors.retries import RETRY_PAGE_LEASES
from chalicelib.dead_letters.bury import Burial
from chalicelib.store import Keys, Outcome, raise_trouble
from chalicelib.table import keys
from chalicelib.table.writes import Item, Key, Refused

Planner = Callable[[ReceiptBatch], Plan]


@dataclass(frozen=True, slots=True)
class Extended:
    receipt: str
    new_receipt: str
    invisible_until_ms: int


class Settler:
    def __init__(self, env: Env, cursors: Cursors, burial: Burial) -> None:
        self._store, self._runtime = env.store, env.runtime
        self._catalogue, self._burial = env.catalogue, burial
        self._receipts, self._cache, self._retries = cursors.receipts, cursors.cache, cursors.retries
        self._late_acks = LateAcks(env.store, cursors.retries)

    def ack(self, topic: Topic, group: str, texts: Sequence[str]) -> list[Failure]:
        """Settles messages permanently. Returns the receipts that failed."""
        settlements, failed = self.open(topic, group, texts)
        return failed + self.acknowledge(topic, group, settlements)

    def acknowledge(self, topic: Topic, group: str, settlements: Sequence[ReceiptBatch]) -> list[Failure]:
        self._settle(topic, group, settlements, ReceiptBatch.acks)
        self._late_acks.resolve(topic, settlements)
        return [failure for settlement in settlements for failure in settlement.unacked()]

    def nack(self, topic: Topic, group: str, texts: Sequence[str], delay_ms: int | None, reason: str) -> list[Failure]:
        """Returns messages to be delivered again after `delay_ms` (None: the backoff of their attempt); after the last
        attempt they become dead letters."""
        settings = self._catalogue.group(topic, group)
        settlements, failed = self.open(topic, group, texts)
        for settlement in settlements:
            self._bury(settings, settlement, reason, settings.max_attempts)
        now = self._runtime.now()

        def waiting(lease: Lease, run: range) -> Lease:
            wait_ms = settings.backoff_ms.wait_ms(lease.attempt) if delay_ms is None else delay_ms
            return self._parked(lease, run, now + wait_ms)

        self._settle(topic, group, settlements, lambda settlement: settlement.moves(waiting))
        if not settings.ordered:  # in an ordered group a waiting retry blocks its queue: the cursor must show it
            self._lighten(topic, settlements)
        return failed + [failure for settlement in settlements for failure in settlement.unmoved()]

    def _lighten(self, topic: Topic, settlements: Sequence[ReceiptBatch]) -> None:
        for each in settlements:
            if not each.is_foreign and each.is_confirmed:
                place = keys.Place(topic.id, each.group_id, each.queue)
                lighter = self._retries.lighten(place, each.cursor, BATCH_MESSAGES_MAX // RETRY_PAGE_LEASES + 1)
                self._cache.learn(lighter)

    def bury(self, topic: Topic, group: str, texts: Sequence[str], reason: str) -> list[Failure]:
        """Moves messages to the dead letters at once."""
        settings = self._catalogue.group(topic, group)
        settlements, failed = self.open(topic, group, texts)
        self.give_up(topic, settings, settlements, reason)
        return failed + [failure for settlement in settlements for failure in settlement.unmoved()]

    def give_up(self, topic: Topic, group: Group, settlements: Sequence[ReceiptBatch], reason: str) -> None:
        for settlement in settlements:
            self._bury(group, settlement, reason, attempts_min=0)
        self._settle(topic, group.name, settlements, lambda _: (Change(), {}))
        for settlement in settlements:  # messages wrongly cached as settled were read by now
            self._bury(group, settlement, reason, attempts_min=0)

    def extend(
        self, topic: Topic, group: str, texts: Sequence[str], invisible_ms: int
    ) -> tuple[list[Extended], list[Failure]]:
        """Moves messages into new leases that last `invisible_ms` from now; the old receipts become void."""
        settlements, failed = self.open(topic, group, texts)
        deadline = self._runtime.now() + invisible_ms

        def extended(lease: Lease, run: range) -> Lease:
            return self._extended(lease, run, deadline)

        self._settle(topic, group, settlements, lambda settlement: settlement.moves(extended))
        return self._extensions(settlements, deadline), failed + [
            failure for settlement in settlements for failure in settlement.unmoved()
        ]

    def _extensions(self, settlements: Sequence[ReceiptBatch], deadline: int) -> list[Extended]:
        return [
            Extended(text, self._moved_receipt(receipt, settlement.moved[receipt.token, receipt.offset]), deadline)
            for settlement in settlements
            for text, receipt in settlement.receipts
            if (receipt.token, receipt.offset) in settlement.moved
        ]

    def open(self, topic: Topic, group: str, texts: Sequence[str]) -> tuple[list[ReceiptBatch], list[Failure]]:
        """Sorts receipts by cursor. Those that this service did not sign for this topic fail at once."""
        by_key: dict[Key, list[tuple[str, Receipt]]] = {}
        failed: list[Failure] = []
        signed = self._signed(topic, texts)
        if any(receipt is None or receipt.topic_id != topic.id for _, receipt in signed):
            topic = self._catalogue.current_topic(topic.name)  # it may have been created again a moment ago
            signed = self._signed(topic, texts)
        for text, receipt in signed:
            if receipt is None or receipt.topic_id != topic.id:
                failed.append(Failure(text, RECEIPT_INVALID))
                continue
            key = keys.cursor(topic.id, group, receipt.group_id, receipt.queue, receipt.consumer)
            by_key.setdefault(key, []).append((text, receipt))
        if not by_key:
            self._catalogue.group(topic, group)
        settlements = [ReceiptBatch(self._believed(key, found), found) for key, found in by_key.items()]
        return settlements, failed

    def _signed(self, topic: Topic, texts: Sequence[str]) -> list[tuple[str, Receipt | None]]:
        return [(text, self._receipts.read(text, topic.id)) for text in texts]

    def _believed(self, key: Key, receipts: list[tuple[str, Receipt]]) -> Cursor:
        known = self._cache.cursor(key)
        nothing = unknown(key, receipts)
        return believe(known if known and known.stands and known.epoch >= nothing.epoch else nothing, receipts)

    def _settle(self, topic: Topic, group: str, settlements: Sequence[ReceiptBatch], plan: Planner) -> None:
        """Plans and writes, all cursors in parallel, until no plan has anything left to change.

        Raises GroupNotFound if a cursor is missing because the group is."""
        while planned := self._planned(settlements, plan):
            outcomes = self._store.write_each([write(each.cursor, change) for each, change, _ in planned])
            for (settlement, _, moved), outcome in zip(planned, outcomes, strict=True):
                self._learn(settlement, moved, outcome)
            raise_trouble(outcomes)
        self._tell_forgotten(topic, group, [each for each in settlements if each.is_foreign], len(settlements))

    def _tell_forgotten(self, topic: Topic, group: str, foreign: Sequence[ReceiptBatch], count: int) -> None:
        """Decides receipts without a cursor: of another group, or of a consumer that this group has forgotten."""
        if len(foreign) == count:
            found = [self._catalogue.group(topic, group)] if foreign else []
        else:
            found = self._catalogue.groups_named(topic, [group]) if any(each.consumer for each in foreign) else []
        for each in foreign:
            each.is_forgotten = any(each.group_id == standing.id for standing in found)

    def _planned(self, settlements: Sequence[ReceiptBatch], plan: Planner) -> list[tuple[ReceiptBatch, Change, Moved]]:
        """The writes left to do. That none are left needs a read, not the cache."""
        while True:
            planned = [(each, *plan(each)) for each in settlements if not each.is_foreign]
            believed = [each for each, change, _ in planned if not change and not each.is_confirmed]
            if not believed:
                return [(each, change, moved) for each, change, moved in planned if change]
            for each, items in zip(believed, self._read([each.cursor.key for each in believed]), strict=True):
                each.learn(items[0] if items else None)

    def _read(self, cursors: Sequence[Key]) -> list[list[Item]]:
        return self._store.read([Keys([key], strong=True) for key in cursors])

    def _learn(self, settlement: ReceiptBatch, moved: Moved, outcome: Outcome) -> None:
        if isinstance(outcome, StoreUnavailable):
            return
        if isinstance(outcome, Refused):
            settlement.learn(outcome.before)
        else:
            settlement.closed |= settlement.ended()
            settlement.learn(outcome)
            settlement.moved |= moved
        if not settlement.is_foreign:
            self._cache.learn(settlement.cursor)

    def _bury(self, group: Group, settlement: ReceiptBatch, reason: str, attempts_min: int) -> None:
        """Buries owed messages that were delivered at least this often."""
        while exhausted := [each for each in settlement.owed() if each[0].attempt >= attempts_min]:
            cursor, buried = self._burial.bury(group, settlement.queue, settlement.cursor, exhausted, reason)
            settlement.moved |= {
                (lease.token, lease.start + index): lease for lease, indexes in buried for index in indexes
            }
            settlement.know(cursor)

    def _parked(self, lease: Lease, run: range, due: int) -> Lease:
        return parked(self._runtime, range(lease.start + run.start, lease.start + run.stop), due, lease.attempt)

    def _extended(self, lease: Lease, run: range, deadline: int) -> Lease:
        token = lease.token[:TOKEN_CHARS] + self._runtime.name(SPLIT_CHARS)
        return Lease(token, lease.start + run.start, len(run), deadline, lease.attempt)

    def _moved_receipt(self, receipt: Receipt, lease: Lease) -> str:
        index = receipt.offset - lease.start
        return self._receipts.sign(replace(receipt, token=lease.token, index=index, count=lease.count))
