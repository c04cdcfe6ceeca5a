"""Settling: ack, nack, extend and bury by receipt. The usual case is one write and no read; see `receipt_batch`."""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from dataclasses import replace
from typing import Any

from chalicelib.core.base.errors import StoreUnavailable
from chalicelib.core.base.fields import Answer, required, string
from chalicelib.core.base.limits import METADATA_AGE_MS_MAX
from chalicelib.core.base.records import record
from chalicelib.core.catalogue.agenda import REVIVE
from chalicelib.core.catalogue.catalogue import Env
from chalicelib.core.catalogue.group import BY_MESSAGE, BY_RECEIPT, ENDLESS, Group
from chalicelib.core.catalogue.topic import Topic
from chalicelib.core.consuming.events import Events
from chalicelib.core.consuming.receipt_batch import (
    NOTHING,
    RECEIPT_INVALID,
    CursorFull,
    CursorState,
    Failure,
    Owed,
    Plan,
    ReceiptBatch,
)
from chalicelib.core.consuming.request import LEASE_END
from chalicelib.core.consuming.waiters import Waiters
from chalicelib.core.cursors import Cursors
from chalicelib.core.cursors.cursor import Cursor, read_again
from chalicelib.core.cursors.cursor_writes import write
from chalicelib.core.cursors.lease import SPLIT_CHARS, TOKEN_CHARS, UNKNOWN_MS, Lease, Receipt, parked
from chalicelib.core.cursors.retries import Retries
from chalicelib.core.dead_letters.bury import Burial
from chalicelib.core.store import Keys, Store, raise_trouble
from chalicelib.core.table import keys
from chalicelib.core.table.writes import Item, Key, Refused, key_of
from chalicelib.core.telemetry.record import count

_SETTLED = ("acked", "buried")

Batches = Sequence[ReceiptBatch]

Prepare = Callable[[ReceiptBatch], None]
"""Carries out what must come before the next write for a batch: transactions of their own, and appointments."""

Planner = Callable[[ReceiptBatch], Plan]
"""Plans the next write for a batch, and changes nothing."""

Take = Callable[[Cursor, Sequence[Owed]], tuple[Cursor | None, Sequence[Owed]]]
"""Takes some of these messages out of their leases, in a transaction of its own. Returns the cursor after that (None:
there is none), and the messages, at least one."""


@record
class Extended(Answer):
    """A lease that was extended.

    receipt: The receipt as it was given. It no longer counts, unless the group's `settle_by` says otherwise.
    new_receipt: The receipt to use from now on; the same one if it still names the lease."""

    receipt: str = required(string(examples=["MTo3ZDFhOmMyOWI6MTowOms5czJ4MTc"]))
    new_receipt: str = required(string(examples=["MTo3ZDFhOmMyOWI6MTowOnA0d3o4MTg"]))
    invisible_until_ms: int = required(LEASE_END)


