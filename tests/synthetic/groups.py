"""The groups of a topic: their positions in each queue, and their messages in flight."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import orjson

from tests.synthetic.log import Emit, Told
from tests.synthetic.parameters import HOUR_MS, QUIET_MS, RETENTION_MS, START_MS, Queue, Shape

REASONS = ("timeout", "bad address", "card declined")
LETTERS_MAX = 20
_LETTERS_EVERY = 997
_BUSY_FROM = 64
"""A group that has taken so many messages of a queue has some of them in flight."""
_BACKOFF = orjson.dumps([10_000, 30_000, 60_000]).decode()
_CONSUMERS = ("screen-1", "screen-2")


class Group(NamedTuple):
    """`share`: the part of each queue that it has taken."""

    name: str
    share: float
    ordered: bool = False
    consumers: tuple[str, ...] = ("",)


GROUPS = (
    Group("billing", 0.9),
    Group("archive", 1.0),
    Group("ledger", 0.5, ordered=True),
    Group("screens", 0.95, consumers=_CONSUMERS),
)


@dataclass
class Standing:
    """The content of a cursor. Counts are of messages: `in_flight` are leased, `due` are ready for another delivery,
    `retrying` wait for one, in the cursor or in a page."""

    next: int
    leases: dict[str, list[Any]] = field(default_factory=dict)
    pages: dict[str, list[int]] = field(default_factory=dict)
    letters: list[int] = field(default_factory=list)
    in_flight: int = 0
    due: int = 0
    retrying: int = 0
    committed: int = 0


def nexts(shape: Shape, queue: Queue) -> list[int]:
    """The position of each group in this queue."""
    return [int(shape.quota(queue) * group.share) for group in GROUPS]


def settings(shape: Shape, topic: int) -> Iterator[dict[str, Any]]:
    """The items of a topic and of its groups that belong to no queue."""
    topic_id = shape.topic_id(topic)
    about = {"queues": shape.queues, "retention_ms": RETENTION_MS, "index_keys": topic == 0}
    made = {"created_at_ms": START_MS - HOUR_MS, "version": 0}
    name = shape.topic_name(topic)
    yield {"pk": f"topic#{name}", "sk": "settings", "id": topic_id, **about, **made, "delays": True}
    yield {"pk": "topics", "sk": name, "listed": topic_id}
    for group in GROUPS:
        mode = "broadcast" if group.consumers[0] else "clustering"
        counts = {"invisible_ms": 30_000, "max_attempts": 16, "max_in_flight": 1_000}
        flags = {"paused": False, "ordered": group.ordered, "mode": mode, "start": "earliest"}
        key = {"pk": f"group#{topic_id}#{group.name}", "sk": "settings"}
        starts = {"starts": [0] * shape.queues, "backoff_ms": _BACKOFF}
        yield {**key, "id": group_id(shape, topic, group), **starts, **counts, **flags, **made}
        yield {"pk": f"groups#{topic_id}", "sk": group.name, "listed": group_id(shape, topic, group)}
    billing = GROUPS[0]
    rate = {"pk": f"group#{topic_id}#{billing.name}", "sk": f"rate#{group_id(shape, topic, billing)}"}
    yield {**rate, "w": shape.now_ms - QUIET_MS, "n": 3}


def group_id(shape: Shape, topic: int, group: Group) -> str:
    return shape.name_of(f"group {topic} {group.name}")


def write(shape: Shape, queue: Queue, told: Told, emit: Emit) -> list[dict[str, Any]]:
    """The cursors in this queue, retry pages, dead letters. Returns the expected state of each cursor."""
    known = []
    for group, next_ in zip(GROUPS, nexts(shape, queue), strict=True):
        for consumer in group.consumers:
            standing = _standing(shape, group, next_)
            _write(shape, queue, group, consumer, standing, told, emit)
            known.append(_known(shape, queue, group, consumer, standing))
    return known


def _standing(shape: Shape, group: Group, next_: int) -> Standing:
    standing = Standing(next_, committed=next_)
    if next_ < _BUSY_FROM:
        return standing
    now = shape.now_ms
    standing.leases["tokenAAA"] = [next_ - 10, 10, now + 20_000, 1, b"a\x07"]
    standing.in_flight, standing.committed = 7, next_ - 7
    if group.ordered:
        return standing
    standing.leases["tokenBBBsplit1"] = [next_ - 14, 4, now + 25_000, 2]
    standing.leases["tokenCCC"] = [next_ - 17, 3, now - 5_000, 1]
    standing.in_flight, standing.due, standing.committed = 11, 3, next_ - 17
    if group.consumers[0]:
        return standing
    standing.leases["tokenDDD"] = [next_ - 20, 3, now - 5_000, 1, b"m\x07"]
    standing.leases["~tokenDDDsplit2"] = [next_ - 20, 2, now + 60_000, 1]
    standing.pages[_page_id(next_)] = [now + HOUR_MS, 3, next_ - 30]
    standing.retrying = 5
    others = range(next_ - 50 - (next_ - 50) % _LETTERS_EVERY, 0, -_LETTERS_EVERY)
    standing.letters = [next_ - 18, *list(others)[: LETTERS_MAX - 1]]
    return standing


def _page_id(next_: int) -> str:
    return f"p{next_:07d}"[-8:]


def _write(shape: Shape, queue: Queue, group: Group, consumer: str, standing: Standing, told: Told, emit: Emit) -> None:
    topic_id, own_id = shape.topic_id(queue.topic), group_id(shape, queue.topic, group)
    hashed = _hash(consumer)
    between = f"{hashed}#" if consumer else ""
    taken = min(standing.next, shape.quota(queue))
    popped_ms = shape.now_ms - QUIET_MS
    key = {"pk": f"group#{topic_id}#{group.name}", "sk": f"cursor#{own_id}#{between}{queue.number:03d}"}
    counts = {"dead": len(standing.letters), "claims": taken // 10}
    pages = {"pages": standing.pages} if standing.pages else {}
    place = {"epoch": START_MS if consumer else 0, "next": [standing.next], "segment": told.bases.get(taken, 0)}
    last = {"at": popped_ms, "by": consumer or "worker-1"}
    emit({**key, **place, "leases": standing.leases, **counts, **pages, **last}, popped_ms)
    for page_id, (due_ms, _, low) in standing.pages.items():
        page = {"pk": f"retry#{topic_id}#{own_id}#{queue.number}", "sk": f"{due_ms:015d}#{page_id}"}
        emit({**page, "retries": [[low, 2, due_ms, 3], [low + 3, 1, due_ms + HOUR_MS, 2]]}, popped_ms)
    for at, offset in enumerate(standing.letters):
        letter = {"pk": f"dead#{topic_id}#{own_id}", "sk": f"{queue.number:03d}#{offset:015d}"}
        about = {"epoch": 0, "attempts": 16 - at % 3, "reason": REASONS[at % len(REASONS)]}
        emit({**letter, **about, "dead_at_ms": popped_ms}, popped_ms)


def _hash(consumer: str) -> str:
    return hashlib.blake2b(consumer.encode(), digest_size=12).hexdigest() if consumer else ""


def _known(shape: Shape, queue: Queue, group: Group, consumer: str, standing: Standing) -> dict[str, Any]:
    """`ready`: messages that were never delivered, and those whose lease has expired."""
    end = shape.quota(queue)
    untaken = max(0, end - standing.next)
    return {
        "topic": shape.topic_name(queue.topic),
        "topic_id": shape.topic_id(queue.topic),
        "queue": queue.number,
        "group": group.name,
        "consumer": _hash(consumer),
        "next": standing.next,
        "end": end,
        "committed": standing.committed,
        "ready": untaken + standing.due,
        "in_flight": standing.in_flight,
        "retrying": standing.retrying,
        "dead": len(standing.letters),
        "reasons": {reason: len(standing.letters[at :: len(REASONS)]) for at, reason in enumerate(REASONS)},
    }
