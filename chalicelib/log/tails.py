"""Where the logs of a topic end, read anew."""

from __future__ import annotations

from collections.abc import Sequence

from chalicelib.catalogue.topic import Topic
from chalicelib.log.segment import Segment
from chalicelib.store import Range, Store
from chalicelib.table import keys


def ends(store: Store, topic: Topic) -> list[int]:
    """For each queue the offset that its next message gets. One round trip, one read unit a queue."""
    newest = [
        Range(topic.log(queue), keys.FIRST, keys.LAST, limit=1, descending=True, strong=True)
        for queue in range(topic.queues)
    ]
    return [Segment.of(found[0]).end if found else 0 for found in store.read(newest)]


def ends_of(store: Store, topics: Sequence[Topic]) -> list[list[int]]:
    """The same for several topics, half a read unit a queue; an end may be stale."""
    places = [(place, queue) for place, topic in enumerate(topics) for queue in range(topic.queues)]
    logs = [topics[place].log(queue) for place, queue in places]
    newest = [Range(log, keys.FIRST, keys.LAST, limit=1, descending=True) for log in logs]
    found: list[list[int]] = [[] for _ in topics]
    for (place, _), items in zip(places, store.read(newest) if newest else [], strict=True):
        found[place].append(Segment.of(items[0]).end if items else 0)
    return found
