"""The queues of SQS clients: makes, finds, changes and deletes them.

A queue is a record, a group, and a topic, which the queue may own. One transaction makes, changes or deletes them, so
no part of a queue is ever there alone. Those who call topics and groups by their own names can delete them without the
queue: it is then gone too, and the first call that meets its record removes that."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from typing import Any, TypeVar

from chalicelib.core.access.callers import may
from chalicelib.core.access.rights import Need
from chalicelib.core.admin.topics import Deletion
from chalicelib.core.base.cache import BoundedCache
from chalicelib.core.base.errors import GroupNotFound, StoreUnavailable, TopicNotFound
from chalicelib.core.base.limits import CLOCKS_APART_MS, IN_FLIGHT_MAX, METADATA_AGE_MS_MAX, PAGE_MAX, PURGE_MS
from chalicelib.core.base.records import record
from chalicelib.core.catalogue import group as groups
from chalicelib.core.catalogue import topic as topics
from chalicelib.core.catalogue.agenda import REVIVE
from chalicelib.core.catalogue.catalogue import Env
from chalicelib.core.catalogue.group import BY_DELIVERY, BY_KEY, BY_MESSAGE, EARLIEST, ENDLESS, LATEST, Group
from chalicelib.core.catalogue.topic import Topic
from chalicelib.core.log.reader import Offsets
from chalicelib.core.moves import Moves
from chalicelib.core.moves.task import SubscriptionGone
from chalicelib.core.store import Keys, Range
from chalicelib.core.store.paging import token_of
from chalicelib.core.table import keys
from chalicelib.core.table.writes import Refused, Write, key_of, never_landed
from chalicelib.doors.sqs import queue as sqs_queue
from chalicelib.doors.sqs.queue import NAME_CHARS_MAX, NAME_PATTERN, SqsQueue
from chalicelib.service import Service

T = TypeVar("T")

_ID_CHARS = 8

GROUP_SETTINGS = {"max_in_flight": IN_FLIGHT_MAX, "max_attempts": ENDLESS}
"""Settings of the groups that are made for queues."""
FIFO_SETTINGS = {"ordered": BY_KEY}
"""And of those that are made for FIFO queues."""
ADOPTED_SETTINGS = {"settle_by": BY_MESSAGE}
ADOPTED_FIFO_SETTINGS = {"settle_by": BY_DELIVERY}
"""Settings of all groups of queues, also of those that existed before."""


class QueueGone(SubscriptionGone):
    """There is no queue of this name."""


class TopicStands(Exception):
    """A topic that was made for no queue, or with other settings, has the name that the queue's own would have."""


class GroupUnfit(Exception):
    """The group that the queue was to take cannot serve it; the text says why."""


@record
class NewQueue:
    """`topic_settings`: of the topic to be made; None: the topic stands. `group_settings`: the requested ones. `start`:
    where in its topic a new group begins."""

    name: str
    topic: str
    topic_settings: Mapping[str, Any] | None
    group: str
    group_settings: Mapping[str, Any]
    attributes: Mapping[str, str]
    tags: Mapping[str, str]
    start: str = EARLIEST

    @property
    def adopted_settings(self) -> Mapping[str, Any]:
        return ADOPTED_FIFO_SETTINGS if sqs_queue.is_fifo(self.name) else ADOPTED_SETTINGS

    @property
    def made_settings(self) -> Mapping[str, Any]:
        return {**GROUP_SETTINGS, **FIFO_SETTINGS} if sqs_queue.is_fifo(self.name) else GROUP_SETTINGS


@record
class Standing:
    """A queue, its group and its topic, as they were read together."""

    queue: SqsQueue
    topic: Topic
    group: Group

    @property
    def name(self) -> str:
        return self.queue.name

    @property
    def id(self) -> str:
        return self.queue.id

    @property
    def owns_topic(self) -> bool:
        return self.queue.owns_topic


@record
class Change:
    """The attributes and tags that a queue is to have, and the settings of its group and its topic that change."""

    attributes: Mapping[str, str]
    tags: Mapping[str, str]
    group: Mapping[str, Any]
    topic: Mapping[str, Any]


