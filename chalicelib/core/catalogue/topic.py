"""A topic: its settings, and the writes that create, change and delete it.

The numbers of queues that a topic reads and writes while `queues` changes.

Readers come first: instances read new queues at once, but write to them only from an instant by which every instance
knows the change. When the number falls, writers leave first, and readers leave a queue once it is settled
(`admin.draining`)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import KW_ONLY, replace
from functools import cached_property
from itertools import takewhile
from typing import Any, NamedTuple

from chalicelib.core.base import limits
from chalicelib.core.base.errors import Internal, InvalidField
from chalicelib.core.base.fields import (
    Label,
    array,
    check,
    defaults,
    flag,
    integer,
    mapping,
    one_of,
    optional,
    quoted,
    string,
)
from chalicelib.core.base.limits import HEARD_MS, HOUR_MS, NAME_PATTERN, QUEUES_MAX
from chalicelib.core.base.message import QUEUE
from chalicelib.core.base.records import record
from chalicelib.core.catalogue import settings
from chalicelib.core.catalogue.settings import AsGiven
from chalicelib.core.table import keys
from chalicelib.core.table.writes import Add, Equals, Item, Key, RemoveItem, Set, Write

# -- zones: the queues near each site ---------------------------------------------------------------------------------

ZONE = string(pattern=NAME_PATTERN, examples=["zone-a"])
ZONES = mapping(
    propertyNames={"pattern": NAME_PATTERN},
    additionalProperties=array(QUEUE, minItems=1, maxItems=QUEUES_MAX, uniqueItems=True),
    examples=[{"zone-a": [0], "zone-b": [1]}],
)


class Zones(AsGiven):
    """`given`: the queues of each zone, by its name. Empty: no zones."""

    def queues(self, zone: str | None) -> tuple[int, ...]:
        return tuple(self.given.get(zone, ()))

    def zone_of(self, queue: int) -> str | None:
        """None: the queue is near all sites."""
        return next((zone for zone, queues in self.given.items() if queue in queues), None)

    def demand(self, zone: str, label: Label) -> None:
        """Raises InvalidField if there is no such zone."""
        if zone not in self.given:
            known = ", ".join(map(quoted, self.given)) or "none"
            raise label.wrong(f"a zone of the topic, which has {known}", zone)

    def demand_queues(self, count: int) -> None:
        """Raises InvalidField if a zone names a queue that a topic with this many queues lacks."""
        for zone, queues in self.given.items():
            if (queue := max(queues)) >= count:
                raise InvalidField(
                    f"{_zone_label(zone)} names queue {queue}, but field 'queues' is {count}: queues count from 0"
                )


NO_ZONES = Zones({})


def parse_zones(data: object, label: Label) -> Zones:
    """Raises InvalidField."""
    if not isinstance(data, dict):
        raise label.wrong('an object with a list of queues for each zone, as {"zone-a": [0, 1]}', data)
    owners: dict[int, str] = {}
    for zone, queues in data.items():
        if not re.fullmatch(NAME_PATTERN, zone):
            raise InvalidField(f"{label} names zone {quoted(zone)}; a name must match {NAME_PATTERN}")
        if not isinstance(queues, list) or not queues:
            raise _zone_label(zone).wrong("a list of at least one queue", queues)
        for queue in queues:
            check(QUEUE, queue, _zone_label(zone))
            if queue in owners:
                raise InvalidField(
                    f"{_zone_label(zone)} names queue {queue}, which is in zone {quoted(owners[queue])} already"
                )
            owners[queue] = zone
    return Zones(data)


def _zone_label(zone: str) -> Label:
    return Label(f"zones.{zone}")


# -- topics -----------------------------------------------------------------------------------------------------------

PLACED_KEPT_MS = HOUR_MS
"""How long a placement is kept after the next one has replaced it."""
CHANGES_MAX = 50
"""The most changes that a topic records, besides where it began: pops read them with its other settings."""


class Scaling(NamedTuple):
    """`readers`: how many queues are read. `most`: the most queues that the topic ever had; those that have left keep
    their logs. `placements`: pairs of an instant and a number of queues; from that instant on, by its own clock, a
    producer uses that many queues."""

    readers: int
    most: int
    placements: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, queues: int, attributes: Mapping[str, Any]) -> Scaling:
        """From a topic's item, which has none of these attributes before the first change."""
        placements = attributes.get("placements", ((0, queues),))
        placed = tuple((from_ms, count) for from_ms, count in placements)
        return cls(attributes.get("readers", queues), attributes.get("most", queues), placed)

    def as_attributes(self) -> dict[str, Any]:
        return {"readers": self.readers, "most": self.most, "placements": [list(placed) for placed in self.placements]}

    def writers(self, now: int) -> int:
        """How many queues producers use now."""
        counts = [count for from_ms, count in self.placements if from_ms <= now] or [self.placements[0][1]]
        return min(counts[-1], self.readers)

    def unwritten_since(self, queue: int) -> int:
        """Since when, by the producers' clocks, no message goes to a draining queue."""
        return min(from_ms for from_ms, _ in takewhile(lambda placed: placed[1] <= queue, reversed(self.placements)))

    def resized(self, queues: int, now: int) -> Scaling:
        """The scaling after a change to this number of queues, decided now."""
        from_ms = max(now + HEARD_MS, self.placements[-1][0] + 1)
        placements = (*self.placements, (from_ms, queues))
        ends = [*(from_ms for from_ms, _ in placements[1:]), from_ms + 1]
        kept = tuple(placed for placed, end_ms in zip(placements, ends, strict=True) if end_ms > now - PLACED_KEPT_MS)
        return Scaling(max(self.readers, queues), max(self.most, queues), kept)

    def reading(self, readers: int) -> Scaling:
        """The same with this many queues read."""
        return self._replace(readers=readers)


