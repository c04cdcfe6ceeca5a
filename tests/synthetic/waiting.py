"""Writes the delayed messages of one queue, the last decision about them, and dedup records."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tests.synthetic.log import Emit, Told, decision, payload
from tests.synthetic.packing import Entry, Messages
from tests.synthetic.parameters import DAY_MS, HOUR_MS, MINUTE_MS, QUIET_MS, START_MS, Defect, Queue, Shape

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
    _plant(shape, queue, told, emit)
    return {"waiting": WAITING - 1, "cancelled": 1, "due_ms": [due_ms for due_ms, _ in slots[:-1]]}


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


def _plant(shape: Shape, queue: Queue, told: Told, emit: Emit) -> None:
    topic_id, at_ms = shape.topic_id(queue.topic), shape.now_ms - QUIET_MS
    spare = Entry(bytes.fromhex(shape.name_of("spare", 16)), 1, at_ms, "json", 20, b'{"b":"planted"}')
    if shape.has(Defect.PROMOTED_STILL_WAITING, queue) and told.first_promoted:
        due_ms, entry_id = told.first_promoted
        emit(delayed(topic_id, queue, due_ms, replace(spare, id=entry_id, stored_at_ms=START_MS)), START_MS)
        _tell(told, Defect.PROMOTED_STILL_WAITING, topic_id, queue, entry=entry_id.hex(), due_ms=due_ms)
    if shape.has(Defect.ORPHAN_PAYLOAD, queue):
        emit(payload(topic_id, spare.id, 0, spare.data, START_MS), START_MS)
        _tell(told, Defect.ORPHAN_PAYLOAD, topic_id, queue, entry=spare.id.hex())
    if shape.has(Defect.UNKNOWN_KIND, queue):
        emit({"pk": f"novelty#{topic_id}", "sk": "one", "value": 1}, at_ms)
        _tell(told, Defect.UNKNOWN_KIND, topic_id, queue)
    if shape.has(Defect.UNKNOWN_CODEC, queue):
        emit(delayed(topic_id, queue, shape.now_ms + DAY_MS, replace(spare, codec="lzma")), at_ms)
        _tell(told, Defect.UNKNOWN_CODEC, topic_id, queue, entry=spare.id.hex())


def _tell(told: Told, defect: Defect, topic_id: str, queue: Queue, **more: Any) -> None:
    told.planted.append({"defect": defect.value, "topic_id": topic_id, "queue": queue.number, **more})


def planted_of(planted: Sequence[dict[str, Any]]) -> set[str]:
    return {place["defect"] for place in planted}