class Settler:
    def __init__(self, env: Env, cursors: Cursors, burial: Burial, waiters: Waiters) -> None:
        self._store, self._runtime = env.store, env.runtime
        self._catalogue, self._agenda, self._burial = env.catalogue, env.agenda, burial
        self._waiters = waiters
        self._receipts, self._cache, self._retries = cursors.receipts, cursors.cache, cursors.retries
        self.events = Events(env)

    def ack(self, topic: Topic, group_name: str, texts: Sequence[str]) -> list[Failure]:
        """Settles messages permanently. Returns the receipts that failed."""
        batches, failed = self.open(topic, group_name, texts)
        return self.ack_opened(topic, group_name, batches, failed)

    def ack_opened(self, topic: Topic, group_name: str, batches: Batches, failed: Sequence[Failure]) -> list[Failure]:
        """The same for batches that `open` has returned, with those that had failed then."""
        failed = [*failed, *self.acknowledge(topic, group_name, batches)]
        self._end("acked", topic, group_name, batches, failed)
        return failed

    def acknowledge(self, topic: Topic, group_name: str, batches: Batches) -> list[Failure]:
        self._settle(topic, group_name, batches, ReceiptBatch.acks)
        left = [batch for batch in batches if not batch.is_done]
        if late := [batch for batch in left if batch.perhaps_lost()]:
            resolve_late(self._store, self._retries, late)
            self._settle(topic, group_name, late, ReceiptBatch.acks)  # what came out of pages, or into them, by then
        return [failure for batch in left for failure in batch.unacked()]

    def _end(
        self,
        name: str,
        topic: Topic,
        group_name: str,
        batches: Batches,
        failed: Sequence[Failure],
        **about: Any,
    ) -> None:
        """Counts the receipts that a call has carried out, all but the failed ones, and notes them in a topic with
        `trace`. Wakes the pops that wait for an ordered group, and so have read it: a settled message may have held up
        others. `about`: what the note says further."""
        lost = {failure.receipt for failure in failed}
        settled = [(batch, receipt) for batch in batches for text, receipt in batch.receipts if text not in lost]
        count(name, len(settled), topic.name, group_name)
        if topic.trace:
            self.events.settled(name, topic, group_name, settled, **about)
        known = self._catalogue.seen_group(topic, group_name) if name in _SETTLED else None
        if known and known.ordered:
            self._waiters.freed(topic.id, group_name)

    def nack(
        self, topic: Topic, group_name: str, texts: Sequence[str], delay_ms: int | None, reason: str
    ) -> list[Failure]:
        """Returns messages to be delivered again after `delay_ms` (None: the backoff of their attempt); after the last
        attempt they become dead letters."""
        group = self._catalogue.group(topic, group_name)
        batches, failed = self.open(topic, group_name, texts)
        failed += self._return(topic, group, batches, reason, group.max_attempts, delay_ms)
        if not group.ordered:  # in an ordered group a waiting retry blocks its queue: the cursor must show it
            self.lighten(batches)
        self._end("nacked", topic, group_name, batches, failed, reason=reason)
        self._waiters.freed(topic.id, group_name)  # waiting pops learn when the retry is due
        return failed

    def _return(
        self, topic: Topic, group: Group, batches: Batches, reason: str, attempts_min: int, delay_ms: int | None = None
    ) -> list[Failure]:
        """Buries messages that were delivered at least this often, if they can be buried, and lets the others wait for
        their retry."""
        now = self._runtime.now()  # one instant for the appointment and the write, whatever the clock does

        def due_ms(lease: Lease) -> int:
            return now + (group.backoff_ms.wait_ms(lease.attempt) if delay_ms is None else delay_ms)

        def prepare(batch: ReceiptBatch) -> None:
            if batch.has_unknown_ends:
                return
            self._bury(topic, group, batch, reason, attempts_min)
            for lease, _ in batch.owed():
                if lease.attempt >= group.max_attempts:  # its messages could not be buried, and perhaps can be then
                    self._agenda.appoint(REVIVE, keys.subject(topic.name, group.name), due_ms(lease))

        def waiting(lease: Lease, offsets: range) -> Lease:
            return parked(self._runtime, offsets, due_ms(lease), lease.attempt, lease.first_at_ms)

        def plan(batch: ReceiptBatch) -> Plan:
            return NOTHING if batch.has_unknown_ends else batch.moves(waiting)

        return self._move(topic, group.name, batches, plan, prepare)

    def give_back(self, topic: Topic, group_name: str, texts: Sequence[str]) -> list[Failure]:
        """Undoes a delivery that did not take place: the messages are ready again, and it does not count."""
        batches, failed = self.open(topic, group_name, texts)
        for batch in batches:
            batch.settle_by = BY_RECEIPT  # and not a later delivery

        def undelivered(lease: Lease, offsets: range) -> Lease:
            return parked(self._runtime, offsets, self._runtime.now(), lease.attempt - 1, lease.first_at_ms)

        return failed + self._move(topic, group_name, batches, lambda batch: batch.moves(undelivered))

    def lighten(self, batches: Batches) -> None:
        """Moves retries with a long wait into pages."""
        for batch in batches:
            lighter = self._retries.lighten(batch.cursor)
            self._cache.keep(lighter.key, lighter)

    def bury(self, topic: Topic, group_name: str, texts: Sequence[str], reason: str) -> list[Failure]:
        """Moves messages to the dead letters at once."""
        group = self._catalogue.group(topic, group_name)
        batches, failed = self.open(topic, group_name, texts)
        failed += self.give_up(topic, group, batches, reason)
        self._end("buried", topic, group_name, batches, failed, reason=reason)
        return failed

    def give_up(self, topic: Topic, group: Group, batches: Batches, reason: str) -> list[Failure]:
        """Buries messages. If they cannot be buried, they are nacked."""
        return self._return(topic, group, batches, reason, attempts_min=0)

    def take_out(self, topic: Topic, group_name: str, texts: Sequence[str], take: Take) -> None:
        """Moves messages elsewhere, but those that others have taken by now. An exception of `take` ends it."""
        batches, _ = self.open(topic, group_name, texts)

        def prepare(batch: ReceiptBatch) -> None:
            while owed := batch.owed():
                cursor, taken = take(batch.cursor, owed)
                batch.learn(cursor, Plan(moved=batch.moved_out_of(taken)))
                if cursor:  # the next call may take out of the same lease
                    self._cache.keep(cursor.key, cursor)

        self._settle(topic, group_name, batches, lambda _: NOTHING, prepare)

    def extend(
        self, topic: Topic, group_name: str, texts: Sequence[str], invisible_ms: int
    ) -> tuple[list[Extended], list[Failure]]:
        """Lets messages stay away until `invisible_ms` from now: in new leases, whose receipts replace the old ones,
        or, where a receipt names more than a lease, in place if possible."""
        batches, failed = self.open(topic, group_name, texts)
        deadline = self._runtime.now() + invisible_ms
        made: set[str] = set()
        sooner: set[Key] = set()

        def longer(lease: Lease, offsets: range) -> Lease:
            if lease.parked:
                return parked(self._runtime, offsets, deadline, lease.attempt, lease.first_at_ms)
            made.add(token := lease.token[:TOKEN_CHARS] + self._runtime.name(SPLIT_CHARS))
            return Lease(token, offsets.start, len(offsets), deadline, lease.attempt, (), lease.first_at_ms)

        def names_lease(batch: ReceiptBatch) -> bool:
            return self._rule(topic, group_name, batch.group_id, age_ms_max=None) == BY_RECEIPT

        def prepare(batch: ReceiptBatch) -> None:
            ends = {lease.deadline for lease, _ in batch.owed()}
            if is_sooner := max(ends, default=UNKNOWN_MS) > deadline:
                sooner.add(batch.cursor.key)
            may_be_sooner = is_sooner or (UNKNOWN_MS in ends and names_lease(batch))  # in place, it is read first
            if may_be_sooner and self._may_be_last(topic, group_name, batch):
                self._agenda.appoint(REVIVE, keys.subject(topic.name, group_name), deadline)

        def plan(batch: ReceiptBatch) -> Plan:
            return batch.moves(longer) if names_lease(batch) else batch.extends(deadline, longer)

        try:
            failed += self._move(topic, group_name, batches, plan, prepare)
        finally:  # a part may be extended
            if sooner or not invisible_ms:
                self._waiters.freed(topic.id, group_name)
        extended = [
            Extended(text, self._moved_receipt(receipt, lease) if lease.token in made else text, deadline)
            for batch in batches
            for text, receipt in batch.receipts
            if (lease := batch.moved.get((receipt.token, receipt.offset)))
        ]
        self._end("extended", topic, group_name, batches, failed, until=deadline)
        return extended, failed

    def _may_be_last(self, topic: Topic, group_name: str, batch: ReceiptBatch) -> bool:
        """Whether a delivery may be the last of its message. If there was no end of attempts five seconds ago, a
        caller that has set one since has made an appointment, which lasts for minutes."""
        known = self._catalogue.seen_group(topic, group_name, METADATA_AGE_MS_MAX)
        return known is None or known.id != batch.group_id or known.max_attempts != ENDLESS

    def _moved_receipt(self, receipt: Receipt, lease: Lease) -> str:
        index = receipt.offset - lease.start
        moved = replace(receipt, token=lease.token, index=index, count=lease.count, attempt=lease.attempt)
        return self._receipts.sign(replace(moved, first_at_ms=lease.first_at_ms))

    def _move(
        self, topic: Topic, group_name: str, batches: Batches, planner: Planner, prepare: Prepare | None = None
    ) -> list[Failure]:
        """Returns the receipts whose messages did not move."""
        self._settle(topic, group_name, batches, planner, prepare)
        return [failure for batch in batches for failure in batch.unmoved()]

    def open(self, topic: Topic, group_name: str, texts: Sequence[str]) -> tuple[list[ReceiptBatch], list[Failure]]:
        """Sorts receipts by cursor. Those that this service did not sign for this topic fail at once."""
        by_cursor: dict[tuple[str, int, str], list[tuple[str, Receipt]]] = {}
        failed: list[Failure] = []
        receipts, known = self._receipts.read_each(texts, topic.id), topic
        if not all(receipts):
            topic = self._catalogue.current_topic(topic.name)  # it may have been created again a moment ago
            receipts = self._receipts.read_each(texts, topic.id)
        for text, receipt in zip(texts, receipts, strict=True):
            if receipt is None:
                failed.append(Failure(text, RECEIPT_INVALID))
                continue
            place = (receipt.group_id, receipt.queue, receipt.consumer)
            by_cursor.setdefault(place, []).append((text, receipt))
        if not by_cursor:
            self._catalogue.group(topic, group_name)
        by_key = {keys.cursor(topic.id, group_name, *place): own for place, own in by_cursor.items()}
        batches = [ReceiptBatch.of(key, own, self._cache.get(key)) for key, own in by_key.items()]
        group = self._catalogue.seen_group(topic, group_name, METADATA_AGE_MS_MAX)
        if group is None and topic.id != known.id:  # the caller goes on with the topic that it knows
            group = next(iter(self._catalogue.groups_named(topic, [group_name])), None)
        if group:
            for batch in batches:
                batch.settle_by = group.settle_by if batch.group_id == group.id else None
        return batches, failed

    def _settle(
        self, topic: Topic, group_name: str, batches: Batches, planner: Planner, prepare: Prepare | None = None
    ) -> None:
        """Plans and writes, all cursors in parallel, until no plan has anything left to change.

        Raises GroupNotFound if a cursor is missing because the group is."""
        is_open = True
        while is_open:
            while planned := self._planned(topic, group_name, batches, planner, prepare):
                self._write(planned)
            paged = [batch for batch in batches if batch.cursor.pages and batch.settle_by == BY_MESSAGE]
            is_open = bool(paged) and bring_pages_back(self._store, self._retries, paged)
        if missing := [batch for batch in batches if batch.is_missing]:
            self._judge_missing(topic, group_name, missing, is_all=len(missing) == len(batches))

    def _write(self, planned: Sequence[tuple[ReceiptBatch, Plan]]) -> None:
        outcomes = self._store.write_each([write(batch.cursor, plan.change) for batch, plan in planned])
        for (batch, plan), outcome in zip(planned, outcomes, strict=True):
            if not isinstance(outcome, StoreUnavailable):
                self._learn(batch, plan, outcome)
        raise_trouble(outcomes)

    def _planned(
        self, topic: Topic, group_name: str, batches: Batches, planner: Planner, prepare: Prepare | None
    ) -> list[tuple[ReceiptBatch, Plan]]:
        """The writes left to do. That none are left needs a read, not the cache."""
        while True:
            left = [batch for batch in batches if not (batch.is_done or batch.is_missing)]
            for batch in left:
                batch.now = self._runtime.now()
                if batch.needs_rule:
                    batch.settle_by = self._rule(topic, group_name, batch.group_id)
                if prepare:
                    prepare(batch)
            planned = [(batch, planner(batch)) for batch in left]
            assumed = [batch for batch, plan in planned if not plan.change and not batch.is_seen]
            if not assumed:
                return [(batch, plan) for batch, plan in planned if plan.change]
            cursors = read_again(self._store, [batch.cursor.key for batch in assumed])
            for batch, cursor in zip(assumed, cursors, strict=True):
                batch.learn(cursor)

    def _rule(self, topic: Topic, group_name: str, group_id: str, age_ms_max: int | None = METADATA_AGE_MS_MAX) -> str:
        """The group's `settle_by`, as it was so long ago or later. None: whenever this instance read it last; an
        extension in place, or into a new lease, is right by any rule."""
        group = self._catalogue.seen_group(topic, group_name, age_ms_max)
        if group is None or group.id != group_id:  # it may have been made again since
            group = next(iter(self._catalogue.groups_named(topic, [group_name])), None)
        return group.settle_by if group and group.id == group_id else BY_RECEIPT

    def _learn(self, batch: ReceiptBatch, plan: Plan, outcome: Item | Refused) -> None:
        if isinstance(outcome, Refused):
            batch.learn(Cursor.or_none(outcome.before))
        else:
            batch.learn(Cursor.of(outcome), plan)
        self._cache.keep(batch.cursor.key, batch.cursor)

    def _judge_missing(self, topic: Topic, group_name: str, missing: Sequence[ReceiptBatch], is_all: bool) -> None:
        """Decides receipts without a cursor: of another group, or of a consumer that this group has forgotten."""
        named = self._catalogue.groups_named
        groups = [self._catalogue.group(topic, group_name)] if is_all else named(topic, [group_name])
        for batch in missing:
            if any(batch.group_id == group.id for group in groups):
                batch.cursor_state = CursorState.FORGOTTEN

    def _bury(self, topic: Topic, group: Group, batch: ReceiptBatch, reason: str, attempts_min: int) -> None:
        """Buries owed messages that were delivered at least this often, if they can be buried."""
        while exhausted := [owed for owed in batch.owed() if owed[0].attempt >= attempts_min]:
            if not self._burial.can_bury(group):
                return
            cursor, buried = self._burial.bury(group, batch.cursor, exhausted, reason)
            count("dead", sum(len(indexes) for _, indexes in buried), topic.name, group.name)
            batch.learn(cursor, Plan(moved=batch.moved_out_of(buried)))


