"""Administration of groups: creates, changes, deletes and resets them, and reports their progress.

The backlogs of all groups, for operators. Reading them costs as much as reading the progress of each group, so one
look serves a minute."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property, partial
from itertools import chain, islice
from typing import Any, TypeVar

from chalicelib.core.access.callers import may
from chalicelib.core.access.rights import Need
from chalicelib.core.admin.topics import Deletion, Topics
from chalicelib.core.base.errors import Forbidden, InvalidField, StoreUnavailable, TopicNotFound
from chalicelib.core.base.fields import quoted, shown
from chalicelib.core.base.limits import (
    BACKLOG_GROUPS_MAX,
    CLOCKS_APART_MS,
    GROUP_DETAILS_MAX,
    MINUTE_MS,
    PAGE_DEFAULT,
    PURGE_MS,
    SECOND_MS,
)
from chalicelib.core.base.records import record
from chalicelib.core.base.runtime import Runtime
from chalicelib.core.catalogue import group, push, settings
from chalicelib.core.catalogue import topic as topics
from chalicelib.core.catalogue.agenda import ALWAYS_MS, CHECK, PUSH, REVIVE
from chalicelib.core.catalogue.catalogue import Env
from chalicelib.core.catalogue.group import Group
from chalicelib.core.catalogue.group_forms import AlarmState, Filter
from chalicelib.core.catalogue.topic import ALARMS, PUSHES, Topic
from chalicelib.core.cursors import Cursors
from chalicelib.core.cursors.cursor import Cursor, all_cursors_of, joined, pages_of, standing_cursors_of
from chalicelib.core.cursors.progress import QueueProgress, of_group
from chalicelib.core.log import Log
from chalicelib.core.log.reader import Want, stored_at
from chalicelib.core.store.paging import page
from chalicelib.core.table import keys
from chalicelib.core.table.writes import Item, Refused, Write

T = TypeVar("T")

LOOK_EVERY_MS = MINUTE_MS
LOOK_MS = 5 * SECOND_MS
"""How long one look may take: after that it reads no further page."""

_log = logging.getLogger("decant")


class _Cut(Exception):
    """A look ends before it has read all groups."""


class Backlogs:
    def __init__(self, runtime: Runtime, topics: Topics, groups: Groups) -> None:
        self._runtime, self._topics, self._groups = runtime, topics, groups
        self._lock = threading.Lock()
        self._looked_at_ms: int | None = None
        self._at_ms = 0
        self._known: list[tuple[Topic, GroupDetails]] = []
        self._is_whole = True

    def read(self) -> tuple[int, list[tuple[Topic, GroupDetails]], bool]:
        """When the backlogs were read, the groups by topic and name, and whether these are all groups. They are at most
        a minute old unless later looks have failed; then the third value is False. 0: no look has succeeded yet."""
        with self._lock:  # others wait for the look that is under way
            now = self._runtime.uptime()
            if self._looked_at_ms is None or now - self._looked_at_ms >= LOOK_EVERY_MS:
                self._looked_at_ms, self._is_whole = now, False
                try:
                    self._look(now + LOOK_MS)
                except StoreUnavailable as trouble:
                    _log.warning("the backlogs could not be read: %s", trouble)
            return self._at_ms, self._known, self._is_whole

    def _look(self, until_ms: int) -> None:
        at_ms, known, is_whole = self._runtime.now(), list[tuple[Topic, GroupDetails]](), True
        try:
            for place in self._all(until_ms):
                if len(known) >= BACKLOG_GROUPS_MAX:
                    raise _Cut
                known.append(place)
        except _Cut:
            is_whole = False
        self._at_ms, self._known, self._is_whole = at_ms, known, is_whole

    def _all(self, until_ms: int) -> Iterator[tuple[Topic, GroupDetails]]:
        for topic in self._each(partial(self._topics.page, PAGE_DEFAULT), until_ms):
            for details in self._each(partial(self._groups.page, topic, GROUP_DETAILS_MAX), until_ms):
                yield topic, details

    def _each(self, page: Callable[[str | None], tuple[Sequence[T], str | None]], until_ms: int) -> Iterator[T]:
        """The items of all pages, read one page at a time. Raises _Cut."""
        token, is_last = None, False
        while not is_last:
            if self._runtime.uptime() > until_ms:
                raise _Cut
            items, token = page(token)
            yield from items
            is_last = token is None


_ID_CHARS = 8


OneQueue = tuple[int, int]
"""The target of a reset of one queue: the queue, and an offset in it."""


@record
class GroupDetails:
    group: Group
    queues: list[QueueProgress]
    alarm_state: str | None
    """None: the group has no alarm."""
    left_dead: int
    """Dead letters of queues that have left the topic."""


@record
class StoredGroup:
    """A group and the items of its pages."""

    topic: Topic
    group: Group
    items: list[Item]

    @cached_property
    def cursors(self) -> list[Cursor]:
        return all_cursors_of(self.group, self.topic, self.items)

    @cached_property
    def stored_cursors(self) -> list[Cursor]:
        """All cursors that exist, including those in queues that consumers no longer read."""
        return standing_cursors_of(self.group, self.items)

    @cached_property
    def alarm_state(self) -> AlarmState:
        return AlarmState.of(next((item for item in self.items if item["sk"] == self.group.alarm_key.sk), None))


class Groups:
    def __init__(self, env: Env, log: Log, cursors: Cursors, deletion: Deletion) -> None:
        self._store, self._runtime = env.store, env.runtime
        self._catalogue, self._agenda, self._deletion = env.catalogue, env.agenda, deletion
        self._reader, self._log_offsets = log.reader, log.offsets
        self._retries, self._consumers = cursors.retries, cursors.consumers

    def put(self, topic: Topic, name: str, given: Mapping[str, Any]) -> tuple[Group, bool]:
        """Creates the group, or changes the given settings. Returns it, and whether it is new. Raises
        TopicNotFound."""
        while True:
            existing = self._catalogue.groups_named(topic, [name])
            try:
                if existing:
                    return self._change(topic, existing[0], given), False
                return self._create(topic, name, given), True
            except Refused:
                continue  # another caller created or deleted it since it was read

    def _change(self, topic: Topic, current: Group, given: Mapping[str, Any]) -> Group:
        fixed = {field: getattr(current, field) for field in group.FIXED}
        settings.demand_unchanged("group", current.name, fixed, given)
        push.demand_pushable(given.get("push"), current.is_broadcast, current.secrets)
        self._demand_dead_topic(topic, given)
        self._tell_sweeps(topic, given)
        if given.get("max_attempts", current.max_attempts) < current.max_attempts:  # some leases may be the last now
            self._agenda.appoint(REVIVE, keys.subject(topic.name, current.name), self._runtime.now())
        if not given.keys() - {"start", *group.FIXED}:
            return current
        asked_at_ms = self._runtime.uptime()
        changed = Group.of(current.topic_id, current.name, self._store.write(group.change(current, given)))
        self._catalogue.keep_group(changed, asked_at_ms)
        return changed

    def _create(self, topic: Topic, name: str, given: Mapping[str, Any]) -> Group:
        push.demand_pushable(given.get("push"), given.get("mode") == group.BROADCAST, ())
        self._demand_dead_topic(topic, given)
        self._tell_sweeps(topic, given)
        starts = self._offsets(topic, given.get("start", group.DEFAULTS["start"]), topic.most)
        made = Group(topic.id, name, self._runtime.name(_ID_CHARS), starts, self._runtime.now(), **given)
        try:
            self._store.write_together([*group.create(made), topics.note_group(topic)])
        except Refused as refused:
            if not refused.before or refused.before["pk"] == topic.key.pk:
                raise TopicNotFound(f"topic '{topic.name}' does not exist any more") from None
            raise
        self._keep_draining(topic)
        return made

    def _demand_dead_topic(self, topic: Topic, given: Mapping[str, Any]) -> None:
        """Raises InvalidField if dead messages cannot move to the topic, and Forbidden if the caller may not send to
        it."""
        name = given["dead_letters"].topic if given.get("dead_letters") else None
        if name == topic.name:
            raise InvalidField(f"field 'dead_letters.topic' must be another topic than the group's own, {quoted(name)}")
        if name is not None:
            if not may(Need("produce", name)):
                raise Forbidden(
                    f"the token has no right to 'produce' for topic {quoted(name)} in field 'dead_letters.topic'"
                )
            try:
                self._catalogue.current_topic(name)
            except TopicNotFound:
                raise InvalidField(
                    f"field 'dead_letters.topic' must name an existing topic; it is {shown(name)}"
                ) from None

    def _tell_sweeps(self, topic: Topic, given: Mapping[str, Any]) -> None:
        """Makes the appointments that the new settings need, and has sends to the topic make them, before a group needs
        them. Raises TopicNotFound."""
        if given.get("push") and given["push"].given:
            self._agenda.appoint(PUSH, topic.name, ALWAYS_MS)
            if not topic.pushes:
                self._catalogue.begin(topic, PUSHES)
        if given.get("alarm") and given["alarm"].given:
            self._agenda.appoint(CHECK, topic.name, ALWAYS_MS)
            if not topic.alarms:
                self._catalogue.begin(topic, ALARMS)
        self._agenda.note_ready(topic)  # a group that was paused, or had another filter, may have something to do

    def adopt_filter(self, topic: Topic, name: str, wanted: Filter) -> Group:
        """Gives the group this filter if it has none. Only one of several concurrent calls succeeds. Returns the
        current group. Raises GroupNotFound."""
        while True:
            current = self._catalogue.group(topic, name)
            if current.filter is not None:
                return current
            with suppress(Refused):  # another caller changed it since it was read
                return Group.of(topic.id, name, self._store.write(group.change(current, {"filter": wanted})))

    def details(self, topic: Topic, name: str) -> GroupDetails:
        """The group and its progress, queue by queue. Raises GroupNotFound."""
        return self._details(topic, [self._catalogue.group(topic, name)])[0]

    def page(self, topic: Topic, limit: int, token: str | None) -> tuple[list[GroupDetails], str | None]:
        """Up to `limit` groups by name, at most `GROUP_DETAILS_MAX`, and the token of the next page (None: no more)."""
        listed, rest = page(self._store, keys.groups(topic.id), min(limit, GROUP_DETAILS_MAX), token)
        groups = self._catalogue.groups_named(topic, [item["sk"] for item in listed])
        return self._details(topic, groups), rest

    def delete(self, topic: Topic, name: str) -> None:
        """Deletes the group, then its cursors and dead letters, which are then unreachable."""
        deleted = self._catalogue.group(topic, name)
        with suppress(Refused):  # another caller was faster
            self._store.write_together(group.remove(deleted))
        with suppress(StoreUnavailable):
            self._deletion.group(deleted, topic.most, self._runtime.uptime() + PURGE_MS)

    def reset(self, topic: Topic, name: str, to: str | int | OneQueue) -> GroupDetails:
        """Moves the group to the earliest or latest offsets or to an instant, or one of its queues to an offset.
        Earlier leases and retries become void. Repeating a reset that failed half-way completes it."""
        if to == group.NOW:
            return self._purge(name, self._catalogue.current_topic(topic.name))
        current = self._catalogue.group(topic, name)
        if current.purged_at_ms and not isinstance(to, tuple):
            current = self._noted(topic, name, group.lift_purge)
        self._agenda.note_ready(topic)
        self._consumers.move(self._consumers.moving(topic, current, self._targets(topic, to)))
        self._keep_draining(topic)
        return self.details(topic, name)

    def _purge(self, name: str, topic: Topic) -> GroupDetails:
        """Moves the group to the ends, and excludes messages that were sent before and wait. `topic`: read just now.

        Waiting messages carry the time of their sender's clock, which may be `CLOCKS_APART_MS` ahead or behind. The
        purge therefore covers messages sent up to this much later, and returns when every clock has passed that
        instant. So it covers every message sent before it began, and none sent after it returned. If no message waits,
        it covers messages sent up to this much earlier, and need not wait."""
        lead_ms = CLOCKS_APART_MS if topic.delays else -CLOCKS_APART_MS - 1

        def purge(current: Group) -> Write:
            return group.purge(current, max(self._runtime.now() + lead_ms, current.last_purge_ms + 1))

        purged = self._noted(topic, name, purge)
        ends = dict(enumerate(self._log_offsets.ends(topic)))
        self._consumers.move(self._consumers.moving(topic, purged, ends), purged.purged_at_ms)
        self._keep_draining(topic)
        ahead_ms = min((purged.purged_at_ms or 0) - self._runtime.now(), 2 * CLOCKS_APART_MS)
        if ahead_ms + CLOCKS_APART_MS >= 0:
            self._runtime.sleep(ahead_ms + CLOCKS_APART_MS + 1)
        return self.details(topic, name)

    def _noted(self, topic: Topic, name: str, change: Callable[[Group], Write]) -> Group:
        """The group after this change of it. Raises GroupNotFound."""
        while True:
            current = self._catalogue.group(topic, name)
            with suppress(Refused):  # another caller changed it since it was read
                return Group.of(topic.id, name, self._store.write(change(current)))

    def _keep_draining(self, topic: Topic) -> None:
        """Call it after a group has got unsettled messages in the queues of this topic. A settled queue that was about
        to leave then stays, and one that has left since the topic was read is read again."""
        is_kept = not topic.draining
        while not is_kept and (current := self._catalogue.current_topic(topic.name)).id == topic.id:
            self._agenda.appoint(CHECK, topic.name, ALWAYS_MS)
            with suppress(Refused):  # the topic has changed since it was read
                self._store.write(topics.read(current, max(current.readers, topic.readers)))
                is_kept = True

    def _targets(self, topic: Topic, to: str | int | OneQueue) -> dict[int, int]:
        if not isinstance(to, tuple):
            starts = self._offsets(topic, to, topic.readers) or [0] * topic.readers
            return dict(enumerate(starts))
        queue, offset = to
        first = self._log_offsets.firsts(topic, self._runtime.now())[queue]
        end = self._log_offsets.ends(topic)[queue]
        if not first <= offset <= end:
            raise InvalidField(f"field 'to.offset' must be from {first} to {end} in queue {queue}; it is {offset}")
        return {queue: offset}

    def _offsets(self, topic: Topic, start: str | int, queues: int) -> list[int]:
        """The offset in each of the first queues for this start; an empty list: the beginning."""
        if start == "earliest":
            return []
        if start == "latest":
            return self._log_offsets.ends(topic, queues)
        return self._log_offsets.offsets_at(topic, int(start), queues)

    def _details(self, topic: Topic, groups: Sequence[Group]) -> list[GroupDetails]:
        """Details of all these groups in parallel: the number of round trips does not depend on the number of
        groups."""
        if not groups:
            return []
        now = self._runtime.now()
        firsts, ends = self._log_offsets.firsts(topic, now), self._log_offsets.ends(topic)
        pages = [pages_of(topic, group.name, strong=True) for group in groups]
        held = joined(pages, self._store.read([*chain.from_iterable(pages)]))
        stored = [StoredGroup(topic, group, items) for group, items in zip(groups, held, strict=True)]
        cursors = iter(self._retries.unfolded([cursor for group in stored for cursor in group.cursors]))
        unfolded = [list(islice(cursors, len(group.cursors))) for group in stored]
        ripe = {delay_ms: self._ripe(topic, now, delay_ms) for delay_ms in {group.delay_ms for group in groups}}
        queues = [
            of_group(group, own, firsts, ends, now, ripe[group.delay_ms])
            for group, own in zip(groups, unfolded, strict=True)
        ]
        return [
            GroupDetails(
                group.group,
                own,
                group.alarm_state.state if group.group.has_alarm else None,
                left_dead=sum(cursor.dead for cursor in group.stored_cursors if cursor.queue >= topic.readers),
            )
            for group, own in zip(stored, self._with_oldest(topic, queues), strict=True)
        ]

    def _ripe(self, topic: Topic, now: int, delay_ms: int) -> list[int]:
        """For each queue, the offset from which on this `delay_ms` holds messages back."""
        return self._log_offsets.offsets_at(topic, now - delay_ms + 1) if delay_ms else []

    def _with_oldest(self, topic: Topic, groups: Sequence[list[QueueProgress]]) -> list[list[QueueProgress]]:
        """The progress of each group with the time of storing of the first ready message of each queue."""
        parts = [part for queues in groups for part in queues]
        heads = {(part.queue, part.first_ready) for part in parts if part.first_ready is not None}
        wants = {head: Want(topic.logs[head[0]], head[1], 1, None) for head in heads}
        chains = dict(zip(wants, self._reader.chains(list(wants.values()), strong=True), strict=True))
        stored: dict[tuple[int, int | None], int]
        stored = {head: stored_at(found, head[1]) for head, found in chains.items() if found}
        return [
            [replace(part, oldest_ready_at_ms=stored.get((part.queue, part.first_ready))) for part in queues]
            for queues in groups
        ]