RAISES_MAX = 50
"""The most raises of the retention that a topic records: a pop reads them with the other settings."""

_UNAWARE_MS = limits.MINUTE_MS
"""How long after a raise a call that began with the old settings may still store messages with the old time to live:
some 15 s, `METADATA_AGE_MS_MAX` and `STORE_DEADLINE_MS`, and a margin for differing clocks."""


AUTO = "auto"
_QUEUES = one_of(
    integer(1, limits.QUEUES_MAX), {"type": "string", "enum": [AUTO]}, default=limits.QUEUES_DEFAULT, examples=[2]
)
UNLIMITED = "unlimited"
_MAX_DEPTH = one_of(integer(1, limits.OFFSET_MAX), {"type": "string", "enum": [UNLIMITED]}, examples=[10_000])


def _max_depth(value: object, label: Label) -> int:
    """0: unlimited. A removed setting needs a value, since None is not stored."""
    given = check(_MAX_DEPTH, value, label)
    return 0 if given == UNLIMITED else int(given)


@record
class TopicSettings:
    """The settings of a topic.

    queues: How many queues (partitions) the topic has. It can be changed while the topic is in use: producers use the
        new number {HEARD_MS} ms later, and consumers read surplus queues until they are settled. With `"auto"`, a new
        topic has {QUEUES_DEFAULT} queues and grows fourfold, up to {QUEUES_MAX}, whenever a queue is overloaded, except
        while the topic has an ordered group or zones. A number turns that off.
    retention_ms: How long a message can be read after it was stored, in milliseconds. A higher value applies only to
        messages stored from then on.
    index_keys: Whether messages can be looked up by `key`. Takes effect within seconds, for new messages only.
    max_depth: A circuit breaker: how many messages may wait in one queue for the group that has consumed least of it.
        Further messages without `key` and `queue` go to another queue; all others, and all if every queue is full, are
        refused. A request may exceed the limit, and instances notice within a second that a queue is full or has room.
        `"unlimited"` removes the limit. Null: no limit.
    trace: Whether pops, acks, nacks and other calls about messages are recorded for `GET .../trace`. Takes effect
        within seconds. Each such call then costs one more write.
    zones: The queues near each site: a list of queues by the name of each zone. A queue is in one zone or in none; a
        queue in none is near all sites. New zones replace all old ones; `{}` removes them. Null: no zones."""

    _: KW_ONLY
    queues: int = optional(_QUEUES)
    retention_ms: int = optional(
        integer(limits.RETENTION_MS_MIN, limits.RETENTION_MS_MAX, default=limits.RETENTION_MS_DEFAULT)
    )
    index_keys: bool = optional(flag(default=False))
    max_depth: int | None = optional(_MAX_DEPTH, _max_depth)
    trace: bool = optional(flag(default=False))
    zones: Zones | None = optional(ZONES, parse_zones)


DEFAULTS = defaults(TopicSettings)


