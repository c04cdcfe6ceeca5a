"""The pages of a group: its settings and its cursors, those of 16 queues in each. A page may be empty, before any claim
in its queues."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice

from chalicelib.core.catalogue.topic import Topic
from chalicelib.core.store import Range
from chalicelib.core.table import keys
from chalicelib.core.table.writes import Item


def pages_of(topic: Topic, name: str, strong: bool = False) -> list[Range]:
    """The reads of all pages of a group, including those of queues that have left the topic."""
    partitions = keys.group_partitions(topic.id, name, topic.most)
    return [Range(partition, keys.FIRST, keys.LAST, strong=strong) for partition in partitions]


def joined(pages: Sequence[Sequence[Range]], answers: Iterable[Sequence[Item]]) -> list[list[Item]]:
    """The items of each group. `answers`: the results of their reads, in order."""
    left = iter(answers)
    return [[item for items in islice(left, len(own)) for item in items] for own in pages]
