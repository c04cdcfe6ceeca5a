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
from chalicelib.consuming.receipt_batch import (
    RECEIPT_INVALID,
    Failure,
    Moved,
    Plan,
    ReceiptBatch,
    Seen,
    assume,
    cursor_from,
)
from chalicelib.cursors import Cursors
from chalicelib.cursors.cursor import Cursor, read_again
from chalicelib.cursors.cursor_writes import Change, write
from chalicelib.cursors.lease import SPLIT_CHARS, TOKEN_CHARS, Lease, parked
from chalicelib.cursors.receipt import Receipt
from chalicelib.cursors.retries import RETRY_PAGE_LEASES
from chalicelib.dead_letters.bury import Burial
from chalicelib.store import Outcome, raise_trouble
from chalicelib.table import keys
from chalicelib.table.writes import Key, Refused

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

    def ack(self, topic: Topic, group_name: str, texts: Sequence[str]) -> list[Failure]:
        """Settles messages permanently. Returns the receipts that failed."""
        batches, failed = self.open(topic, group_name, texts)
        return failed + self.acknowledge(topic, group_name, batches)

    def acknowledge(self, topic: Topic, group_name: str, batches: Sequence[ReceiptBatch]) -> list[Failure]:
        self._settle(topic, group_name, batches, ReceiptBatch.acks)
        self._late_acks.resolve(topic, batches)
        return [failure for batch in batches for failure in batch.unacked()]

    def nack(
        self, topic: Topic, group_name: str, texts: Sequence[str], delay_ms: int | None, reason: str
    ) -> list[Failure]:
        """Returns messages to be delivered again after `delay_ms` (None: the backoff of their attempt); after the last
        attempt they become dead letters."""
        settings = self._catalogue.group(topic, group_name)
        batches, failed = self.open(topic, group_name, texts)
        for batch in batches:
            self._bury(settings, batch, reason, settings.max_attempts)
        now = self._runtime.now()

        def waiting(lease: Lease, run: range) -> Lease:
            wait_ms = settings.backoff_ms.wait_ms(lease.attempt) if delay_ms is None else delay_ms
            return self._parked(lease, run, now + wait_ms)

        self._settle(topic, group_name, batches, lambda batch: batch.moves(waiting))
        if not settings.ordered:  # in an ordered group a waiting retry blocks its queue: the cursor must show it
            self.lighten(batches)
        return failed + [failure for batch in batches for failure in batch.unmoved()]

    def lighten(self, batches: Sequence[ReceiptBatch]) -> None:
        for batch in batches:
            if batch.seen is Seen.FOUND:
                lighter = self._retries.lighten(batch.cursor, BATCH_MESSAGES_MAX // RETRY_PAGE_LEASES + 1)
                self._cache.keep(lighter.key, lighter)

    def bury(self, topic: Topic, group_name: str, texts: Sequence[str], reason: str) -> list[Failure]:
        """Moves messages to the dead letters at once."""
        settings = self._catalogue.group(topic, group_name)
        batches, failed = self.open(topic, group_name, texts)
        self.give_up(topic, settings, batches, reason)
        return failed + [failure for batch in batches for failure in batch.unmoved()]

    def give_up(self, topic: Topic, group: Group, batches: Sequence[ReceiptBatch], reason: str) -> None:
        for batch in batches:
            self._bury(group, batch, reason, attempts_min=0)
        self._settle(topic, group.name, batches, lambda _: (Change(), {}))
        for batch in batches:  # messages wrongly cached as settled were read by now
            self._bury(group, batch, reason, attempts_min=0)

    def extend(
        self, topic: Topic, group_name: str, texts: Sequence[str], invisible_ms: int
    ) -> tuple[list[Extended], list[Failure]]:
        """Moves messages into new leases that last `invisible_ms` from now; the old receipts become void."""
        batches, failed = self.open(topic, group_name, texts)
        deadline = self._runtime.now() + invisible_ms

        def extended(lease: Lease, run: range) -> Lease:
            return self._extended(lease, run, deadline)

        self._settle(topic, group_name, batches, lambda batch: batch.moves(extended))
        return self._extensions(batches, deadline), failed + [
            failure for batch in batches for failure in batch.unmoved()
        ]

    def _extensions(self, batches: Sequence[ReceiptBatch], deadline: int) -> list[Extended]:
        return [
            Extended(text, self._moved_receipt(receipt, batch.moved[receipt.token, receipt.offset]), deadline)
            for batch in batches
            for text, receipt in batch.receipts
            if (receipt.token, receipt.offset) in batch.moved
        ]

    def open(self, topic: Topic, group_name: str, texts: Sequence[str]) -> tuple[list[ReceiptBatch], list[Failure]]:
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
            key = keys.cursor(topic.id, group_name, receipt.group_id, receipt.queue, receipt.consumer)
            by_key.setdefault(key, []).append((text, receipt))
        if not by_key:
            self._catalogue.group(topic, group_name)
        batches = [ReceiptBatch(self._assumed(key, found), found) for key, found in by_key.items()]
        return batches, failed

    def _signed(self, topic: Topic, texts: Sequence[str]) -> list[tuple[str, Receipt | None]]:
        return [(text, self._receipts.read(text, topic.id)) for text in texts]

    def _assumed(self, key: Key, receipts: list[tuple[str, Receipt]]) -> Cursor:
        known = self._cache.get(key)
        nothing = cursor_from(key, receipts)
        return assume(known if known and known.stands and known.epoch >= nothing.epoch else nothing, receipts)

    def _settle(self, topic: Topic, group_name: str, batches: Sequence[ReceiptBatch], plan: Planner) -> None:
        """Plans and writes, all cursors in parallel, until no plan has anything left to change.

        Raises GroupNotFound if a cursor is missing because the group is."""
        while planned := self._planned(batches, plan):
            outcomes = self._store.write_each([write(each.cursor, change) for each, change, _ in planned])
            for (batch, _, moved), outcome in zip(planned, outcomes, strict=True):
                self._learn(batch, moved, outcome)
            raise_trouble(outcomes)
        self._tell_forgotten(topic, group_name, [each for each in batches if each.is_missing], len(batches))

    def _tell_forgotten(self, topic: Topic, group_name: str, missing: Sequence[ReceiptBatch], count: int) -> None:
        """Decides receipts without a cursor: of another group, or of a consumer that this group has forgotten."""
        if len(missing) == count:
            found = [self._catalogue.group(topic, group_name)] if missing else []
        else:
            found = self._catalogue.groups_named(topic, [group_name]) if any(each.consumer for each in missing) else []
        for each in missing:
            if any(each.group_id == standing.id for standing in found):
                each.seen = Seen.FORGOTTEN

    def _planned(self, batches: Sequence[ReceiptBatch], plan: Planner) -> list[tuple[ReceiptBatch, Change, Moved]]:
        """The writes left to do. That none are left needs a read, not the cache."""
        while True:
            planned = [(each, *plan(each)) for each in batches if not each.is_missing]
            assumed = [each for each, change, _ in planned if not change and not each.is_seen]
            if not assumed:
                return [(each, change, moved) for each, change, moved in planned if change]
            cursors = read_again(self._store, [batch.cursor.key for batch in assumed])
            for batch, cursor in zip(assumed, cursors, strict=True):
                batch.know(cursor)

    def _learn(self, batch: ReceiptBatch, moved: Moved, outcome: Outcome) -> None:
        if isinstance(outcome, StoreUnavailable):
            return
        if isinstance(outcome, Refused):
            batch.learn(outcome.before)
        else:
            batch.closed |= batch.ended()
            batch.learn(outcome)
            batch.moved |= moved
        if not batch.is_missing:
            self._cache.keep(batch.cursor.key, batch.cursor)

    def _bury(self, group: Group, batch: ReceiptBatch, reason: str, attempts_min: int) -> None:
        """Buries owed messages that were delivered at least this often."""
        while exhausted := [each for each in batch.owed() if each[0].attempt >= attempts_min]:
            cursor, buried = self._burial.bury(group, batch.queue, batch.cursor, exhausted, reason)
            batch.moved |= {(lease.token, lease.start + index): lease for lease, indexes in buried for index in indexes}
            batch.know(cursor)

    def _parked(self, lease: Lease, run: range, due: int) -> Lease:
        return parked(self._runtime, range(lease.start + run.start, lease.start + run.stop), due, lease.attempt)

    def _extended(self, lease: Lease, run: range, deadline: int) -> Lease:
        token = lease.token[:TOKEN_CHARS] + self._runtime.name(SPLIT_CHARS)
        return Lease(token, lease.start + run.start, len(run), deadline, lease.attempt)

    def _moved_receipt(self, receipt: Receipt, lease: Lease) -> str:
        index = receipt.offset - lease.start
        return self._receipts.sign(replace(receipt, token=lease.token, index=index, count=lease.count))
