"""Writes the log of one queue in order: segments, payloads, and decisions about delayed messages."""

from __future__ import annotations

import bisect
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tests.synthetic.packing import INLINE_BYTES_MAX, Entry, Messages
from tests.synthetic.parameters import (
    DAY_MS,
    INDEX_KEYS_FROM,
    RETENTION_MS,
    START_MS,
    STEP_MS,
    Defect,
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

    segments: int = 0
    entries: int = 0
    payloads: int = 0
    promoted: int = 0
    lateness_ms_max: int = 0
    lateness_ms_sum: int = 0
    decisions: int = 0
    indexed: int = 0
    bases: dict[int, int] = field(default_factory=dict)
    planted: list[dict[str, Any]] = field(default_factory=list)
    first_promoted: tuple[int, bytes] | None = None


class Log:
    def __init__(self, shape: Shape, queue: Queue, emit: Emit, asked: Sequence[int]) -> None:
        self._shape, self._queue, self._emit = shape, queue, emit
        self._chance = random.Random(f"{shape.seed} {queue.topic} {queue.number}")
        self.messages = Messages(self._chance, queue.number, shape.queues)
        self._quota, self._began = shape.quota(queue), shape.began(queue)
        self._topic_id = shape.topic_id(queue.topic)
        self._asked = sorted(asked)
        self._weights = [1 / size for size in shape.entries]
        self._base = self._filled = 0
        self._held: list[Entry] = []
        self._left = {defect for defect in shape.defects if shape.has(defect, queue)}
        self._delivering = b""
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
        duplicate: Entry | None = None
        while offset < self._quota:
            number += 1
            if duplicate and offset > self._quota * 3 // 4 and duplicate.count <= self._quota - offset:
                entry, duplicate = duplicate, None
                self._plant(Defect.DUPLICATE_ENTRY, offset, entry=entry.id.hex())
            else:
                entry = self._next(offset, number)
                if Defect.DUPLICATE_ENTRY in self._left and offset > self._quota // 4:
                    duplicate = duplicate or entry
            yield entry
            offset += entry.count

    def _next(self, offset: int, number: int) -> Entry:
        stored_at_ms = START_MS + offset * STEP_MS
        if number % PROMOTED_EVERY == 0 and self._quota - offset >= PROMOTED:
            return self._promoted(offset, stored_at_ms)
        size = self._chance.choices(self._shape.entries, self._weights)[0]
        made = self.messages.entry(offset, [None] * min(size, self._quota - offset), stored_at_ms).placed()
        if made.pieces or not self._due(Defect.UNDECODABLE, offset):
            return self._with_payload(made, offset)
        self._plant(Defect.UNDECODABLE, offset, entry=made.id.hex())
        return replace(made, codec="zstd", data=b"\x28\xb5\x2f\xfd" + bytes(16))

    def _promoted(self, offset: int, stored_at_ms: int) -> Entry:
        """Delivers messages that waited: the next decision names them, and has the same entry."""
        slots = sorted(
            (stored_at_ms - self._chance.randrange(_LATE_MS), self.messages.entry_id()) for _ in range(PROMOTED)
        )
        ids = [f"{entry_id.hex()}{self._queue.number:02x}t{due_ms:x}" for due_ms, entry_id in slots]
        made = self.messages.entry(offset, ids, stored_at_ms).placed(min(INLINE_BYTES_MAX, _DECISION_BYTES))
        self._delivering = made.id
        self.told.promoted += PROMOTED
        self.told.decisions += 1
        late = [stored_at_ms - due_ms for due_ms, _ in slots]
        self.told.lateness_ms_max = max(self.told.lateness_ms_max, *late)
        self.told.lateness_ms_sum += sum(late)
        self.told.first_promoted = self.told.first_promoted or slots[0]
        if offset >= self._began:
            is_sealed = self._filled >= SEGMENT_BYTES
            about = {"e": made.as_value(), "b": offset if is_sealed else self._base}
            self._emit(
                decision(self._shape, self._queue, self.told.decisions, stored_at_ms, slots, about), stored_at_ms
            )
        return self._with_payload(made, offset)

    def _with_payload(self, made: Entry, offset: int) -> Entry:
        self.told.entries += 1
        if offset < self._began:
            return made
        if self._queue.topic == 0 and offset >= self._quota * INDEX_KEYS_FROM:
            self._index(made, offset)
        for piece, data in enumerate(made.payloads()):
            if self._due(Defect.MISSING_PAYLOAD, offset):
                self._plant(Defect.MISSING_PAYLOAD, offset, entry=made.id.hex())
                continue
            self.told.payloads += 1
            self._emit(payload(self._topic_id, made.id, piece, data, made.stored_at_ms), made.stored_at_ms)
        return made

    def _index(self, made: Entry, offset: int) -> None:
        """Writes an index item for the first message only, which is enough to have such items."""
        place = f"{made.stored_at_ms:015d}#{offset:015d}#{made.id.hex()}"
        key = {"pk": f"index#{self._topic_id}#{made.id.hex() * 2}", "sk": place}
        self.told.indexed += 1
        self._emit(
            {**key, "queue": self._queue.number, "base": self._base, "ttl": ttl(made.stored_at_ms)}, made.stored_at_ms
        )

    def _seal(self, end: int) -> None:
        """Writes the segment, and begins the one after it."""
        for asked in self._asked[bisect.bisect_left(self._asked, self._base) : bisect.bisect_left(self._asked, end)]:
            self.told.bases[asked] = self._base
        held, base, filled = self._held, self._base, self._filled
        self._held, self._base, self._filled = [], end, 0
        if end <= self._began or not held:
            return
        is_plain = not any(entry.pieces or entry.id == self._delivering for entry in held)
        if is_plain and self._due(Defect.HOLE, base):
            self._plant(Defect.HOLE, base, end=end)
            return
        if is_plain and len(held) > 1 and self._due(Defect.WRONG_END, base):
            self._plant(Defect.WRONG_END, base, end=end, counted=end - held[0].count)
            held = held[1:]
        self._write(base, end, filled, held)
        if self._due(Defect.OVERLAP, base):
            self._plant(Defect.OVERLAP, end - 1, end=end)
            self._write(end - 1, end, filled, [self.messages.entry(end - 1, [None], held[-1].stored_at_ms)])

    def _write(self, base: int, end: int, filled: int, entries: list[Entry]) -> None:
        self.told.segments += 1
        key = {"pk": f"log#{self._topic_id}#{self._queue.number}", "sk": f"{base:015d}"}
        written_ms = entries[-1].stored_at_ms if entries else START_MS
        self._emit({**key, "end": end, "bytes": filled, "entries": [entry.as_value() for entry in entries]}, written_ms)

    def _due(self, defect: Defect, offset: int) -> bool:
        """Whether to plant the defect here: it is requested, and this is far enough into the export's part of the
        log."""
        return defect in self._left and offset >= self._began + (self._quota - self._began) // 3

    def _plant(self, defect: Defect, offset: int, **more: Any) -> None:
        self._left.remove(defect)
        place = {"topic_id": self._topic_id, "queue": self._queue.number, "offset": offset}
        self.told.planted.append({"defect": defect.value, **place, **more})


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
