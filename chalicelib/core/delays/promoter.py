"""The chain of decisions about a queue's delayed messages: reads, carries out and searches it. See `decision`.

The promoter promotes due messages: writes a decision and appends them to the log."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import takewhile

from chalicelib.core.base import deadline
from chalicelib.core.base.errors import StoreUnavailable
from chalicelib.core.base.message import ENTRY_ID_BYTES, LOST
from chalicelib.core.catalogue.catalogue import Env
from chalicelib.core.catalogue.topic import Topic
from chalicelib.core.delays.decision import (
    NONE,
    PROMOTED_MAX,
    Decision,
    Slot,
    inline_bytes_max,
    is_cancelled,
    mark_cancelled,
    slot_of,
    together,
    waiting_entry,
    waiting_ttl,
)
from chalicelib.core.log import Log
from chalicelib.core.log.segment import Entry
from chalicelib.core.log.writer import Tail
from chalicelib.core.store import Keys, Range, Read, Store
from chalicelib.core.table import keys
from chalicelib.core.table.writes import Item, Refused, key_of

# -- the decisions of a queue -----------------------------------------------------------------------------------------

_PAGE = 32


class DecisionChain:
    def __init__(self, store: Store, log: Log) -> None:
        self._store = store
        self._writer, self._payloads = log.writer, log.payloads

    def newest(self, topic: Topic, queues: Sequence[int]) -> list[Decision]:
        """The newest decision of each of these queues. One round trip, one read unit per queue."""
        ends = [
            Range(keys.decisions(topic.id, queue), keys.FIRST, keys.LAST, limit=1, descending=True, strong=True)
            for queue in queues
        ]
        return [Decision.of(items[0]) if items else NONE for items in self._store.read(ends)]

    def complete(self, topic: Topic, queue: int, until_ms: int) -> tuple[Decision, list[Item]]:
        """The newest decision, carried out completely, and the first messages due by `until_ms`, read after it."""
        newest = self.newest(topic, [queue])[0]
        waiting, named = self._store.read(self._reads(topic, queue, newest, until_ms))
        left = remaining(newest, [*waiting, *named])
        if newest.last and len(waiting) == _read_max(newest) and slot_of(waiting[-1]) < newest.last:
            listed = [slot.key(topic.id, queue) for slot in newest.slots]  # others that were due came first
            left = self._store.read([Keys(listed, strong=True)])[0]
        if left:
            self.carry_out(topic, queue, newest, left)
        rest = [item for item in waiting if slot_of(item) not in newest.slots or is_cancelled(item)]
        return newest, [item for item in rest if slot_of(item).due_ms <= until_ms]

    def carry_out(
        self, topic: Topic, queue: int, decision: Decision, waiting: Sequence[Item], tail: Tail | None = None
    ) -> None:
        """Carries a decision out; `waiting` are its remaining items. A repeat changes nothing. `tail`: where to try the
        decision's entry first, if the log was seen to end there."""
        if decision.entry is None:
            self._cancel(topic, queue, decision, waiting)
            return
        if tail:
            self._writer.append_at(topic, queue, decision.entry, tail)
        else:
            self._writer.append_from(topic, queue, decision.entry, decision.base)
        if decision.late:
            self._store.put_all(decision.late_items(topic, queue))
        self.remove(topic, waiting, decision.entry)

    def find(self, topic: Topic, queue: int, slot: Slot) -> tuple[Decision, Entry] | None:
        """The decision that delivers the message of this slot, with its entry. See `decision` for their order."""
        newest = self.newest(topic, [queue])[0]
        if slot in newest.slots:
            return (newest, newest.entry) if newest.entry else None
        for decision in self._from(topic, queue, self._first_reaching(topic, queue, slot.due_ms, newest.number)):
            if slot in decision.slots and decision.entry:
                return decision, decision.entry
            if decision.is_last_for(slot.due_ms):
                break
        return self._find_late(topic, queue, slot)

    def remove(self, topic: Topic, waiting: Sequence[Item], delivered: Entry | None = None) -> None:
        """Removes items that are no longer needed, with their payloads, except the payload of an entry that is
        delivered unchanged."""
        entries = [entry for entry in map(waiting_entry, waiting) if delivered is None or entry.id != delivered.id]
        self._payloads.remove(topic.id, entries, [key_of(item) for item in waiting])

    def _cancel(self, topic: Topic, queue: int, decision: Decision, waiting: Sequence[Item]) -> None:
        for write in [mark_cancelled(topic.id, queue, slot) for slot in decision.slots]:
            try:
                self._store.write(write)
            except Refused:
                pass  # it became due since, and is removed
        self._payloads.remove(topic.id, [waiting_entry(item) for item in waiting])

    def _reads(self, topic: Topic, queue: int, newest: Decision, until_ms: int) -> list[Read]:
        """The reads of the messages due now, or until the latest due time of the newest decision if its clock was
        ahead."""
        last = max(until_ms, newest.last.due_ms if newest.last else 0)
        due = Range(
            keys.delays(topic.id, queue), keys.FIRST, keys.due_until(last), limit=_read_max(newest), strong=True
        )
        cancelled = [] if newest.entry else [slot.key(topic.id, queue) for slot in newest.slots]
        return [due, Keys(cancelled, strong=True)]

    def _find_late(self, topic: Topic, queue: int, slot: Slot) -> tuple[Decision, Entry] | None:
        late = self._store.read([Keys([keys.late(topic.id, queue, *slot)], strong=True)])[0]
        decision = self._numbered(topic, queue, late[0]["n"]) if late else None
        return (decision, decision.entry) if decision and decision.entry else None

    def _numbered(self, topic: Topic, queue: int, number: int) -> Decision | None:
        items = self._store.read([Keys([keys.decision(topic.id, queue, number)], strong=True)])[0]
        return Decision.of(items[0]) if items else None

    def _first_reaching(self, topic: Topic, queue: int, due_ms: int, count: int) -> int:
        """The number of the first of these decisions that may deliver messages due then, or of the last."""
        low, high = 1, count
        while low < high:
            middle = (low + high) // 2
            decision = self._numbered(topic, queue, middle)
            if decision and decision.surely_reached_ms >= due_ms:
                high = middle
            else:
                low = middle + 1
        return low

    def _from(self, topic: Topic, queue: int, number: int) -> Iterator[Decision]:
        pk = keys.decisions(topic.id, queue)
        while True:
            low = keys.decision(topic.id, queue, number).sk
            items = self._store.read([Range(pk, low, keys.LAST, _PAGE, strong=True)])[0]
            yield from map(Decision.of, items)
            if len(items) < _PAGE:
                return
            number = keys.number_of(items[-1]["sk"]) + 1


