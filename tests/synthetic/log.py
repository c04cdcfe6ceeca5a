"""Writes the log of one queue in order: segments, payloads, and decisions about delayed messages."""

from __future__ import annotations

import bisect
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.synthetic.packing import INLINE_BYTES_MAX, Entry, Messages
from tests.synthetic.parameters import (
    DAY_MS,
    INDEX_KEYS_FROM,
    RETENTION_MS,
    START_MS,
    STEP_MS,
    Queue,
    Shape,
)

Emit = Callable[[dict[str, Any], int], None]
"""Receives an item, and when it was written, in ms since the epoch."""

SEGMENT_BYTES = 700
PROMOTED_EVERY = 150
"""One entry in this many delivers messages that have waited."""
PROMOTED = 3
_LATE_MS = 2_000
_DECISION_BYTES = 1_024 - 150 - 14 * PROMOTED


@dataclass
class Told:
    """The statistics of the finished log. `bases`: for requested offsets, the segment that they lie in."""

    promoted: int = 0
    lateness_ms_max: int = 0
    decisions: int = 0
    bases: dict[int, int] = field(default_factory=dict)


class Log:
    def __init__(self, shape: Shape, queue: Queue, emit: Emit, asked: Sequence[int]) -> None:
        self._shape, self._queue, self._emit = shape, queue, emit
        self._chance = random.Random(f"{shape.seed} {queue.topic} {queue.number}")
        self.messages = Messages(self._chance, queue.number, shape.queues)
        self._quota = shape.quota(queue)
        self._topic_id = shape.topic_id(queue.topic)
        self._asked = sorted(asked)
        self._weights = [1 / size for size in shape.entries]
        self._base = self._filled = 0
        self._held: list[Entry] = []
        self.told = Told()

    def write(self) -> Told:
        offset = 0
        for entry in self._entries():
            if self._filled >= SEGMENT_BYTES:
                self._seal(offset)
            self._held.append(entry)
            self._filled += entry.size
            offset += entry.count
        self.told.bases[offset] = self._base
        self._seal(offset)
        return self.told

    def _entries(self) -> Iterator[Entry]:
        offset = number = 0
        while offset < self._quota:
            number += 1
            entry = self._next(offset, number)
            yield entry
            offset += entry.count

    def _next(self, offset: int, number: int) -> Entry:
        stored_at_ms = START_MS + offset * STEP_MS
        if number % PROMOTED_EVERY == 0 and self._quota - offset >= PROMOTED:
            return self._promoted(offset, stored_at_ms)
        size = self._chance.choices(self._shape.entries, self._weights)[0]
        made = self.messages.entry(offset, [None] * min(size, self._quota - offset), stored_at_ms).placed()
        return self._with_payload(made, offset)

    def _promoted(self, offset: int, stored_at_ms: int) -> Entry:
        """Delivers messages that waited: the next decision names them, and has the same entry."""
        slots = sorted(
            (stored_at_ms - self._chance.randrange(_LATE_MS), self.messages.entry_id()) for _ in range(PROMOTED)
        )
        ids = [f"{entry_id.hex()}{self._queue.number:02x}t{due_ms:x}" for due_ms, entry_id in slots]
        made = self.messages.entry(offset, ids, stored_at_ms).placed(min(INLINE_BYTES_MAX, _DECISION_BYTES))
        self.told.promoted += PROMOTED
        self.told.decisions += 1
        late = [stored_at_ms - due_ms for due_ms, _ in slots]
        self.told.lateness_ms_max = max(self.told.lateness_ms_max, *late)
        about = {"e": made.as_value(), "b": offset if self._filled >= SEGMENT_BYTES else self._base}
        self._emit(decision(self._shape, self._queue, self.told.decisions, stored_at_ms, slots, about), stored_at_ms)
        return self._with_payload(made, offset)

    def _with_payload(self, made: Entry, offset: int) -> Entry:
        if self._queue.topic == 0 and offset >= self._quota * INDEX_KEYS_FROM:
            self._index(made, offset)
        for piece, data in enumerate(made.payloads()):
            self._emit(payload(self._topic_id, made.id, piece, data, made.stored_at_ms), made.stored_at_ms)
        return made

    def _index(self, made: Entry, offset: int) -> None:
        """Writes an index item for the first message only, which is enough to have such items."""
        place = f"{made.stored_at_ms:015d}#{offset:015d}#{made.id.hex()}"
        key = {"pk": f"index#{self._topic_id}#{made.id.hex() * 2}", "sk": place}
        item = {**key, "queue": self._queue.number, "base": self._base, "ttl": ttl(made.stored_at_ms)}
        self._emit(item, made.stored_at_ms)

    def _seal(self, end: int) -> None:
        """Writes the segment, and begins the one after it."""
        for asked in self._asked[bisect.bisect_left(self._asked, self._base) : bisect.bisect_left(self._asked, end)]:
            self.told.bases[asked] = self._base
        held, base, filled = self._held, self._base, self._filled
        self._held, self._base, self._filled = [], end, 0
        if held:
            self._write(base, end, filled, held)

    def _write(self, base: int, end: int, filled: int, entries: list[Entry]) -> None:
        key = {"pk": f"log#{self._topic_id}#{self._queue.number}", "sk": f"{base:015d}"}
        written_ms = entries[-1].stored_at_ms
        self._emit({**key, "end": end, "bytes": filled, "entries": [entry.as_value() for entry in entries]}, written_ms)


def ttl(stored_at_ms: int) -> int:
    """Seconds since the epoch: a day after what was stored then has expired."""
    return (stored_at_ms + RETENTION_MS + DAY_MS) // 1_000


def payload(topic_id: str, entry_id: bytes, piece: int, data: bytes, stored_at_ms: int) -> dict[str, Any]:
    key = {"pk": f"payload#{topic_id}#{entry_id.hex()}", "sk": f"{piece:02d}"}
    return {**key, "data": data, "ttl": ttl(stored_at_ms)}


def decision(
    shape: Shape, queue: Queue, number: int, at_ms: int, slots: Sequence[tuple[int, bytes]], about: dict[str, Any]
) -> dict[str, Any]:
    """`about`: the entry that delivers the messages in these slots, and the segment to try first; empty: they are
    cancelled."""
    key = {"pk": f"promotions#{shape.topic_id(queue.topic)}#{queue.number}", "sk": f"{number:015d}"}
    packed = b"".join(due_ms.to_bytes(6, "big") + entry_id for due_ms, entry_id in slots)
    by = bytes.fromhex(shape.name_of(f"decision {queue} {number}", 16))
    return {**key, "at": at_ms, "by": by, "s": packed, **about}
