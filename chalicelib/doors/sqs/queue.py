"""A queue as SQS clients know it: a name for a group of a topic, with what neither of these has a setting for."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

from chalicelib.core.base.records import record
from chalicelib.core.catalogue import settings
from chalicelib.core.table import keys
from chalicelib.core.table.writes import Item, Key, Write

NAME_CHARS_MAX = 80
FIFO_SUFFIX = ".fifo"
NAME_PATTERN = rf"(?=.{{1,{NAME_CHARS_MAX}}}$)[A-Za-z0-9_-]+(\{FIFO_SUFFIX})?"
"""Names of queues, as in SQS."""
OWN_PREFIX = "q."
_UNLIKE_TOPICS = ("-", "_")
"""How names of queues may begin, and those of topics and groups may not."""


@record
class SqsQueue:
    """`id`: the incarnation. `topic_id`, `group_id`: the incarnations that it names; if one is gone, the queue is gone
    too. `owns_topic`: the topic was made for it, and what is sent to the queue goes there. `attributes`, `tags`: text
    by name, as SQS spells them. `version` counts changes."""

    name: str
    id: str
    topic: str
    topic_id: str
    group: str
    group_id: str
    owns_topic: bool
    attributes: Mapping[str, str]
    tags: Mapping[str, str]
    created_at_ms: int
    changed_at_ms: int
    version: int = 0

    @classmethod
    def of(cls, item: Item) -> SqsQueue:
        named = (item["topic"], item["tid"], item["group"], item["gid"], item["owns_topic"])
        times = (item["created_at_ms"], item["changed_at_ms"])
        return cls(item["sk"], item["id"], *named, item["attributes"], item["tags"], *times, item["version"])

    @property
    def is_fifo(self) -> bool:
        return is_fifo(self.name)

    @property
    def keeps_delay(self) -> bool:
        """Whether each message gets the queue's delay when it is sent. Otherwise the group waits with all of them."""
        return keeps_delay(self.name, self.owns_topic)

    @cached_property
    def key(self) -> Key:
        return keys.subscription(self.name)


def is_fifo(name: str) -> bool:
    return name.endswith(FIFO_SUFFIX)


def own_name(name: str) -> str:
    """The name of the topic and the group that are made for this queue: a queue's name may begin in ways that theirs
    may not."""
    return f"{OWN_PREFIX}{name}" if name[:1] in _UNLIKE_TOPICS else name


def keeps_delay(name: str, owns_topic: bool) -> bool:
    """As of the queue of this name."""
    return owns_topic and not is_fifo(name)


def create(queue: SqsQueue) -> Write:
    """Send it in the transaction that makes the group, and the topic if the queue owns that."""
    named = {"topic": queue.topic, "tid": queue.topic_id, "group": queue.group, "gid": queue.group_id}
    times = {"created_at_ms": queue.created_at_ms, "changed_at_ms": queue.changed_at_ms, "version": queue.version}
    held = {"owns_topic": queue.owns_topic, "attributes": dict(queue.attributes), "tags": dict(queue.tags)}
    return settings.create(queue.key, queue.id, {**named, **held, **times})


def change(queue: SqsQueue, attributes: Mapping[str, str], tags: Mapping[str, str], now: int) -> Write:
    """Replaces the attributes and the tags, unless the queue has changed since it was read."""
    new = {"attributes": dict(attributes), "tags": dict(tags), "changed_at_ms": now}
    return settings.change(queue.key, queue.id, queue.version, new)


def remove(queue: SqsQueue) -> Write:
    return settings.remove(queue.key, queue.id)
