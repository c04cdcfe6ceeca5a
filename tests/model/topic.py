"""The model of a topic: its logs, what waits, how long messages last, and which queues there are. Delays, times to
live, a limit of depth and other queues are optional. One thing happens after another here, and nothing is cached."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import takewhile

from chalicelib.core.base.limits import RETENTION_MS_DEFAULT
from tests.model.cursor import Cursor
from tests.model.group import DEFAULTS, Group, Place
from tests.model.letters import Coming
from tests.model.values import NEVER_MS, Json

MINUTE_MS = 60_000
DAY_MS = 86_400_000
BELIEVED_MS = 5_000
"""How long an instance may cache what it read about a topic."""
LOOK_MS = 1_000
"""How long an instance relies on its last read of the depth of queues."""
PLACED_MS = 20_000
"""How long after a change of the number of queues placement follows it."""
LATE_MS, DELAYED_LATE_MS = 6 * MINUTE_MS, 16 * MINUTE_MS
"""How long after its last placement a queue stays at least, and in a topic that ever had delayed messages."""
DELAYED_KEPT_MS = 90 * DAY_MS + 1_001
KEPT_MS = DAY_MS
"""How long expired messages stay at least."""


@dataclass(frozen=True)
class Waiting:
    """A delayed message. `shown`: as a look-up answers it, but for its offset and its times."""

    shown: Json
    due_ms: int
    sent_at_ms: int
    ttl_ms: int | None

    @property
    def queue(self) -> int:
        queue: int = self.shown["queue"]
        return queue

    def is_before(self, other: Waiting) -> bool:
        return self.queue == other.queue and self.due_ms < other.due_ms


@dataclass
class Look:
    """An instance's view of the depths of queues. `slow`: by queue the lowest committed offset, and the groups at
    it."""

    at_ms: int
    slow: list[tuple[int, frozenset[str]]]
    ends: list[int]

    def waiting(self, queue: int) -> int:
        return self.ends[queue] - self.slow[queue][0]


@dataclass
class Topic:
    """`id` names one incarnation. `logs`: of all queues that there ever were, the messages as a look-up answers them.
    The first `readers` of them are read, and the first `queues` are written. `retained`: until when a message is
    retained. `ends`: the same for its own time to live, if it has one."""

    id: int
    name: str
    logs: list[list[Json]]
    retention_ms: int = RETENTION_MS_DEFAULT
    created_at_ms: int = 0
    options: Json = field(default_factory=dict)
    queues: int = 0
    readers: int = 0
    placements: list[tuple[int, int]] = field(default_factory=list)
    """From when on messages are placed among how many queues."""
    homes: dict[tuple[str, int], int] = field(default_factory=dict)
    """The queue of a key, given the number of queues."""
    groups: dict[str, Group] = field(default_factory=dict)
    retained: dict[Place, int] = field(default_factory=dict)
    ends: dict[Place, int] = field(default_factory=dict)
    waiting: dict[str, Waiting] = field(default_factory=dict)
    """Delayed messages by their id, in the order in which they were sent."""
    delivered: list[str] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)
    """The ids of messages that waited."""
    dedup: dict[str, tuple[int, Json]] = field(default_factory=dict)
    """The instant and the first result of each dedup id."""
    first_delay: tuple[int, int] | None = None
    """Which instance let a message wait here for the first time, and when."""
    coming: list[Coming] = field(default_factory=list)
    lanes: dict[tuple[str, int], int] = field(default_factory=dict)
    looks: dict[int, Look] = field(default_factory=dict)
    """By instance."""

    def __post_init__(self) -> None:
        self.queues = self.readers = len(self.logs)
        self.placements = [(0, self.queues)]
        self.options = {"max_depth": None, "trace": False, "zones": None, "index_keys": False, **self.options}

    @property
    def most(self) -> int:
        return len(self.logs)

    def new_group(self, group_id: int, name: str, given: Json, starts: list[int]) -> Group:
        first: Json = {field: given[field] for field in ("start", "ordered", "settle_by") if field in given}
        settings: Json = {**DEFAULTS, **first}
        cursors = [Cursor(start, settings["settle_by"], settings["ordered"]) for start in starts]
        self.groups[name] = Group(group_id, name, settings, cursors)
        self.groups[name].change({field: value for field, value in given.items() if field != "start"})
        return self.groups[name]

    # -- messages -----------------------------------------------------------------------------------------------------

    def store(self, message: Json, ttl_ms: int | None = None) -> None:
        place, stored_at_ms = (message["queue"], message["offset"]), message["stored_at_ms"]
        log = self.logs[message["queue"]]
        assert message["offset"] == len(log)
        log.append(message)
        self.retained[place] = stored_at_ms + self.retention_ms
        if ttl_ms is not None:
            self.ends[place] = stored_at_ms + ttl_ms

    def place(self, message: Json, queue: int, now: int) -> None:
        """A message was put into this queue. No key moves that need not, and none to an old queue."""
        count, key = self.writers(now), message.get("key")
        if "queue" in message:
            assert queue == message["queue"]
        elif key is None:
            assert queue < count
        else:
            assert self.homes.setdefault((key, count), queue) == queue
            for (other, few), home in self.homes.items():
                assert other != key or few >= count or queue == home or queue >= few
                assert other != key or few <= count or home == queue or home >= count

    def home(self, key: str, now: int) -> int | None:
        return self.homes.get((key, self.writers(now)))

    def offset_at(self, queue: int, at_ms: int) -> int:
        log = self.logs[queue]
        return next((message["offset"] for message in log if message["stored_at_ms"] >= at_ms), len(log))

    def starts(self, start: str | int) -> list[int]:
        if start == "earliest":
            return [0 for _ in self.logs]
        if start in ("latest", "now"):
            return [len(log) for log in self.logs]
        return [self.offset_at(queue, int(start)) for queue in range(self.most)]

    # -- what waits ---------------------------------------------------------------------------------------------------

    def delays(self, instance: int, now: int) -> None:
        self.first_delay = self.first_delay or (instance, now)

    @property
    def has_delayed(self) -> bool:
        """Whether any message ever had to wait, even in a repeat."""
        return self.first_delay is not None

    def is_known_to_delay(self, instance: int, now: int) -> bool:
        by, at_ms = self.first_delay or (instance, now)
        return instance == by or now > at_ms + BELIEVED_MS

    def due(self, now: int) -> list[Waiting | Coming]:
        waiting = [waiting for waiting in self.waiting.values() if waiting.due_ms <= now]
        return [*waiting, *(each for each in self.coming if each.is_late and each.due_ms <= now)]

    def meet(self, message: Json, now: int) -> None:
        """A message has come into the log that waited, or was on its way: not early, and after those before it."""
        assert message["stored_at_ms"] <= now
        waited = self.waiting.pop(message["message_id"], None)
        if waited is None:
            self._meet_coming(message, now)
            return
        assert waited.due_ms <= message["stored_at_ms"]
        times = {"stored_at_ms": message["stored_at_ms"], "sent_at_ms": waited.sent_at_ms}
        assert message == {**waited.shown, **times, "offset": len(self.logs[waited.queue])}
        assert not [other for other in self.waiting.values() if other.is_before(waited)]
        self.store(message, waited.ttl_ms)
        self.delivered.append(message["message_id"])

    def _meet_coming(self, message: Json, now: int) -> None:
        [coming] = [each for each in self.coming if each.is_(message)]
        assert not [each for each in self.coming if each.is_before(coming)], "out of order"
        assert coming.due_ms <= message["stored_at_ms"]
        assert message["sent_at_ms"] <= now
        if coming.lane is None:
            self.place({"key": message["key"]}, message["queue"], now)
        else:
            assert self.lanes.setdefault(coming.lane, message["queue"]) == message["queue"]
        self.coming.remove(coming)
        self.store(message)

    # -- how long a message lasts -------------------------------------------------------------------------------------

    def retain(self, retention_ms: int, now: int) -> None:
        """A shorter time counts for all messages at once, a longer one for messages stored from now on."""
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
        offsets = range(len(self.logs[queue]))
        return next((offset for offset in offsets if not self.has_expired(queue, offset, now)), len(offsets))

    def readable(self, queue: int, now: int) -> list[Json]:
        return self.logs[queue][self.first(queue, now) :]

    def offsets_at(self, queue: int, at_ms: int, now: int) -> range:
        """The offsets at which a group may begin that is moved to this instant, since expired messages may be removed
        or not."""
        offset = self.offset_at(queue, at_ms)
        there = sum(self.may_be_gone(queue, known, now) for known in range(len(self.logs[queue])))
        return range(offset, max(offset, there) + 1)

    # -- queues -------------------------------------------------------------------------------------------------------

    @property
    def draining(self) -> range:
        return range(self.queues, self.readers)

    def writers(self, now: int) -> int:
        return [count for from_ms, count in self.placements if from_ms <= now][-1]

    def resize(self, queues: int, now: int) -> None:
        if queues == self.queues:
            return
        self.placements.append((max(now + PLACED_MS, self.placements[-1][0] + 1), queues))
        self.queues, self.readers = queues, max(self.readers, queues)
        for _ in range(self.most, self.readers):
            self.logs.append([])
            for group in self.groups.values():
                group.cursors.append(Cursor(0, group.settings["settle_by"], group.ordered))

    def finish_draining(self, now: int) -> bool:
        """Lets queues leave that are settled, the highest first. Returns whether all have."""
        while self.draining and not self._is_held(self.readers - 1, now):
            self.readers -= 1
        return not self.draining

    def check(self, now: int) -> None:
        """The sweep reads a queue that has left again while something is owed there."""
        left = range(self.readers, self.most)
        owed = [queue for queue in left if self._is_owed(queue) and not self._is_gone(queue, now)]
        if owed:
            self.readers = max(owed) + 1
        else:
            self.finish_draining(now)

    def leaves_ms(self, queue: int) -> int:
        """When a queue that drains may leave."""
        since_ms = min(
            from_ms for from_ms, _ in takewhile(lambda placed: placed[1] <= queue, reversed(self.placements))
        )
        return since_ms + (DELAYED_LATE_MS if self.has_delayed else LATE_MS)

    def _is_held(self, queue: int, now: int) -> bool:
        if now < self.leaves_ms(queue) or any(each.queue == queue for each in self.waiting.values()):
            return True
        end = len(self.logs[queue])
        are_through = all(group.cursors[queue].next >= end for group in self.groups.values())
        return (self._is_owed(queue) or not are_through) and not self._is_gone(queue, now)

    def _is_owed(self, queue: int) -> bool:
        return any(group.cursors[queue].holds or group.cursors[queue].aside for group in self.groups.values())

    def _is_gone(self, queue: int, now: int) -> bool:
        """Whether all of a queue may have been removed, for a millisecond at least."""
        return all(self.may_be_gone(queue, offset, now - 1) for offset in range(len(self.logs[queue])))

    # -- depth --------------------------------------------------------------------------------------------------------

    def full(self, instance: int, now: int) -> dict[int, Look]:
        """The queues that an instance takes no messages for, after it has looked if its last look is too old."""
        depth_max = self.options["max_depth"]
        if depth_max is None:
            return {}
        look = self.looks.get(instance)
        if look is None or now - look.at_ms >= LOOK_MS:
            slow = [self._slowest(queue) for queue in range(self.readers)] if self.groups else []
            look = self.looks[instance] = Look(now, slow, [len(log) for log in self.logs])
        return {queue: look for queue in range(len(look.slow)) if look.waiting(queue) >= depth_max}

    def _slowest(self, queue: int) -> tuple[int, frozenset[str]]:
        committed = {name: group.cursors[queue].committed() for name, group in self.groups.items()}
        least = min(committed.values())
        return least, frozenset(name for name, own in committed.items() if own == least)

    def note_end(self, instance: int, queue: int) -> None:
        """The instance has stored something here, and knows the end."""
        if self.options["max_depth"] is not None:
            self.looks[instance].ends[queue] = len(self.logs[queue])

    # -- what clients see ---------------------------------------------------------------------------------------------

    def settings(self) -> Json:
        draining = {"draining": list(self.draining)} if self.draining else {}
        about = {"topic": self.name, "created_at_ms": self.created_at_ms, "queues": self.queues}
        return {**about, **self.options, **draining, "retention_ms": self.retention_ms}

    def shown(self, now: int) -> Json:
        offsets = [
            {"queue": queue, "first_offset": self.first(queue, now), "end_offset": len(self.logs[queue])}
            for queue in range(self.readers)
        ]
        return {**self.settings(), "groups": sorted(self.groups), "queue_offsets": offsets}

    def limits(self) -> dict[str, Iterator[int]]:
        """When something begins or ends, by kind."""
        holds = (
            hold.until_ms for group in self.groups.values() for each in group.cursors for hold in each.holds.values()
        )
        windows = (
            group.window.end_ms(group.rate) for group in self.groups.values() if group.rate and group.window.began_ms
        )
        ages = (
            message["stored_at_ms"] + (group.settings["alarm"] or {}).get("age_ms", 0)
            for group in self.groups.values()
            for log in self.logs
            for message in log
        )
        return {
            "leases": holds,
            "lives": iter([*self.retained.values(), *self.ends.values()]),
            "waits": (waiting.due_ms for waiting in self.waiting.values()),
            "repeats": (at_ms + 5 * MINUTE_MS for at_ms, _ in self.dedup.values()),
            "placements": (from_ms for from_ms, _ in self.placements),
            "drains": (self.leaves_ms(queue) for queue in self.draining),
            "removals": self._removals(),
            "windows": windows,
            "ages": ages,
            "looks": (look.at_ms + LOOK_MS for look in self.looks.values()),
        }

    def _removals(self) -> Iterator[int]:
        """When messages may be removed, and the payloads of such as have waited, if these were not stored again."""
        yield from (until_ms + KEPT_MS for until_ms in self.retained.values())
        for (queue, offset), until_ms in self.retained.items():
            at_ms = self.logs[queue][offset]["stored_at_ms"] + DELAYED_KEPT_MS
            if "sent_at_ms" in self.logs[queue][offset] and at_ms < until_ms:
                yield at_ms
