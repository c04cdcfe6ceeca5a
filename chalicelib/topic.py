"""A topic: its settings, and the writes that make, and remove it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from chalicelib import keys
from chalicelib.errors import InvalidField
from chalicelib.fields import Fields
from chalicelib.limits import QUEUES_DEFAULT, QUEUES_MAX
from chalicelib.writes import Absent, Equals, Item, RemoveItem, Set, Write

FIELDS = frozenset({"queues"})


@dataclass(frozen=True, slots=True)
class Topic:
    """`id` is the incarnation: every key of the topic's data carries it."""

    name: str
    id: str
    queues: int
    created_at_ms: int

    @classmethod
    def of(cls, item: Item) -> Topic:
        return cls(item["sk"], item["id"], item["queues"], item["created_at_ms"])

    @classmethod
    def new(cls, name: str, topic_id: str, queues: int | None, now: int) -> Topic:
        return cls(name, topic_id, queues or QUEUES_DEFAULT, now)

    def as_json(self) -> dict[str, Any]:
        return {"topic": self.name, "queues": self.queues, "created_at_ms": self.created_at_ms}

    def log(self, queue: int) -> str:
        return keys.log(self.id, queue)


def parse_queues(data: object) -> int | None:
    return Fields(data, FIELDS).integer("queues", 1, QUEUES_MAX)


def create(topic: Topic) -> Write:
    """Makes the topic if there is none of this name; refused, it shows the one there is. To be sent as a transaction,
    or a repeat that arrives late could bring back a topic that was deleted since, under its old id."""
    return Write(
        keys.topic(topic.name),
        (Absent(("id",)),),
        (Set(("id",), topic.id), Set(("queues",), topic.queues), Set(("created_at_ms",), topic.created_at_ms)),
        landed=lambda before: before is not None and before["id"] == topic.id,
    )


def demand_unchanged(topic: Topic, queues: int | None) -> None:
    if queues is not None and queues != topic.queues:
        raise InvalidField(
            f"field 'queues' of topic {topic.name!r} is {topic.queues} and cannot be changed to {queues}"
            " once the topic exists"
        )


def remove(topic: Topic) -> Write:
    """Removes this incarnation; with it everything that carries its id is out of reach."""
    return Write(keys.topic(topic.name), (Equals(("id",), topic.id),), (RemoveItem(),))


def bury(topic: Topic) -> Write:
    """Notes that the log of a topic is to be removed. Goes together with the topic's own removal: a grave of a living
    topic must never be."""
    return Write(keys.grave(topic.id), (), (Set(("queues",), topic.queues),))


def unbury(topic: Topic) -> Write:
    return Write(keys.grave(topic.id), (), (RemoveItem(),))