def _read_max(newest: Decision) -> int:
    """Enough for the messages of the newest decision, which may still be there, and for those of the next."""
    return PROMOTED_MAX + (len(newest.slots) if newest.entry else 0)


def remaining(newest: Decision, items: Iterable[Item]) -> list[Item]:
    """The remaining work of a decision: items to remove after their delivery, or to mark as cancelled."""
    named = [item for item in items if slot_of(item) in newest.slots]
    return named if newest.entry else [item for item in named if not is_cancelled(item)]


# -- promotion --------------------------------------------------------------------------------------------------------


def first_due(glanced: Sequence[Sequence[Item]]) -> list[int | None]:
    """For each queue, when its first delayed message is due, or None without one."""
    return [slot_of(items[0]).due_ms if items else None for items in glanced]


class Promoter:
    def __init__(self, env: Env, log: Log, decisions: DecisionChain) -> None:
        self._store, self._runtime, self._catalogue = env.store, env.runtime, env.catalogue
        self._writer, self._payloads = log.writer, log.payloads
        self._decisions = decisions

    def glances(self, topic: Topic, queues: Iterable[int]) -> list[Read]:
        """The reads for `first_due`, of the first delayed message of these queues; none if the topic never had one."""
        if not topic.delays:
            return []
        partitions = [keys.delays(topic.id, queue) for queue in queues]
        return [Range(partition, keys.FIRST, keys.LAST, limit=1) for partition in partitions]

    def promote(self, topic: Topic, queue: int, due_ms: int | None = None) -> int:
        """Promotes the first due messages of a queue, as many as one entry holds. Returns how many; 0: none is due now,
        or at `due_ms` if given. Raises TopicNotFound, StoreUnavailable."""
        topic = self._catalogue.refreshed(topic)  # a long poll may have read it before its retention was raised
        until_ms = deadline.give_up_at_ms(self._runtime.uptime())
        while self._runtime.uptime() <= until_ms:
            now = self._runtime.now()
            newest, due = self._decisions.complete(topic, queue, now if due_ms is None else due_ms)
            if cancelled := [item for item in due if is_cancelled(item)]:
                self._decisions.remove(topic, cancelled)
                continue
            if not due:
                return 0
            if count := self._decide(topic, queue, newest, together(due), now):
                return count
        raise StoreUnavailable("too many callers promote messages of one queue")

    def drop_cancelled(self, topic: Topic, queue: int, due_ms: int) -> bool:
        """Removes cancelled messages that are due in a queue that has left. Returns whether other messages are due
        there."""
        _, due = self._decisions.complete(topic, queue, due_ms)
        cancelled = [item for item in due if is_cancelled(item)]
        self._decisions.remove(topic, cancelled)
        return len(cancelled) < len(due)

    def _decide(self, topic: Topic, queue: int, newest: Decision, waiting: Sequence[Item], now: int) -> int:
        """Returns the number of messages; 0: another caller has decided meanwhile."""
        waiting, entry = self._entry(topic, waiting, now)
        if topic.index_keys:
            self._writer.index(topic, [(queue, entry, self._payloads.messages(topic.id, [entry])[entry.id])])
        tail = self._writer.tails.tail(topic, topic.logs[queue])
        decision = newest.delivering(now, [slot_of(item) for item in waiting], entry, tail.base)
        try:
            made = Decision.of(self._store.write(decision.write(topic.id, queue)))
        except Refused:
            return 0
        self._decisions.carry_out(topic, queue, made, waiting, tail if made == decision else None)
        return len(made.slots)

    def _entry(self, topic: Topic, waiting: Sequence[Item], now: int) -> tuple[Sequence[Item], Entry]:
        """The first of these messages, and the entry that delivers them. A message with a payload is delivered
        unchanged, so that the payload is not written again, unless it would expire too early. So is a message whose
        payload another caller may have removed at delivery."""
        entries = [waiting_entry(item) for item in waiting]
        as_it_is = waiting[:1], replace(entries[0], stored_at_ms=now)
        is_kept = waiting_ttl(slot_of(waiting[0]).due_ms) >= topic.ttl(now)
        if len(entries) == 1 and entries[0].data is None and is_kept:
            return as_it_is
        by_id = self._payloads.messages(topic.id, entries)
        readable = [*takewhile(lambda entry: LOST not in by_id[entry.id], entries)]
        if not readable:
            return as_it_is
        messages = [message for entry in readable for message in by_id[entry.id]]
        made = Entry.packed(self._runtime.entropy(ENTRY_ID_BYTES), messages, now)
        [made] = self._payloads.spill(topic.id, [(made, inline_bytes_max(len(readable)))], topic.ttl(now))
        return waiting[: len(readable)], made