def resolve_late(store: Store, retries: Retries, batches: Batches) -> None:
    """Decides late receipts, of messages that were acked, that are dead, or that wait in a retry page: records in each
    batch which of its messages are dead or wait.

    The cursor alone does not show which: the lease is gone, and no lease owes the message. So the dead letters and
    pages are read, and then the cursor again: messages redriven or brought back in between are owed by then. They may
    even be dead once more, so if anything came back meanwhile, all of this is read again."""
    while batches:
        before = {batch.cursor.key: batch.cursor for batch in batches}
        judged = _note_dead(store, batches)
        seen = _note_paged(retries, batches)
        left = [batch for batch in batches if batch.perhaps_lost()]
        for batch, cursor in zip(left, read_again(store, [batch.cursor.key for batch in left]), strict=True):
            batch.learn(cursor)
        # A page written since may hold the missing messages, and others are missing only now.
        batches = [batch for batch in left if _is_open(batch, before[batch.cursor.key], judged, seen)]


def bring_pages_back(store: Store, retries: Retries, batches: Batches) -> bool:
    """Brings back retry pages that hold messages of these receipts, which name messages. Returns whether there is more
    to settle, or to look for. Raises CursorFull: no room for a page."""
    asked = []
    for batch in batches:
        last = max((receipt.offset for receipt in batch.perhaps_lost()), default=-1)
        near = [page for page in batch.cursor.pages.values() if page.low <= last and page.id not in batch.searched]
        if near:
            asked.append((batch, near))
    if not asked:
        return False
    answers = retries.read([(batch.cursor, near) for batch, near in asked])
    for (batch, near), pages in zip(asked, answers, strict=True):
        batch.searched |= {page.id for page in near}
        wanted = {receipt.offset for receipt in batch.perhaps_lost()}
        for page in near:
            if page.id not in pages:  # somebody has just brought it back
                batch.learn(read_again(store, [batch.cursor.key])[0])
            elif any(not wanted.isdisjoint(lease.offsets) for lease in pages[page.id]):
                after = retries.bring_back(batch.cursor, page)
                if after and page.id in after.pages:
                    raise CursorFull(after.queue)
                batch.learn(after)
    return True