class SqsQueues:
    def __init__(self, env: Env, log_offsets: Offsets, deletion: Deletion) -> None:
        self._store, self._runtime, self._catalogue = env.store, env.runtime, env.catalogue
        self._agenda = env.agenda
        self._log_offsets, self._deletion = log_offsets, deletion
        self._known: BoundedCache[tuple[int, Standing]] = env.caches.bounded(
            lambda _, kept: keys.owners(kept[1].group.key.pk)
        )

    # -- found --------------------------------------------------------------------------------------------------------

    def find(self, name: str) -> Standing:
        """At most `METADATA_AGE_MS_MAX` old; what this instance has changed is known to it at once. Raises
        QueueGone."""
        recent = self._recent(name)
        if recent is None:
            return self.current(name)
        topic = self._catalogue.refreshed(recent.topic)  # it may have got its first delayed message here
        return recent if topic is recent.topic else replace(recent, topic=topic)

    def _recent(self, name: str) -> Standing | None:
        read_at_ms, known = self._known.get(name) or (0, None)
        return known if known and self._runtime.uptime() - read_at_ms <= METADATA_AGE_MS_MAX else None

    def current(self, name: str) -> Standing:
        """Read again. A record that is left of a queue that is gone is removed. Raises QueueGone."""
        asked_at_ms = self._runtime.uptime()
        while queue := self._read(name):
            if standing := self._standing(queue):
                self._known.keep(name, (asked_at_ms, standing))
                return standing
            with suppress(Refused):  # removed, or made again, since it was read
                self._store.write(sqs_queue.remove(queue))
        self.forget(name)
        raise QueueGone(name)

    def serve(self, name: str, call: Callable[[Standing], T]) -> T:
        """Makes a call about the queue as this instance knows it; if that finds the topic or the group gone, about the
        queue as it is now. Raises QueueGone."""
        try:
            return call(self.find(name))
        except (TopicNotFound, GroupNotFound):
            return call(self.current(name))

    def id_of(self, name: str) -> str:
        """Raises QueueGone."""
        return self.named(name).id

    def named(self, name: str) -> SqsQueue:
        """The record alone, from the cheapest read: its topic or group may be gone. Raises QueueGone."""
        recent = self._recent(name)
        queue = recent.queue if recent else self._read(name, strong=False) or self._read(name)
        if queue is None:
            raise QueueGone(name)
        return queue

    def _write_together(self, writes: Sequence[Write]) -> None:
        """All or none. That another caller has changed a group to the same says nothing of the other writes."""
        self._store.write_together([replace(write, landed=never_landed) for write in writes])

    def forget(self, name: str) -> None:
        self._known.forget(name)

    def page(
        self, prefix: str, limit: int, after: str = "", is_wanted: Callable[[SqsQueue], bool] | None = None
    ) -> tuple[list[SqsQueue], str | None]:
        """Up to `limit` queues by name, of those whose names begin with the prefix, after this name; and the token of
        the next page (None: no more). `is_wanted`: which of them; all records after that name may be read then."""
        queues = self._records(prefix, after, PAGE_MAX if is_wanted else limit + 1)
        found = list(islice(filter(is_wanted, queues), limit + 1))
        return found[:limit], token_of(found[limit - 1].name) if len(found) > limit else None

    def _records(self, prefix: str, after: str, at_once: int) -> Iterator[SqsQueue]:
        """Those whose names begin with the prefix, after this name, in order."""
        if not re.fullmatch(f"[A-Za-z0-9_.-]{{0,{NAME_CHARS_MAX}}}", prefix):
            return
        low, high = max(prefix or keys.FIRST, after + keys.AFTER), prefix + keys.LAST
        while low <= high:  # otherwise the token is of a list of other names
            items = self._store.read([Range(keys.subscriptions(), low, high, limit=at_once, strong=True)])[0]
            yield from map(SqsQueue.of, items)
            if len(items) < at_once:
                return
            low = items[-1]["sk"] + keys.AFTER

    def _read(self, name: str, strong: bool = True) -> SqsQueue | None:
        is_possible = re.fullmatch(NAME_PATTERN, name)
        items = self._store.read([Keys([keys.subscription(name)], strong=strong)])[0] if is_possible else []
        return SqsQueue.of(items[0]) if items else None

    def _standing(self, queue: SqsQueue) -> Standing | None:
        """The queue with its topic and its group; None if one is gone."""
        self._catalogue.forget(queue.topic)
        groups_found = self._catalogue.read_beside([keys.group(queue.topic_id, queue.group)], queue.topic)
        with suppress(TopicNotFound):
            topic = self._catalogue.topic(queue.topic)
            if [topic.id, *(item["id"] for item in groups_found)] == [queue.topic_id, queue.group_id]:
                return Standing(queue, topic, Group.of(topic.id, queue.group, groups_found[0]))
        return None

    # -- made ---------------------------------------------------------------------------------------------------------

    def make(self, wanted: NewQueue) -> Standing | None:
        """The queue that has this name, or None: it was made. Raises TopicStands, TopicNotFound, GroupUnfit and
        InvalidField."""
        while True:
            with suppress(QueueGone):
                return self.current(wanted.name)
            with suppress(Refused):  # another caller has made it, or its group, since they were read
                self._create(wanted)
                return None

    def _create(self, wanted: NewQueue) -> None:
        if wanted.topic_settings is None:
            self._join(wanted, self._catalogue.current_topic(wanted.topic))
            return
        now = self._runtime.now()
        topic = Topic(wanted.topic, self._runtime.name(_ID_CHARS), now, is_owned=True, **wanted.topic_settings)
        group = self._new_group(topic, wanted)
        made = [sqs_queue.create(self._new(wanted, topic, group)), *topics.create(topic), *groups.create(group)]
        try:
            self._write_together(made)
        except Refused as refused:
            if not refused.before or refused.before["pk"] != topic.key.pk:
                raise
            self._take_again(wanted, Topic.of(refused.before))  # there was no record at that moment
        finally:
            self._catalogue.forget(topic.name)

    def _take_again(self, wanted: NewQueue, topic: Topic) -> None:
        """Makes the queue whose topic other groups have kept."""
        given = wanted.topic_settings or {}
        if not topic.is_owned or given.get("queues", topic.queues) != topic.queues:
            raise TopicStands(topic.name)
        self._join(replace(wanted, start=LATEST), topic)

    def _join(self, wanted: NewQueue, topic: Topic) -> None:
        """Makes a queue of a topic that stands."""
        standing = self._catalogue.groups_named(topic, [wanted.group])
        if standing:
            group = standing[0]
            _demand_fit(group, wanted)
            writes = [groups.change(group, {**wanted.group_settings, **wanted.adopted_settings})]
        else:
            group = self._new_group(topic, wanted)
            writes = groups.create(group)
        retention_ms = (wanted.topic_settings or {}).get("retention_ms", topic.retention_ms)
        if retention_ms != topic.retention_ms:
            writes.append(topics.change(topic, {"retention_ms": retention_ms}, self._runtime.now()))
        else:
            writes.append(topics.note_group(topic))
        self._write_together([sqs_queue.create(self._new(wanted, topic, group)), *writes])

    def _new_group(self, topic: Topic, wanted: NewQueue) -> Group:
        given = {**wanted.made_settings, **wanted.group_settings, **wanted.adopted_settings}
        is_late = wanted.start == LATEST
        purged_at_ms = self._past_what_waits() if is_late and topic.delays else None
        starts = self._log_offsets.ends(topic, topic.most) if is_late else []
        made = (self._runtime.name(_ID_CHARS), starts, self._runtime.now())
        return Group(topic.id, wanted.group, *made, purged_at_ms=purged_at_ms, start=wanted.start, **given)

    def _past_what_waits(self) -> int:
        """Until when all was sent that a new group is not to get though it comes later. By every clock, what was
        answered before this call is no later, and what is sent after it is."""
        purged_at_ms = self._runtime.now() + CLOCKS_APART_MS
        self._runtime.sleep(2 * CLOCKS_APART_MS + 1)
        return purged_at_ms

    def _new(self, wanted: NewQueue, topic: Topic, group: Group) -> SqsQueue:
        named = (topic.name, topic.id, group.name, group.id, wanted.topic_settings is not None)
        now = self._runtime.now()
        return SqsQueue(wanted.name, self._runtime.name(_ID_CHARS), *named, wanted.attributes, wanted.tags, now, now)

    # -- changed ------------------------------------------------------------------------------------------------------

    def change(self, name: str, change_of: Callable[[Standing], Change]) -> None:
        """Changes the queue as the function says, which is asked anew when another caller was faster. Raises QueueGone,
        InvalidField."""
        while True:
            standing = self.current(name)
            writes = self._changing(standing, change_of(standing))
            with suppress(Refused):  # another caller has changed or deleted it since it was read
                if len(writes) == 1:
                    self._store.write(writes[0])
                else:
                    self._write_together(writes)
                self.forget(name)
                self._catalogue.forget(standing.topic.name)
                return

    def _changing(self, standing: Standing, change: Change) -> list[Write]:
        now = self._runtime.now()
        writes = [sqs_queue.change(standing.queue, change.attributes, change.tags, now)]
        if change.group:
            is_sooner = change.group.get("max_attempts", ENDLESS) < standing.group.max_attempts
            if is_sooner:  # some leases may be the last now
                self._agenda.appoint(REVIVE, keys.subject(standing.topic.name, standing.group.name), now)
            writes.append(groups.change(standing.group, change.group))
        if change.topic:
            writes.append(topics.change(standing.topic, change.topic, now))
        return writes

    # -- deleted ------------------------------------------------------------------------------------------------------

    def delete(self, name: str, demand: Callable[[SqsQueue], None] = lambda _: None) -> None:
        """Deletes the queue with its group, and the topic if it was made for a queue, has no other group, and the
        caller may delete it; then what they leave, as far as time and the store allow. `demand` raises what it will if
        the queue must stay. Raises QueueGone."""
        standing = deleted = self.current(name)
        demand(deleted.queue)
        while standing.queue.id == deleted.queue.id:
            with_topic = self._ends_topic(standing)
            try:
                self._write_together(self._removal(standing, with_topic))
            except Refused:  # another caller has changed or deleted it since it was read, or has added a group
                try:
                    standing = self.current(name)
                except QueueGone:
                    return
            else:
                self.forget(name)
                self._catalogue.forget(standing.topic.name)
                self._clear(standing, with_topic)
                return

    def _ends_topic(self, standing: Standing) -> bool:
        topic = standing.topic
        is_last = topic.is_owned and self._names(standing) == [standing.group.name]
        return is_last and may(Need("admin", topic.name))

    def _removal(self, standing: Standing, with_topic: bool) -> list[Write]:
        topic = standing.topic
        removal = [sqs_queue.remove(standing.queue), *groups.remove(standing.group)]
        if with_topic:
            removal += topics.remove(topic)
        elif topic.is_owned:  # of two that go at once, one must see that it is the last
            removal.append(topics.change(topic, {}, self._runtime.now()))
        return removal

    def _names(self, standing: Standing) -> list[str]:
        return self._catalogue.names_of_groups(standing.topic)

    def _clear(self, deleted: Standing, with_topic: bool) -> None:
        until_ms = self._runtime.uptime() + PURGE_MS
        with suppress(StoreUnavailable):
            tasks = self._store.read([Range(keys.move_tasks(deleted.queue.id), keys.FIRST, keys.LAST, strong=True)])[0]
            self._store.remove_all([key_of(task) for task in tasks])
            if with_topic:
                self._deletion.topic(deleted.topic, until_ms)
            else:
                self._deletion.group(deleted.group, deleted.topic.most, until_ms)


def _demand_fit(group: Group, wanted: NewQueue) -> None:
    """Raises GroupUnfit."""
    if group.is_broadcast:
        raise GroupUnfit(f"group {group.name!r} is a broadcast group")
    if group.is_pushed:
        raise GroupUnfit(f"group {group.name!r} is pushed")
    if sqs_queue.is_fifo(wanted.name) and not group.is_by_key:
        raise GroupUnfit(f"group {group.name!r} is not ordered by key")


def queues_of(service: Service) -> SqsQueues:
    """The queues that SQS clients know, of this instance of the service."""
    return service.extension(_queues)


def moves_of(service: Service) -> Moves:
    """The move tasks of these queues."""
    return service.extension(_moves)


def _queues(service: Service) -> SqsQueues:
    return SqsQueues(service.env, service.log.offsets, service.admin.deletion)


def _moves(service: Service) -> Moves:
    parts = (service.delays, service.dead_letters, service.consuming, service.admin)
    return Moves(service.env, service.log, *parts, queues_of(service), service.stored)
