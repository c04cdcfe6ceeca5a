"""The model of a topic whose messages end and whose queues come and go, and what the service has to say about it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import takewhile

from tests.model.cursor import Cursor
from tests.model.model import NEVER_MS, Group, Json, Topic, progress_with

MINUTE_MS = 60_000
DAY_MS = 86_400_000
DEDUP_MS = 5 * MINUTE_MS
HEARD_MS = 20_000
"""So long after a change of the number of queues, messages are placed by it."""
LATE_MS, DELAYED_LATE_MS = 6 * MINUTE_MS, 16 * MINUTE_MS
"""How long after its last placement a queue stays at least, and in a topic that ever had delayed messages."""
DELAYED_KEPT_MS = 90 * DAY_MS + 1_001
KEPT_MS = DAY_MS
"""How long what has expired is kept before a sweep may remove it."""

Place = tuple[int, int]
"""A queue and an offset."""


@dataclass
class LastingTopic(Topic):
    """`logs`: of all queues that there ever were. The first `readers` of them are read, and the first `queues` are
    written. `retained`: by queue and offset, until when a message is retained. `ends`: the same for its own time to
    live, if it has one."""

    queues: int = 1
    readers: int = 1
    retention_ms: int = 0
    index_keys: bool = False
    created_at_ms: int = 0
    placements: list[tuple[int, int]] = field(default_factory=list)
    """From when on messages are placed among how many queues."""
    retained: dict[Place, int] = field(default_factory=dict)
    ends: dict[Place, int] = field(default_factory=dict)
    ttls: dict[str, int] = field(default_factory=dict)
    """By the id of a delayed message."""
    homes: dict[tuple[str, int], int] = field(default_factory=dict)
    """The queue of a key among so many queues."""

    # -- how long a message lasts -------------------------------------------------------------------------------------

    def store(self, message: Json, ttl_ms: int | None) -> None:
        place = message["queue"], message["offset"]
        self.logs[message["queue"]].append(message)
        self.retained[place] = message["stored_at_ms"] + self.retention_ms
        if ttl_ms is not None:
            self.ends[place] = message["stored_at_ms"] + ttl_ms

    def retain(self, retention_ms: int, now: int) -> None:
        """Less counts for all messages at once, more for what is stored from now on."""
        self.retention_ms = retention_ms
        for (queue, offset), until_ms in self.retained.items():
            stored_at_ms = self.logs[queue][offset]["stored_at_ms"]
            by_new_ms = stored_at_ms + retention_ms
            self.retained[queue, offset] = by_new_ms if stored_at_ms >= now else min(until_ms, by_new_ms)

    def has_expired(self, queue: int, offset: int, now: int) -> bool:
        return self.retained[queue, offset] <= now

    def has_ended(self, queue: int, offset: int, now: int) -> bool:
        """By its own time to live."""
        return self.ends.get((queue, offset), NEVER_MS) <= now

    def may_be_gone(self, queue: int, offset: int, now: int) -> bool:
        """Whether a sweep may have removed it."""
        return self.retained[queue, offset] + KEPT_MS <= now

    def first(self, queue: int, now: int) -> int:
        """The first message that can be read. Those that cannot are always the beginning of their log."""
        return sum(self.has_expired(queue, offset, now) for offset in range(len(self.logs[queue])))

    def readable(self, queue: int, now: int) -> list[Json]:
        return self.logs[queue][self.first(queue, now) :]

    def offsets_at(self, queue: int, at_ms: int, now: int) -> range:
        """Where a group may begin that is moved to this instant: what was removed before cannot be told apart."""
        offset = self.offset_at(queue, at_ms)
        there = sum(self.may_be_gone(queue, known, now) for known in range(len(self.logs[queue])))
        return range(offset, max(offset, there) + 1)

    # -- where it is --------------------------------------------------------------------------------------------------

    @property
    def most(self) -> int:
        return len(self.logs)

    @property
    def draining(self) -> range:
        return range(self.queues, self.readers)

    def writers(self, now: int) -> int:
        return [count for from_ms, count in self.placements if from_ms <= now][-1]

    def place(self, key: str, queue: int, now: int) -> None:
        """A message with this key was put into this queue. No key moves that need not, and none to an old queue."""
        count = self.writers(now)
        assert self.homes.setdefault((key, count), queue) == queue
        for (other, fewer), home in self.homes.items():
            if other == key and fewer < count:
                assert queue == home or queue >= fewer
            if other == key and fewer > count:
                assert home == queue or home >= count

    def resize(self, queues: int, now: int) -> None:
        if queues == self.queues:
            return
        self.placements.append((max(now + HEARD_MS, self.placements[-1][0] + 1), queues))
        self.queues, self.readers = queues, max(self.readers, queues)
        for _ in range(self.most, self.readers):
            self.logs.append([])
            for group in self.groups.values():
                group.cursors.append(beginning_like(group.cursors[0]))

    def finish_draining(self, now: int) -> bool:
        """Lets queues leave that are settled, the highest first. Returns whether all have."""
        while self.draining and not self._is_held(self.readers - 1, now):
            self.readers -= 1
        return not self.draining

    def check(self, now: int) -> None:
        """What the sweep does: it reads a queue that has left again while something is owed there."""
        left = range(self.readers, self.most)
        owed = [queue for queue in left if self._is_owed(queue) and not self._is_gone(queue, now)]
        if owed:
            self.readers = max(owed) + 1
        else:
            self.finish_draining(now)

    def _is_held(self, queue: int, now: int) -> bool:
        late_ms = DELAYED_LATE_MS if self.has_delayed else LATE_MS
        if now - self.unwritten_since(queue) < late_ms or any(each.queue == queue for each in self.waiting.values()):
            return True
        end = len(self.logs[queue])
        is_settled = not self._is_owed(queue) and all(
            group.cursors[queue].next >= end for group in self.groups.values()
        )
        return not is_settled and not self._is_gone(queue, now)

    def unwritten_since(self, queue: int) -> int:
        return min(from_ms for from_ms, _ in takewhile(lambda placed: placed[1] <= queue, reversed(self.placements)))

    def _is_owed(self, queue: int) -> bool:
        return any(group.cursors[queue].holds or group.cursors[queue].aside for group in self.groups.values())

    def _is_gone(self, queue: int, now: int) -> bool:
        """Whether all of a queue may have been removed, for a millisecond at least."""
        return all(self.may_be_gone(queue, offset, now - 1) for offset in range(len(self.logs[queue])))

    # -- what is said about it ----------------------------------------------------------------------------------------

    def settings(self) -> Json:
        draining = {"draining": list(self.draining)} if self.draining else {}
        fixed = {"max_depth": None, "trace": False, "zones": None, "index_keys": self.index_keys}
        about = {"topic": self.name, "created_at_ms": self.created_at_ms}
        return {**about, **fixed, **draining, "queues": self.queues, "retention_ms": self.retention_ms}

    def shown(self, now: int) -> Json:
        offsets = [
            {"queue": queue, "first_offset": self.first(queue, now), "end_offset": len(self.logs[queue])}
            for queue in range(self.readers)
        ]
        return {**self.settings(), "groups": sorted(self.groups), "queue_offsets": offsets}

    def leases(self) -> Iterator[int]:
        """When messages are to be had again."""
        for group in self.groups.values():
            yield from (hold.until_ms for cursor in group.cursors for hold in cursor.holds.values())

    def leavings(self) -> Iterator[int]:
        """When queues that drain may leave."""
        late_ms = DELAYED_LATE_MS if self.has_delayed else LATE_MS
        yield from (self.unwritten_since(queue) + late_ms for queue in self.draining)

    def removals(self) -> Iterator[int]:
        """When messages may be removed, and the payloads of such as have waited, if these were not stored again."""
        yield from (until_ms + KEPT_MS for until_ms in self.retained.values())
        for (queue, offset), until_ms in self.retained.items():
            at_ms = self.logs[queue][offset]["stored_at_ms"] + DELAYED_KEPT_MS
            if "sent_at_ms" in self.logs[queue][offset] and at_ms < until_ms:
                yield at_ms


def beginning_like(cursor: Cursor) -> Cursor:
    """A cursor of the same group at the beginning of another queue."""
    return Cursor(0, cursor.settle_by, cursor.ordered)


def details(topic: LastingTopic, name: str, now: int) -> Json:
    """The answer of `GET` about a group, except when it was created."""
    group = topic.groups[name]
    queues = [progress(topic, group.cursors[queue], queue, now) for queue in range(topic.readers)]
    ready, in_flight = (sum(queue[field] for queue in queues) for field in ("ready", "in_flight"))
    return {
        "topic": topic.name,
        "group": name,
        **group.settings,
        "purged_at_ms": None,
        "ready": ready,
        "in_flight": in_flight,
        "retrying": sum(cursor.retrying(now) for cursor in group.cursors[: topic.readers]),
        "delayed": 0,
        "dead": sum(len(cursor.letters) for cursor in group.cursors),
        "lag": ready + in_flight,
        "queues": queues,
    }


def progress(topic: LastingTopic, cursor: Cursor, queue: int, now: int) -> Json:
    """What was never delivered and has expired is not ready; what has ended is, until a pop passes it."""
    log = topic.logs[queue]
    first = topic.first(queue, now)
    ready = [offset for offset in cursor.ready(now, len(log)) if offset in cursor.holds or offset >= first]
    return progress_with(ready, cursor, queue, log, now)


def forgive(topic: LastingTopic, group: Group, seen: Json, now: int) -> Json:
    """The same answer; where the first ready message may be removed, the time of any behind it will do."""
    queues = []
    for each in seen["queues"]:
        queue = each["queue"]
        known = progress(topic, group.cursors[queue], queue, now)
        ready = group.cursors[queue].ready(now, len(topic.logs[queue]))
        if known["ready"] and topic.may_be_gone(queue, ready[0], now):
            later = [message["stored_at_ms"] for message in topic.logs[queue][ready[0] :]]
            assert each["oldest_ready_at_ms"] in (None, *later)
            each = {**each, "oldest_ready_at_ms": known["oldest_ready_at_ms"]}
        queues.append(each)
    return {**seen, "queues": queues}


def moved_cursor(cursor: Cursor) -> Cursor:
    """A copy that a pop may change."""
    own = {name: getattr(cursor, name).copy() for name in ("aside", "buried", "letters", "holds", "settled_by")}
    return replace(cursor, **own)