@record
class Topic(TopicSettings):
    """`id` is the incarnation: every key of the topic's data carries it. `version` counts changes. `delays`: messages
    may wait here, so pops look for those that are due. `past_retentions`: pairs of an instant and a retention in ms:
    messages stored until that instant, before a raise, keep that retention. `pushes`: it may have pushed groups, so
    sends wake the push. `scaling`: None until the first change of the number of queues. `is_owned`: it was made for a
    subscription, and is deleted with the last one. `queues_auto`: it grows automatically (`catalogue.Growth`).
    `alarms`: it may have groups with an alarm, so sends make appointments with *check*."""

    name: str
    id: str
    created_at_ms: int
    version: int = 0
    delays: bool = False
    past_retentions: tuple[tuple[int, int], ...] = ()
    pushes: bool = False
    scaling: Scaling | None = None
    is_owned: bool = False
    queues_auto: bool = False
    alarms: bool = False

    @classmethod
    def of(cls, item: Item) -> Topic:
        """Raises Internal for a topic in another form of the table."""
        _demand_form(item)
        given = {field: item[field] for field in DEFAULTS if field in item}
        given |= {"zones": Zones.of(item["zones"])} if "zones" in item else {}
        past = tuple((until_ms, retention_ms) for until_ms, retention_ms in item.get("past_retentions", ()))
        scaling = Scaling.of(given["queues"], item) if "placements" in item else None
        return cls(
            keys.topic_name(item["pk"]),
            item["id"],
            item["created_at_ms"],
            item["version"],
            delays=DELAYS in item,
            past_retentions=past,
            pushes=PUSHES in item,
            scaling=scaling,
            is_owned="for_sqs" in item,
            queues_auto=item.get("queues_auto", False),
            alarms=ALARMS in item,
            **given,
        )

    def as_json(self) -> dict[str, Any]:
        values = {field: getattr(self, field) for field in DEFAULTS}
        draining = {"draining": [*self.draining]} if self.draining else {}
        auto = {"queues_auto": True} if self.queues_auto else {}
        removed = {"max_depth": self.max_depth or None, "zones": self.known_zones.given or None}
        shown = {**values, **removed, **auto, **draining}
        return {"topic": self.name, **shown, "created_at_ms": self.created_at_ms}

    @property
    def known_zones(self) -> Zones:
        return self.zones or NO_ZONES

    @cached_property
    def key(self) -> Key:
        return keys.topic(self.name)

    @cached_property
    def logs(self) -> list[str]:
        """The log of each queue that the topic ever had."""
        return [keys.log(self.id, queue) for queue in range(self.most)]

    @property
    def read_logs(self) -> list[str]:
        """The logs of the queues that consumers read."""
        return self.logs[: self.readers]

    @cached_property
    def readers(self) -> int:
        """How many queues consumers read: more than `queues` while some drain."""
        return self.scaling.readers if self.scaling else self.queues

    @property
    def most(self) -> int:
        """The most queues that the topic ever had. Those beyond `readers` have left; look-ups still read them."""
        return self.scaling.most if self.scaling else self.queues

    @property
    def draining(self) -> range:
        """The queues that consumers read but producers no longer write."""
        return range(self.queues, self.readers)

    def unwritten_since(self, queue: int) -> int:
        """Since when, by the producers' clocks, no message goes to a draining queue."""
        return _scaling(self).unwritten_since(queue)

    def writers(self, now: int) -> int:
        """How many queues producers use."""
        return self.scaling.writers(now) if self.scaling else self.queues

    def expired_ms(self, now: int) -> int:
        """Messages stored at this instant or before have expired."""
        return self._expired_ms(now, 0)

    def maybe_expired_ms(self, now: int) -> int:
        """Missing messages stored at this instant or before have expired: an instance that did not know a raise yet may
        have stored them with the shorter time to live."""
        return self._expired_ms(now, _UNAWARE_MS)

    def gone_ms(self, now: int) -> int:
        """Messages stored at this instant or before may have been removed."""
        return self.expired_ms(now - limits.EXPIRED_KEPT_MS)

    def _expired_ms(self, now: int, later_ms: int) -> int:
        """Retention only grows along the log, so expired messages are always its beginning."""
        if not self.past_retentions:
            return now - self.retention_ms
        past = [min(now - retention_ms, until_ms + later_ms) for until_ms, retention_ms in self.past_retentions]
        return max([now - self.retention_ms, *past])

    def ttl(self, stored_at_ms: int) -> int:
        """When DynamoDB may remove items stored at this time, in seconds since the epoch."""
        return (stored_at_ms + self.retention_ms + limits.EXPIRED_KEPT_MS) // limits.SECOND_MS + 1


def is_readable(item: Item) -> bool:
    """Whether the topic is in this release's form of the table."""
    return bool(item.get("form") == keys.FORM)


