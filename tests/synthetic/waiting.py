"""Writes the delayed messages of one queue, the last decision about them, and dedup records."""

from __future__ import annotations

import hashlib
from typing import Any

from tests.synthetic.log import Emit, Told, decision, payload
from tests.synthetic.packing import Entry, Messages
from tests.synthetic.parameters import DAY_MS, HOUR_MS, MINUTE_MS, QUIET_MS, Queue, Shape

WAITING = 5
"""Messages that wait in each queue, the last of them cancelled."""
_DEDUP_MS = 5 * MINUTE_MS


def write(shape: Shape, queue: Queue, messages: Messages, told: Told, emit: Emit) -> dict[str, Any]:
    """Writes the waiting messages of a queue. Returns their expected state."""
    stored_at_ms = shape.now_ms - QUIET_MS
    topic_id = shape.topic_id(queue.topic)
    slots = [(shape.now_ms + at * HOUR_MS, messages.entry_id()) for at in range(1, WAITING + 1)]
    for at, (due_ms, entry_id) in enumerate(slots):
        text = b'{"b":"' + b"later " * (300 if at == 0 else 5) + b'"}'
        made = Entry(entry_id, 1, stored_at_ms, "json", len(text) + 4, text).placed()
        for piece, data in enumerate(made.payloads()):
            emit(payload(topic_id, entry_id, piece, data, due_ms), stored_at_ms)
        emit(delayed(topic_id, queue, due_ms, made, is_cancelled=at == WAITING - 1), stored_at_ms)
    told.decisions += 1
    emit(decision(shape, queue, told.decisions, stored_at_ms, slots[-1:], {}), stored_at_ms)
    if queue.number == 0:
        _dedup(shape, queue, slots[0], emit)
    return {"waiting": WAITING - 1, "due_ms": [due_ms for due_ms, _ in slots[:-1]]}


def delayed(topic_id: str, queue: Queue, due_ms: int, made: Entry, is_cancelled: bool = False) -> dict[str, Any]:
    key = {"pk": f"delay#{topic_id}#{queue.number}", "sk": f"{due_ms:015d}#{made.id.hex()}"}
    mark = {"x": True} if is_cancelled else {}
    return {**key, "entry": made.as_value(), **mark}


def _dedup(shape: Shape, queue: Queue, slot: tuple[int, bytes], emit: Emit) -> None:
    """The record of a message that waits. Its item has the same entry, as it was packed."""
    due_ms, _ = slot
    at_ms = shape.now_ms - QUIET_MS
    made = Entry(bytes.fromhex(shape.name_of(f"dedup {queue}", 16)), 1, at_ms, "json", 20, b'{"b":"once only"}')
    hashed = hashlib.blake2b(b"once", digest_size=16).hexdigest()
    key = {"pk": f"dedup#{shape.topic_id(queue.topic)}#{hashed}", "sk": "record"}
    place = {"index": 0, "queue": queue.number, "base": 0, "create": False, "due": due_ms}
    emit({**key, "at": at_ms, "ttl": (at_ms + _DEDUP_MS + DAY_MS) // 1_000, "entry": made.as_value(), **place}, at_ms)
    emit(delayed(shape.topic_id(queue.topic), queue, due_ms, made), at_ms)