def _is_open(batch: ReceiptBatch, before: Cursor, judged: Set[Key], seen: Set[str]) -> bool:
    """`before`: the cursor as it was when letters and pages were read."""
    missing = {_letter_key(receipt) for receipt in batch.perhaps_lost()}
    pages = before.pages.keys() | batch.cursor.pages.keys()
    return bool(missing) and not (missing <= judged and pages <= seen and batch.cursor.returns == before.returns)


def _note_dead(store: Store, batches: Batches) -> Set[Key]:
    """Returns the keys of the letters that there may have been."""
    late = {_letter_key(receipt): (batch, receipt) for batch in batches for receipt in batch.perhaps_lost()}
    for letter in store.read([Keys(list(late), strong=True)])[0]:
        batch, receipt = late[key_of(letter)]
        if letter["epoch"] == receipt.epoch:
            batch.lost.add(receipt.offset)
    return late.keys()


def _note_paged(retries: Retries, batches: Batches) -> set[str]:
    """Returns the ids of the pages that were read, or need not be. The others were just brought back."""
    asked = []
    seen: set[str] = set()
    for batch in batches:
        last = max((receipt.offset for receipt in batch.perhaps_lost()), default=-1)
        near = {page.id: page for page in batch.cursor.pages.values() if page.low <= last}
        seen |= batch.cursor.pages.keys() - near.keys()
        asked.append((batch.cursor, list(near.values())))
    for batch, pages in zip(batches, retries.read(asked), strict=True):
        waiting = {offset for leases in pages.values() for lease in leases for offset in lease.offsets}
        batch.lost |= waiting & {receipt.offset for receipt in batch.perhaps_lost()}
        seen |= pages.keys()
    return seen


def _letter_key(receipt: Receipt) -> Key:
    return keys.dead(receipt.topic_id, receipt.group_id, receipt.queue, receipt.offset, receipt.consumer)
