"""The model of topics and groups, and what the service has to say about them. One thing happens after another here, and
nothing is cached."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from chalicelib.core.base.limits import BACKOFF_MS, CLOCKS_APART_MS
from tests.model.cursor import INVALID, Cursor, Ticket

Json = dict[str, Any]

NEVER_MS = 2**63

DEFAULTS: Json = {
    "start": "earliest",
    "mode": "clustering",
    "invisible_ms": 30_000,
    "max_attempts": 16,
    "max_in_flight": 1_000,
    "backoff_ms": list(BACKOFF_MS),
    "paused": False,
    "ordered": False,
    "delay_ms": 0,
    "rate_limit": None,
    "filter": None,
    "alarm": None,
    "alarm_state": None,
    "push": None,
    "dead_letters": None,
    "settle_by": "receipt",
}


@dataclass
class Group:
    id: int
    settings: Json
    cursors: list[Cursor]
    purged_at_ms: int | None = None
    last_purged_at_ms: int = 0
    """Of a purge that was lifted since, too."""

    def purged_by(self, now: int, has_delayed: bool) -> int:
        """What a purge counts for: where messages may wait, what any clock calls earlier."""
        lead_ms = CLOCKS_APART_MS if has_delayed else -CLOCKS_APART_MS - 1
        self.last_purged_at_ms = max(now + lead_ms, self.last_purged_at_ms + 1)
        return self.last_purged_at_ms

    def unwanted(self, queue: int, log: list[Json]) -> set[int]:
        """What pops pass without delivering it, if it was not taken before."""
        purged_at_ms, rule = self.cursors[queue].purged_at_ms, self.settings["filter"]
        return {
            message["offset"]
            for message in log
            if not _is_wanted(message, rule) or message.get("sent_at_ms", NEVER_MS) <= (purged_at_ms or 0)
        }


@dataclass(frozen=True)
class Waiting:
    """A delayed message. `shown`: as a look-up answers it, but for its offset and its times."""

    shown: Json
    queue: int
    due_ms: int
    sent_at_ms: int


@dataclass
class Topic:
    """`logs`: for each queue its messages, as a look-up answers them."""

    name: str
    logs: list[list[Json]]
    waiting: dict[str, Waiting] = field(default_factory=dict)
    """Delayed messages by their id, in the order in which they were sent."""
    has_delayed: bool = False
    """Whether any was ever sent, be it a repeat."""
    delivered: list[str] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)
    """The ids of messages that waited."""
    dedup: dict[str, tuple[int, Json]] = field(default_factory=dict)
    """The instant and the first result of each dedup id."""
    groups: dict[str, Group] = field(default_factory=dict)
    queue_of_key: dict[str, int] = field(default_factory=dict)

    def offset_at(self, queue: int, at_ms: int) -> int:
        log = self.logs[queue]
        return next((message["offset"] for message in log if message["stored_at_ms"] >= at_ms), len(log))

    def meet(self, message: Json, now: int) -> None:
        """A delayed message has come into the log: not early, and none that was due before it is left."""
        waited = self.waiting.pop(message["message_id"])
        log = self.logs[waited.queue]
        came_at_ms = message["stored_at_ms"]
        assert waited.due_ms <= came_at_ms <= now
        times = {"stored_at_ms": came_at_ms, "sent_at_ms": waited.sent_at_ms}
        assert message == {**waited.shown, **times, "offset": len(log)}
        assert not [other for other in self.waiting.values() if _is_before(other, waited)]
        log.append(message)
        self.delivered.append(message["message_id"])

    def due(self, now: int) -> list[Waiting]:
        return [waiting for waiting in self.waiting.values() if waiting.due_ms <= now]

    def starts(self, start: str | int) -> list[int]:
        if start == "earliest":
            return [0 for _ in self.logs]
        if start in ("latest", "now"):
            return [len(log) for log in self.logs]
        return [self.offset_at(queue, int(start)) for queue in range(len(self.logs))]


@dataclass
class Model:
    topics: dict[str, Topic] = field(default_factory=dict)
    tickets: dict[str, Ticket] = field(default_factory=dict)
    """Every receipt that was ever given out, in order."""
    ids: itertools.count[int] = field(default_factory=itertools.count)

    def missing(self, topic: str, group: str | None = None) -> tuple[int, str] | None:
        """The error when the topic or the group does not exist; None: both do."""
        if topic not in self.topics:
            return 404, "TopicNotFound"
        if group is not None and group not in self.topics[topic].groups:
            return 404, "GroupNotFound"
        return None

    def place(self, group: Group, receipt: str) -> tuple[Ticket, Cursor] | None:
        """The message that a receipt names; None: none of this group."""
        ticket = self.tickets.get(receipt)
        if ticket is None or ticket.group_id != group.id:
            return None
        return ticket, group.cursors[ticket.queue]

    def ack(self, group: Group, receipts: list[str], now: int) -> list[str]:
        """Acks them, and says what each is worth."""
        places = [(self.place(group, receipt), receipt) for receipt in receipts]
        for place, receipt in places:
            if place:
                place[1].ack(place[0], receipt, now)
        return [place[1].worth(place[0], receipt, now) if place else INVALID for place, receipt in places]

    def held(self, group: Group, receipts: list[str], now: int) -> dict[str, tuple[Ticket, Cursor]]:
        """Those of the receipts that are good for their message."""
        places = {receipt: self.place(group, receipt) for receipt in receipts}
        return {
            receipt: place for receipt, place in places.items() if place and place[1].is_held(place[0], receipt, now)
        }

    def newest(self, group: Group) -> list[str]:
        """The receipts of all messages that are leased, or were and have not been taken since."""
        return [hold.receipt for cursor in group.cursors for _, hold in sorted(cursor.holds.items()) if hold.receipt]


def details(topic: Topic, name: str, now: int) -> Json:
    """The answer of `GET` about a group, except when it was created."""
    group = topic.groups[name]
    queues = [_queue(topic, group, queue, now) for queue in range(len(topic.logs))]
    ready, in_flight = (sum(queue[field] for queue in queues) for field in ("ready", "in_flight"))
    return {
        "topic": topic.name,
        "group": name,
        **group.settings,
        "purged_at_ms": group.purged_at_ms,
        "ready": ready,
        "in_flight": in_flight,
        "retrying": sum(cursor.retrying(now) for cursor in group.cursors),
        "delayed": 0,
        "dead": sum(len(cursor.letters) for cursor in group.cursors),
        "lag": ready + in_flight,
        "queues": queues,
    }


def _queue(topic: Topic, group: Group, queue: int, now: int) -> Json:
    cursor, log = group.cursors[queue], topic.logs[queue]
    return progress_with(cursor.ready(now, len(log)), cursor, queue, log, now)


def progress_with(ready: list[int], cursor: Cursor, queue: int, log: list[Json], now: int) -> Json:
    """A group's progress in a queue, where these are ready."""
    return {
        "queue": queue,
        "committed_offset": cursor.committed(),
        "next_offset": cursor.next,
        "end_offset": len(log),
        "ready": len(ready),
        "in_flight": cursor.in_flight(now),
        "oldest_ready_at_ms": log[ready[0]]["stored_at_ms"] if ready else None,
        "last_pop_at_ms": cursor.last_pop_at_ms,
        "last_consumer_id": cursor.last_consumer_id,
    }


def judge_waiting(topic: Topic, queues: int, listed: list[Json], counted: Json) -> None:
    """All that waits is listed, by due time, and counted in each of the queues."""
    assert {message["message_id"]: message for message in listed} == {
        message_id: {**waiting.shown, "deliver_at_ms": waiting.due_ms, "sent_at_ms": waiting.sent_at_ms}
        for message_id, waiting in topic.waiting.items()
    }
    dues = [message["deliver_at_ms"] for message in listed]
    assert dues == sorted(dues)
    counts = Counter(waiting.queue for waiting in topic.waiting.values())
    waits = [{"queue": queue, "waiting": counts[queue]} for queue in range(queues)]
    assert counted == {"waiting": len(listed), "queues": waits}


def _is_before(waiting: Waiting, other: Waiting) -> bool:
    return waiting.queue == other.queue and waiting.due_ms < other.due_ms


def _is_wanted(message: Json, rule: Json | None) -> bool:
    if rule is None:
        return True
    return message["tag"] in rule["tags"]


def altered(text: str, place: int) -> str:
    """Another character at this place, or one more behind the last."""
    if place >= len(text):
        return text + "="
    return text[:place] + ("A" if text[place] != "A" else "B") + text[place + 1 :]
