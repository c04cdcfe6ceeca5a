"""Delayed messages, and the decisions that deliver or cancel them.

Each delayed message is an item of its own, an entry of one message, sorted by due time. A chain of items per queue
decides about them. A caller writes number n + 1 only after it has read number n as the newest, *then* read the waiting
messages, and carried out number n. The decisions of a queue are therefore ordered, and if two name the same message,
only one can be written. The newest decision is never removed. `docs/table.md` lists the attributes.

Two instants of a decision never decrease along the chain, whatever the clocks of the callers say: `at_ms`, and
`reached_ms`, the latest due time delivered so far. A message is *late* if both instants had long passed its due time at
its decision: it was stored late, or the clock of an earlier caller was ahead. Late messages get an item that names
their decision. All others are found by these two instants."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from chalicelib.core.base.limits import DAY_MS, KIB, SECOND_MS, STORED_LATE_MS_MAX
from chalicelib.core.catalogue.topic import Topic
from chalicelib.core.log.segment import Entry
from chalicelib.core.table import keys
from chalicelib.core.table.writes import Absent, Effect, Exists, Item, Key, Set, Write

PROMOTED_MAX = 32
"""Due messages that become one entry of the log: their places take 448 bytes, so that their decision, with a pointer,
fits one kilobyte."""
PROMOTED_BYTES_MAX = 256 * KIB
"""The total size of such messages. A larger message is promoted alone, without writing its payload again."""
DUE_KEPT_MS = 90 * DAY_MS
"""How long after its due time a delayed payload is kept: storing it this long costs as much as writing its time to live
again."""

_DUE_BYTES = 6
_SLOT_BYTES = _DUE_BYTES + 8
_HEAD_BYTES = 150
"""Bytes of a decision besides its entry and slots: its keys, attribute names, times and counts."""


class Slot(NamedTuple):
    """The place of a delayed message; slots sort in this order."""

    due_ms: int
    entry_id: bytes

    def key(self, topic_id: str, queue: int) -> Key:
        return keys.delayed(topic_id, queue, self.due_ms, self.entry_id)


def slot_of(item: Item) -> Slot:
    return Slot(*keys.due_and_entry(item["sk"]))


def waiting_entry(item: Item) -> Entry:
    """The entry of a delayed message."""
    return Entry.of(item["entry"])


def is_cancelled(item: Item) -> bool:
    return "x" in item


def wait(topic_id: str, queue: int, due_ms: int, entry: Entry) -> Write:
    """Stores an entry of one message until it is due. Its key is new, so an existing item is this entry. A repeat
    leaves it unchanged, including the mark of a cancel."""
    return Write(keys.delayed(topic_id, queue, due_ms, entry.id), (), (Set(("entry",), entry.as_value()),))


def mark_cancelled(topic_id: str, queue: int, slot: Slot) -> Write:
    """Keeps the item until it is due; otherwise a late repeat of the write that stored it would restore it."""
    return Write(slot.key(topic_id, queue), (Exists(("entry",)),), (Set(("x",), True),))


@dataclass(frozen=True, slots=True)
class Decision:
    """`number`: its place in the chain, from 1; 0 stands for none. `entry` delivers the messages in `slots`; without an
    entry they are cancelled. `reached_ms`: None in decisions of earlier releases. `late`: how many of its first
    messages are late."""

    number: int
    at_ms: int
    by: bytes
    slots: tuple[Slot, ...]
    entry: Entry | None = None
    base: int = 0
    reached_ms: int | None = None
    late: int = 0

    @classmethod
    def of(cls, item: Item) -> Decision:
        entry = Entry.of(item["e"]) if "e" in item else None
        number = keys.number_of(item["sk"])
        head = number, item["at"], item["by"], tuple(_slots(item["s"]))
        return cls(*head, entry, item.get("b", 0), item.get("r"), item.get("l", 0))

    @property
    def last(self) -> Slot | None:
        """The last slot that it delivers."""
        return max(self.slots) if self.entry else None

    @property
    def surely_reached_ms(self) -> int:
        """Up to this decision, no message due later than this was delivered."""
        return self.at_ms if self.reached_ms is None else self.reached_ms

    def delivering(self, now: int, slots: Sequence[Slot], entry: Entry, base: int) -> Decision:
        """The next decision: to deliver these messages, in due order."""
        last_ms = slots[-1].due_ms
        at_ms, reached_ms = max(now, self.at_ms, last_ms), max(self.surely_reached_ms, last_ms)
        late = sum(self._is_past(slot.due_ms, self.surely_reached_ms) for slot in slots)
        return Decision(self.number + 1, at_ms, entry.id, tuple(slots), entry, base, reached_ms, late)

    def cancelling(self, now: int, slot: Slot, by: bytes) -> Decision:
        """The next decision: to cancel this message."""
        at_ms = max(now, self.at_ms)
        return Decision(self.number + 1, at_ms, by, (slot,), reached_ms=self.surely_reached_ms)

    def is_last_for(self, due_ms: int) -> bool:
        """Whether later decisions deliver only late messages among those due then."""
        last_ms = self.last.due_ms if self.last else 0
        return self._is_past(due_ms, last_ms if self.reached_ms is None else self.reached_ms)

    def _is_past(self, due_ms: int, reached_ms: int) -> bool:
        return due_ms < reached_ms and due_ms + STORED_LATE_MS_MAX < self.at_ms

    def write(self, topic_id: str, queue: int) -> Write:
        """If the write is rejected, another caller has decided meanwhile. The returned item may be another caller's
        identical decision."""
        effects: list[Effect] = [
            Set(("at",), self.at_ms),
            Set(("by",), self.by),
            Set(("s",), b"".join(_packed(slot) for slot in self.slots)),
        ]
        if self.reached_ms is not None:
            effects.append(Set(("r",), self.reached_ms))
        if self.late:
            effects.append(Set(("l",), self.late))
        if self.entry:
            effects += [Set(("e",), self.entry.as_value()), Set(("b",), self.base)]
        return Write(
            keys.decision(topic_id, queue, self.number),
            (Absent(("at",)),),
            tuple(effects),
            landed=lambda before: before["by"] == self.by,
        )

    def late_items(self, topic: Topic, queue: int) -> list[Item]:
        """The items that locate its late messages, kept as long as the decision itself."""
        places = [keys.late(topic.id, queue, *slot) for slot in self.slots[: self.late]]
        return [{**place._asdict(), "n": self.number, "ttl": topic.ttl(self.at_ms)} for place in places]


NONE = Decision(0, 0, b"", (), reached_ms=0)


def inline_bytes_max(count: int) -> int:
    """The largest entry for this many messages that the decision holds and still fits a kilobyte. A larger entry would
    cost as much as a payload item, and again in the log."""
    return KIB - _HEAD_BYTES - count * _SLOT_BYTES


def together(waiting: Sequence[Item]) -> list[Item]:
    """The first of these messages, as many as one entry of the log delivers."""
    chosen: list[Item] = []
    weight = 0
    for item in waiting[:PROMOTED_MAX]:
        weight += waiting_entry(item).wire_bytes
        if chosen and weight > PROMOTED_BYTES_MAX:
            break
        chosen.append(item)
    return chosen


def waiting_ttl(due_ms: int) -> int:
    """When the payload of a delayed message expires, in seconds since the epoch."""
    return (due_ms + DUE_KEPT_MS) // SECOND_MS


def _packed(slot: Slot) -> bytes:
    return slot.due_ms.to_bytes(_DUE_BYTES, "big") + slot.entry_id


def _slots(packed: bytes) -> Iterable[Slot]:
    for at in range(0, len(packed), _SLOT_BYTES):
        slot = packed[at : at + _SLOT_BYTES]
        yield Slot(int.from_bytes(slot[:_DUE_BYTES], "big"), slot[_DUE_BYTES:])
