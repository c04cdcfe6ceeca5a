"""Looks up topics and groups, and is part of the environment that every room is built from. An instance caches a topic
for a few seconds."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from contextlib import suppress

from chalicelib.core.base import deadline
from chalicelib.core.base.cache import BoundedCache, Caches
from chalicelib.core.base.errors import GroupNotFound, InvalidField, StoreUnavailable, TopicNotFound
from chalicelib.core.base.fields import demand_name
from chalicelib.core.base.limits import HOP_MS_MIN, METADATA_AGE_MS_MAX, NAME_PATTERN, QUEUES_MAX, SECOND_MS
from chalicelib.core.base.records import record
from chalicelib.core.base.runtime import Runtime
from chalicelib.core.catalogue import topic as topics
from chalicelib.core.catalogue.agenda import Agenda
from chalicelib.core.catalogue.group import Group
from chalicelib.core.catalogue.group_forms import AlarmState
from chalicelib.core.catalogue.topic import Topic, begin, is_readable
from chalicelib.core.store import Keys, Range, Store
from chalicelib.core.table import keys
from chalicelib.core.table.writes import Item, Key, Refused, key_of
from chalicelib.core.telemetry.telemetry import Telemetry

# -- more queues for an overloaded topic ------------------------------------------------------------------------------

APPENDS_PER_SECOND_MAX = 300
"""With more appends to one log, a topic gets more queues. At twice this rate, single messages of many instances reach
the 1,000 write units a second of a partition key."""
CROWDED_LEASES = 64
"""With more leases in one cursor, a topic gets more queues: every 32 leases cost a claim one more write unit."""
GROWTH = 4
"""The factor of each growth: few changes, and a quarter of the load for each queue."""
MEASURED_MS_MIN, MEASURED_MS_MAX = SECOND_MS, 10 * SECOND_MS
"""An instance measures a log between two of its own appends this far apart."""
TRIED_MS = 10 * SECOND_MS
"""How long an instance waits after a failed growth before it tries again."""

_log = logging.getLogger(__name__)


@record
class _Seen:
    """The end of a log at an instant of `Runtime.uptime`, under this version of the topic."""

    version: int
    at_ms: int
    end: int


class Growth:
    """Gives topics with `queues` set to "auto" more queues while their logs or cursors are overloaded.

    The instance that sees the load changes the topic as an operator would: readers first, writers once every instance
    has read the change. Since keys then move to other queues, a topic does not grow while it has an ordered group,
    zones, or draining queues. A group that is created meanwhile changes the topic, so the store refuses the growth."""

    def __init__(self, store: Store, runtime: Runtime, catalogue: Catalogue, caches: Caches) -> None:
        self._store, self._runtime, self._catalogue = store, runtime, catalogue
        self._seen: BoundedCache[_Seen] = caches.bounded(lambda log, _: keys.owners(log))
        self._tried_at_ms: BoundedCache[int] = caches.bounded(lambda topic_id, _: [topic_id])

    def appended(self, topic: Topic, log: str, end: int, appends_per_message: float) -> None:
        """Notes an append of this instance, and the end of the log after it."""
        if not self._may_grow(topic):
            return
        now, before = self._runtime.uptime(), self._seen.get(log)
        ms = now - before.at_ms if before and before.version == topic.version else MEASURED_MS_MAX + 1
        if ms < MEASURED_MS_MIN:
            return
        self._seen.keep(log, _Seen(topic.version, now, end))
        if before and ms <= MEASURED_MS_MAX:
            per_second = (end - before.end) * appends_per_message * SECOND_MS / ms
            if per_second > APPENDS_PER_SECOND_MAX:
                self._grow(topic, f"{per_second:.0f} appends a second to {log}")

    def leased(self, topic: Topic, leases: int) -> None:
        """Notes how many leases a pop found in one cursor."""
        if leases > CROWDED_LEASES and self._may_grow(topic):
            self._grow(topic, f"{leases} leases in one cursor")

    def _may_grow(self, topic: Topic) -> bool:
        """Whether the topic grows automatically and its last change has taken effect."""
        is_settled = topic.writers(self._runtime.now()) == topic.queues == topic.readers
        return topic.queues_auto and topic.queues < QUEUES_MAX and is_settled

    def _grow(self, topic: Topic, reason: str) -> None:
        now, tried_at_ms = self._runtime.uptime(), self._tried_at_ms.get(topic.id)
        if tried_at_ms is not None and now - tried_at_ms < TRIED_MS:
            return
        aside = deadline.aside(now + HOP_MS_MIN)
        with suppress(Refused, StoreUnavailable, TopicNotFound, InvalidField), aside:  # the last: too many changes
            current = self._catalogue.current_topic(topic.name)
            if current.version != topic.version or current.id != topic.id:
                return  # the measurement is of another state
            self._tried_at_ms.keep(topic.id, now)
            if self._has_places(current):
                return
            queues = min(GROWTH * current.queues, QUEUES_MAX)
            self._store.write(topics.change(current, {"queues": queues}, self._runtime.now()))
            self._catalogue.forget(topic.name)
            _log.info("topic %r has %d queues now: %s", topic.name, queues, reason)

    def _has_places(self, topic: Topic) -> bool:
        """Whether anything depends on the queues of keys."""
        return bool(topic.known_zones.given) or any(group.ordered for group in self._catalogue.groups(topic))


# -- the catalogue ----------------------------------------------------------------------------------------------------


class Catalogue:
    def __init__(self, store: Store, runtime: Runtime, caches: Caches) -> None:
        self._store, self._runtime, self._caches = store, runtime, caches
        self._topics: BoundedCache[tuple[int, Topic]] = caches.bounded(lambda _, kept: [kept[1].id])
        self._groups: BoundedCache[tuple[int, Group]] = caches.bounded(lambda _, kept: keys.owners(kept[1].key.pk))
        self._group_names: BoundedCache[str] = caches.bounded(
            lambda key, name: keys.owners(keys.group_partition(key[0], name))
        )
        """By topic id and group id."""

    def topic(self, name: str) -> Topic:
        """The topic, at most `METADATA_AGE_MS_MAX` old. Raises TopicNotFound, InvalidName."""
        return self._recent(name) or self.current_topic(name)

    def _recent(self, name: str) -> Topic | None:
        read_at_ms, topic = self._topics.get(name) or (0, None)
        return topic if topic and self._runtime.uptime() - read_at_ms <= METADATA_AGE_MS_MAX else None

    def current_topic(self, name: str) -> Topic:
        """The topic, read again. Raises TopicNotFound, InvalidName."""
        demand_name("topic", name)
        asked_at_ms = self._runtime.uptime()
        return self._known(name, self._store.read([Keys([keys.topic(name)], strong=True)])[0], asked_at_ms)

    def _known(self, name: str, items: Sequence[Item], asked_at_ms: int) -> Topic:
        """Its age counts from before the read, which may miss changes made meanwhile."""
        if (before := self._topics.get(name)) and (not items or items[0]["id"] != before[1].id):
            self._caches.forget(before[1].id)  # deleted through another instance
        if not items:
            self.forget(name)
            raise TopicNotFound(f"topic '{name}' does not exist")
        topic = Topic.of(items[0])
        self._topics.keep(name, (asked_at_ms, topic))
        return topic

    def read_beside(self, wanted: Sequence[Key], topic_name: str | None) -> Sequence[Item]:
        """Reads these items and, in the same round trip, the topic of this name, if it should be cached and is not."""
        if topic_name is None or self._recent(topic_name) or not re.fullmatch(NAME_PATTERN, topic_name):
            return self._store.read([Keys(wanted, strong=True)])[0]
        asked_at_ms, topic_read = self._runtime.uptime(), Keys([keys.topic(topic_name)], strong=True)
        items, topic_items = self._store.read([Keys(wanted, strong=True), topic_read])
        with suppress(TopicNotFound):
            self._known(topic_name, topic_items, asked_at_ms)
        return items

    def refreshed(self, topic: Topic) -> Topic:
        """The same incarnation, at most `METADATA_AGE_MS_MAX` old; unchanged if it was deleted."""
        with suppress(TopicNotFound):
            known = self.topic(topic.name)
            topic = known if known.id == topic.id else topic
        return topic

    def glanced_at(self, topic: Topic) -> Topic:
        """The same incarnation from a cheap read, which may be stale; unchanged if the read shows another one."""
        items = self._store.read([Keys([topic.key])])[0]
        if not items or items[0]["id"] != topic.id:
            return topic
        glanced = Topic.of(items[0])
        if glanced != topic:
            self.forget(topic.name)
        return glanced

    def topics_named(self, names: Sequence[str]) -> list[Topic]:
        """Those of these topics that exist in this release's form, in this order, read again."""
        items = self._store.read([Keys([keys.topic(name) for name in names], strong=True)])[0] if names else []
        return [Topic.of(item) for item in items if is_readable(item)]

    def begin(self, topic: Topic, feature: str) -> None:
        """Records that the topic may have `DELAYS`, `PUSHES` or `ALARMS` from now on. Raises TopicNotFound."""
        try:
            self._store.write(begin(topic, feature))
        except Refused:
            raise TopicNotFound(f"topic '{topic.name}' does not exist any more") from None
        self.forget(topic.name)

    def forget(self, name: str) -> None:
        self._topics.forget(name)

    def group(self, topic: Topic, name: str) -> Group:
        """The group, read again. Raises GroupNotFound."""
        groups = self.groups_named(topic, [name])
        if not groups:
            raise GroupNotFound(f"topic '{topic.name}' has no group '{name}'")
        return groups[0]

    def seen_group(self, topic: Topic, name: str, age_ms_max: int | None = None) -> Group | None:
        """The group as this instance last read it, at most this long ago, or None."""
        seen_at_ms, group = self._groups.get((topic.id, name)) or (0, None)
        return group if age_ms_max is None or self._runtime.uptime() - seen_at_ms <= age_ms_max else None

    def keep_group(self, group: Group, asked_at_ms: int) -> None:
        """Caches a group that was read or changed at this time."""
        self._groups.keep((group.topic_id, group.name), (asked_at_ms, group))

    def group_name(self, topic_id: str, group_id: str) -> str | None:
        """The name of the group with this id, even if it was deleted since; None if there is none."""
        if self._group_names.get((topic_id, group_id)) is None:
            for item in self._store.read([Range(keys.groups(topic_id), keys.FIRST, keys.LAST, strong=True)])[0]:
                self._group_names.keep((topic_id, item["listed"]), item["sk"])
        return self._group_names.get((topic_id, group_id))

    def alarm_state(self, group: Group) -> AlarmState:
        """The state of the group's alarm, read again."""
        items = self._store.read([Keys([group.alarm_key], strong=True)])[0]
        return AlarmState.of(items[0] if items else None)

    def groups(self, topic: Topic) -> list[Group]:
        """All groups of the topic by name, read again."""
        return self.groups_named(topic, self.names_of_groups(topic))

    def names_of_groups(self, topic: Topic) -> list[str]:
        """The names of all groups of the topic, in order, read again: some 100 bytes each."""
        listed = self._store.read([Range(keys.groups(topic.id), keys.FIRST, keys.LAST, strong=True)])[0]
        return [item["sk"] for item in listed]

    def groups_named(self, topic: Topic, names: Sequence[str]) -> list[Group]:
        """Those of these groups that exist, in this order."""
        asked_at_ms = self._runtime.uptime()
        wanted = {keys.group(topic.id, name): name for name in names}
        items = self._store.read([Keys(list(wanted), strong=True)])[0] if wanted else []
        groups = [Group.of(topic.id, wanted[key_of(item)], item) for item in items]
        for group in groups:
            self.keep_group(group, asked_at_ms)
        return groups


@record
class Env:
    """The parts that every room is built from: the store, clock and randomness, cached look-ups, the agenda of the
    sweeps, the growth of topics, telemetry, and the caches of topics."""

    store: Store
    runtime: Runtime
    catalogue: Catalogue
    agenda: Agenda
    growth: Growth
    telemetry: Telemetry
    caches: Caches

    @classmethod
    def over(cls, store: Store, runtime: Runtime, telemetry: Telemetry) -> Env:
        caches = Caches()
        catalogue, agenda = Catalogue(store, runtime, caches), Agenda(store, runtime, caches)
        growth = Growth(store, runtime, catalogue, caches)
        return cls(store, runtime, catalogue, agenda, growth, telemetry, caches)
