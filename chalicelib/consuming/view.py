"""One look at a group: its settings, its cursors, and the log of every queue from its cursor on.

If the cached positions of the cursors are right, all of it takes one round trip."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from chalicelib.base.cache import BoundedCache
from chalicelib.base.errors import InvalidField
from chalicelib.base.limits import QUEUES_MAX, SECOND_MS
from chalicelib.catalogue.env import Env
from chalicelib.catalogue.group import Group
from chalicelib.catalogue.topic import Topic
from chalicelib.cursors import Cursors
from chalicelib.cursors.broadcast import completed
from chalicelib.cursors.cursor import Cursor
from chalicelib.delays.promoter import Promoter, first_due
from chalicelib.log.reader import LogReader, Seen, Want, entries, stored_at
from chalicelib.log.segment import Segment
from chalicelib.store import Keys, Range, Read
from chalicelib.table import keys
from chalicelib.table.writes import Item

UNKNOWN_ITEMS_MAX = 2 * QUEUES_MAX
"""Items read of a group's partition if its mode is unknown: the settings and all cursors of a clustering group, plus
those left by a deleted one of the same name."""
SIFTING_MS = SECOND_MS
"""How long a pop applies filters at each of its looks: a filter may take a tenth of a second for one message."""


@dataclass(slots=True)
class QueueView:
    """One queue as read by a pop of a group. `chain`: the segments from the cursor's `next` on, as requested."""

    topic: Topic
    group: Group
    queue: int
    cursor: Cursor
    chain: list[Segment]
    sift_until_ms: int
    """Until when (`Runtime.uptime`) a pop skips messages that the filter rejects."""

    @property
    def end(self) -> int:
        """The end of the log as read."""
        return max(self.cursor.next, self.chain[-1].end if self.chain else 0)

    def want(self, cursor: Cursor, count: int) -> Want:
        return want(self.topic, self.queue, cursor, count)

    def waiting_since(self, now: int) -> int | None:
        """Since when the first ready message is ready, or None without one."""
        since = [lease.deadline for lease in self.cursor.due(now)]
        since += [page.due for page in self.cursor.pages.values() if page.due <= now]
        if self.end > self.cursor.next:
            since.append(stored_at(self.chain, self.cursor.next))
        return min(since, default=None)

    def begins_behind(self, cursor: Cursor) -> bool:
        """Whether the log as read begins after the cursor's next message."""
        return bool(self.chain) and self.chain[0].base > cursor.next

    def has_expired(self, cursor: Cursor, now: int) -> bool:
        """Whether messages ahead of the cursor have expired or are removed."""
        expired_ms = self.topic.expired_ms(now)
        return self.begins_behind(cursor) or any(
            entry.stored_at_ms <= expired_ms and first + entry.count > cursor.next
            for first, entry in entries(self.chain)
        )

    def is_sifted_enough(self, uptime_ms: int) -> bool:
        return self.group.filter is not None and uptime_ms > self.sift_until_ms


@dataclass(slots=True)
class GroupView:
    """A group as read by one pop."""

    topic: Topic
    group: Group
    queues: list[QueueView]
    window: Item | None
    """The messages the group has taken of its rate, or None before the first."""
    waits: list[int | None]
    """For each queue, when its first delayed message is due; empty if there never were any."""
    at_ms: int
    """When the pop began to read it."""

    def due(self, besides: Collection[int] = ()) -> list[int]:
        """The queues with due delayed messages, the earliest first."""
        due = [(ms, queue) for queue, ms in enumerate(self.waits) if ms is not None and ms <= self.at_ms]
        return [queue for _, queue in sorted(due) if queue not in besides]

    def next_ready_at_ms(self) -> int | None:
        """When the next known message becomes ready: a delayed one, a retry, or one whose lease expires."""
        instants = [ms for ms in self.waits if ms is not None]
        for view in self.queues:
            instants += [lease.deadline for lease in view.cursor.owing]
            instants += [page.due for page in view.cursor.pages.values()]
        return min((ms for ms in instants if ms > self.at_ms), default=None)