def _demand_form(item: Item) -> None:
    """Each topic's item has the form. Calls read the topic before its data, so the check costs no read."""
    if not is_readable(item):
        raise Internal(
            f"topic '{keys.topic_name(item['pk'])}' is stored in form {item.get('form', 1)}, and this release reads"
            f" form {keys.FORM}: deploy the release that made it, or use another table (docs/operations.md)"
        )


def create(topic: Topic) -> list[Write]:
    """Creates the topic and lists it, unless one of this name exists: then the rejected write returns it. A
    transaction. Raises InvalidField for settings that do not fit each other."""
    topic.known_zones.demand_queues(topic.queues)
    made = {field: getattr(topic, field) for field in ("created_at_ms", "version", *DEFAULTS)}
    flags = {"form": keys.FORM, "for_sqs": topic.is_owned or None, "queues_auto": topic.queues_auto or None}
    listing = Write(keys.listed_topic(topic.name), (), (Set(("listed",), topic.id),))
    return [settings.create(topic.key, topic.id, {**made, **flags}), listing]


def change(topic: Topic, given: Mapping[str, Any], now: int) -> Write:
    """Raises InvalidField for settings that do not fit the others."""
    changed = replace(topic, **given)
    changed.known_zones.demand_queues(changed.queues)
    past = {}
    if "retention_ms" in given:
        past["past_retentions"] = _past_retentions(topic, given["retention_ms"], now)
    scaled = _scaled(topic, given["queues"], now) if given.get("queues", topic.queues) != topic.queues else {}
    return settings.change(topic.key, topic.id, topic.version, {**given, **past, **scaled})


def read(topic: Topic, readers: int) -> Write:
    """Changes how many queues of a topic consumers read."""
    return settings.change(topic.key, topic.id, topic.version, _scaling(topic).reading(readers).as_attributes())


def _scaled(topic: Topic, queues: int, now: int) -> dict[str, Any]:
    """The attributes that a change of the number of queues adds. Raises InvalidField."""
    scaled = _scaling(topic).resized(queues, now)
    if len(scaled.placements) - 1 > CHANGES_MAX:
        raise InvalidField(
            f"field 'queues' of topic {topic.name!r} was changed {CHANGES_MAX} times within an hour: try again later"
        )
    return scaled.as_attributes()


def _scaling(topic: Topic) -> Scaling:
    return topic.scaling or Scaling.of(topic.queues, {})


def _past_retentions(topic: Topic, retention_ms: int, now: int) -> list[list[int]]:
    """The past retentions that still matter under the new one: a shorter retention applies to all messages at once, and
    messages older than the new retention have expired anyway. Raises InvalidField."""
    ended = (*topic.past_retentions, (now - 1, topic.retention_ms))
    past = [
        [until_ms, kept_ms] for until_ms, kept_ms in ended if kept_ms < retention_ms and now - until_ms < retention_ms
    ]
    if len(past) > RAISES_MAX:
        raise InvalidField(
            f"field 'retention_ms' of topic {topic.name!r} was raised {RAISES_MAX} times since the oldest"
            " messages were stored: try again once they have expired"
        )
    return past


DELAYS, PUSHES, ALARMS = "delays", "pushes", "alarms"


def begin(topic: Topic, feature: str) -> Write:
    """Records permanently that this incarnation may have delayed messages (`DELAYS`), pushed groups (`PUSHES`) or
    groups with an alarm (`ALARMS`). A repeat changes nothing."""
    return Write(topic.key, (Equals(("id",), topic.id),), (Set((feature,), True),))


def note_group(topic: Topic) -> Write:
    """Counts a change, so that a removal of the topic without groups is refused. Send it in the transaction that
    creates the group."""
    return Write(topic.key, (Equals(("id",), topic.id),), (Add(("version",), 1),))


def remove(topic: Topic) -> list[Write]:
    """Deletes the topic and its place in the list, if it is unchanged since it was read (it may have got more queues),
    and creates a grave that records its remains. A transaction: an existing topic must never have a grave."""
    removal = settings.remove(topic.key, topic.id)
    removal = replace(removal, guards=(*removal.guards, Equals(("version",), topic.version)))
    return [removal, Write(keys.listed_topic(topic.name), (), (RemoveItem(),)), _bury(topic)]


def _bury(topic: Topic) -> Write:
    return Write(keys.grave(topic.id), (), (Set(("queues",), topic.most), Set(("delays",), topic.delays)))


def unbury(topic: Topic) -> Write:
    return Write(keys.grave(topic.id), (), (RemoveItem(),))
