"""The chain of decisions about a queue's delayed messages: reads, carries out and searches it. See `decision`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from chalicelib.core.catalogue.topic import Topic
from chalicelib.core.delays.decision import (
    NONE,
    PROMOTED_MAX,
    Decision,
    Slot,
    is_cancelled,
    mark_cancelled,
    slot_of,
    waiting_entry,
)
from chalicelib.core.log import Log
from chalicelib.core.log.segment import Entry
from chalicelib.core.log.writer import Tail
from chalicelib.core.store import Keys, Range, Read, Store
from chalicelib.core.table import keys
from chalicelib.core.table.writes import Item, Refused, key_of

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
