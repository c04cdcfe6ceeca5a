"""A topic: its settings, and the writes that make, change and remove it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from chalicelib.base.errors import InvalidField
from chalicelib.base.fields import Fields
from chalicelib.base.limits import (
    EXPIRED_KEPT_MS,
    QUEUES_DEFAULT,
    QUEUES_MAX,
    RETENTION_MS_DEFAULT,
    RETENTION_MS_MAX,
    RETENTION_MS_MIN,
    SECOND_MS,
)
from chalicelib.table import keys
from chalicelib.table.writes import Absent, Equals, Item, Remove, RemoveItem, Set, Write

DEFAULTS: dict[str, Any] = {"queues": QUEUES_DEFAULT, "retention_ms": RETENTION_MS_DEFAULT, "index_keys": False}
FIELDS = frozenset(DEFAULTS)

_LAPSED_MS = EXPIRED_KEPT_MS // 2
"""What expired so long ago stays expired when the retention is made longer: it may be removed before its time to live
is changed, for which the rest of the time that it is kept is enough."""


@dataclass(frozen=True, slots=True)
class Topic:
    """`id` is the incarnation: every key of the topic's data carries it. `version` counts changes. `delays`: messages
    may wait here, so pops look for those that are due. `raised_at_ms`: when the retention was made longer; 0: what is
    stored has that in its times to live already. `lapsed_at_ms`: what was stored at this instant or before cannot be
    read any more, however long the retention is now; 0: there is no such."""

    name: str
    id: str
    queues: int
    created_at_ms: int
    retention_ms: int = RETENTION_MS_DEFAULT
    version: int = 0
    delays: bool = False
    index_keys: bool = False
    raised_at_ms: int = 0
    lapsed_at_ms: int = 0

    @classmethod
    def of(cls, item: Item) -> Topic:
        settings = {field: item[field] for field in DEFAULTS}
        about = {"created_at_ms": item["created_at_ms"], "version": item["version"], "delays": "delays" in item}
        raised = {field: item.get(field, 0) for field in ("raised_at_ms", "lapsed_at_ms")}
        return cls(item["sk"], item["id"], **about, **settings, **raised)

    @classmethod
    def new(cls, name: str, topic_id: str, given: Mapping[str, Any], now: int) -> Topic:
        return cls(name, topic_id, created_at_ms=now, **{**DEFAULTS, **given})

    def as_json(self) -> dict[str, Any]:
        settings = {field: getattr(self, field) for field in DEFAULTS}
        return {"topic": self.name, **settings, "created_at_ms": self.created_at_ms}

    def log(self, queue: int) -> str:
        return keys.log(self.id, queue)

    def expired_ms(self, now: int) -> int:
        """What was stored at this instant or before can no longer be read."""
        return max(now - self.retention_ms, self.lapsed_at_ms)

    def gone_ms(self, now: int) -> int:
        """What was stored at this instant or before may have been removed."""
        return self.expired_ms(now) - EXPIRED_KEPT_MS

    def ttl(self, stored_at_ms: int) -> int:
        """When DynamoDB may remove what was stored then, in seconds since the epoch, as it wants them."""
        return (stored_at_ms + self.retention_ms + EXPIRED_KEPT_MS) // SECOND_MS + 1


def parse_settings(data: object) -> dict[str, Any]:
    """The settings given, checked; those not given are left out."""
    fields = Fields(data, FIELDS)
    parsed = {
        "queues": fields.integer("queues", 1, QUEUES_MAX),
        "retention_ms": fields.integer("retention_ms", RETENTION_MS_MIN, RETENTION_MS_MAX),
        "index_keys": fields.flag("index_keys"),
    }
    return {name: value for name, value in parsed.items() if value is not None}


def create(topic: Topic) -> Write:
    """Makes the topic if there is none of this name; refused, it shows the one there is. To be sent as a transaction,
    or a repeat that arrives late could bring back a topic that was deleted since, under its old id."""
    made = {field: getattr(topic, field) for field in ("id", "created_at_ms", "version", *DEFAULTS)}
    return Write(
        keys.topic(topic.name),
        (Absent(("id",)),),
        _set(made),
        landed=lambda before: before is not None and before["id"] == topic.id,
    )


def demand_unchanged(topic: Topic, queues: int | None) -> None:
    if queues is not None and queues != topic.queues:
        raise InvalidField(
            f"field 'queues' of topic {topic.name!r} is {topic.queues} and cannot be changed to {queues}"
            " once the topic exists"
        )


def change(topic: Topic, given: Mapping[str, Any], now: int) -> Write:
    """Changes the settings given, if nobody has changed any since: one that arrives late must not undo what came
    after it."""
    is_raised = given.get("retention_ms", 0) > topic.retention_ms
    lapsed_at_ms = max(topic.lapsed_at_ms, now - topic.retention_ms - _LAPSED_MS)
    raised = {"raised_at_ms": now, "lapsed_at_ms": lapsed_at_ms} if is_raised else {}
    new = {**given, "version": topic.version + 1, **raised}
    return Write(
        keys.topic(topic.name),
        (Equals(("id",), topic.id), Equals(("version",), topic.version)),
        _set(new),
        landed=lambda before: before is not None and before["id"] == topic.id and new.items() <= before.items(),
    )


def _set(settings: Mapping[str, Any]) -> tuple[Set, ...]:
    return tuple(Set((field,), value) for field, value in settings.items())


def rearmed(topic: Topic) -> Write:
    """Notes that all times to live are those of the retention that the topic has, and had when that began."""
    return Write(
        keys.topic(topic.name),
        (Equals(("id",), topic.id), Equals(("version",), topic.version)),
        (Remove(("raised_at_ms",)),),
    )


def begin_delays(topic: Topic) -> Write:
    """Notes that messages may wait in this incarnation, for good. A repeat changes nothing."""
    return Write(keys.topic(topic.name), (Equals(("id",), topic.id),), (Set(("delays",), True),))


def remove(topic: Topic) -> Write:
    """Removes this incarnation; with it everything that carries its id is out of reach."""
    return Write(keys.topic(topic.name), (Equals(("id",), topic.id),), (RemoveItem(),))


def bury(topic: Topic) -> Write:
    """Notes that the log of a topic is to be removed. Goes together with the topic's own removal: a grave of a living
    topic must never be."""
    return Write(keys.grave(topic.id), (), (Set(("queues",), topic.queues), Set(("delays",), topic.delays)))


def unbury(topic: Topic) -> Write:
    return Write(keys.grave(topic.id), (), (RemoveItem(),))