class ViewReader:
    def __init__(self, env: Env, reader: LogReader, cursors: Cursors, promoter: Promoter) -> None:
        self._store, self._runtime = env.store, env.runtime
        self._catalogue, self._reader, self._promoter = env.catalogue, reader, promoter
        self._cursors, self._consumers = cursors.cache, cursors.consumers
        self._groups: BoundedCache[Group] = BoundedCache()

    def read(
        self, topic: Topic, group_name: str, count: int, consumer_id: str | None, strong: bool = False
    ) -> GroupView:
        """The group now, in a broadcast group as this consumer has it, and up to `count` messages ahead in each queue.
        Raises GroupNotFound, and InvalidField if a pop of a broadcast group lacks its `consumer_id`."""
        at_ms = self._runtime.now()
        cached = self._groups.get((topic.id, group_name))
        consumer = "" if consumer_id is None else keys.consumer(consumer_id)
        guessed = self._reader.guess(self._guess(topic, cached, consumer, count))
        asked = _asked(topic, group_name, cached, consumer, strong)
        glances = self._promoter.glances(topic) if topic.delays else []
        answers = self._store.read([*asked, *guessed, *glances])
        items = [item for found in answers[: len(asked)] for item in found]
        seen = Seen()
        glances_at = len(asked) + len(guessed)
        self._reader.learn(seen, guessed, answers[len(asked) : glances_at])
        settings = self._settings(topic, group_name, items)
        if settings.is_broadcast and consumer_id is None:
            raise InvalidField(
                f"field 'consumer_id' must be given, since group '{group_name}' is broadcast; it is null"
            )
        if _scope(settings) != _scope(cached):
            return self.read(topic, group_name, count, consumer_id, strong=True)
        cursors = cursors_of(settings, topic, items, consumer if settings.is_broadcast else "")
        if settings.is_broadcast and consumer_id is not None:
            cursors = self._consumers.as_made_by(consumer_id, cursors)
            if not self._consumers.admits(settings, cursors, strong):
                return self.read(topic, group_name, count, consumer_id, strong=True)
        for cursor in cursors:
            self._cursors.keep(cursor.key, cursor)
        chains = self._reader.chains([want(topic, queue, cursor, count) for queue, cursor in enumerate(cursors)], seen)
        until_ms = self._runtime.uptime() + SIFTING_MS
        pairs = enumerate(zip(cursors, chains, strict=True))
        queues = [QueueView(topic, settings, queue, cursor, chain, until_ms) for queue, (cursor, chain) in pairs]
        waits = first_due(answers[glances_at:]) if topic.delays else []
        return GroupView(topic, settings, queues, _window(settings, items), waits, at_ms)

    def promote(self, view: QueueView, count: int) -> None:
        """Promotes the first due messages of a queue, and reads its log further."""
        self._promoter.promote(view.topic, view.queue)
        view.chain = self._reader.chains([view.want(view.cursor, count)])[0]

    def _guess(self, topic: Topic, settings: Group | None, consumer: str, count: int) -> list[Want]:
        if settings is None:
            return []
        whose = consumer if settings.is_broadcast else ""
        cached = [self._cursors.get(settings.cursor_key(queue, whose)) for queue in range(topic.queues)]
        return [want(topic, queue, cursor, count) for queue, cursor in enumerate(cached) if cursor]

    def _settings(self, topic: Topic, group_name: str, items: list[Item]) -> Group:
        """The group's settings, read again before GroupNotFound is raised."""
        key = keys.group(topic.id, group_name)
        item = next((item for item in items if item["sk"] == key.sk), None)
        cached = self._groups.get((topic.id, group_name))
        if item and cached and cached.id == item["id"] and cached.version == item["version"]:
            return cached
        settings = Group.of(topic.id, group_name, item) if item else self._catalogue.group(topic, group_name)
        self._groups.keep((topic.id, group_name), settings)
        return settings


def _window(group: Group, items: list[Item]) -> Item | None:
    if group.rate_limit is None:
        return None
    return next((item for item in items if item["sk"] == group.window_key.sk), None)


def _scope(group: Group | None) -> str | None:
    """The reads of the partition: all of it, or only one consumer's part of a broadcast group of this id."""
    return group.id if group and group.is_broadcast else None


def _asked(topic: Topic, group_name: str, cached: Group | None, consumer: str, strong: bool) -> list[Read]:
    """Settings and cursors. A broadcast group may have any number of cursors: only those of one consumer are read."""
    if cached and cached.is_broadcast:
        own = Range(*keys.cursors(topic.id, group_name, cached.id, consumer), strong=strong)
        window = [cached.window_key] if cached.rate_limit else []
        settings = Keys([keys.group(topic.id, group_name), *window], strong)
        return [settings, own] if consumer else [settings]
    most = None if cached else UNKNOWN_ITEMS_MAX
    partition = keys.group_partition(topic.id, group_name)
    return [Range(partition, keys.FIRST, keys.LAST, most, descending=True, strong=strong)]


def cursors_of(group: Group, topic: Topic, items: list[Item], consumer: str = "") -> list[Cursor]:
    """The cursors of all queues, in a broadcast group those of one consumer; unused ones are at the group's start."""
    return completed(group, topic.queues, standing_of(group, items, consumer), consumer)


def all_cursors_of(group: Group, topic: Topic, items: list[Item]) -> list[Cursor]:
    """One for each queue; in a broadcast group those of all existing consumers."""
    return standing_of(group, items) if group.is_broadcast else cursors_of(group, topic, items)


def standing_of(group: Group, items: list[Item], consumer: str = "") -> list[Cursor]:
    """The cursors among these items of the group's partition: of one consumer, or (empty) of all."""
    first = keys.cursors(group.topic_id, group.name, group.id, consumer)[1]
    return [Cursor.of(item) for item in items if item["sk"].startswith(first)]


def want(topic: Topic, queue: int, cursor: Cursor, count: int) -> Want:
    hint = 0 if cursor.next == 0 else cursor.segment
    return Want(topic.logs[queue], cursor.next, count, hint, topic.created_at_ms)
