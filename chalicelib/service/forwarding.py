"""Delivers all that is due in a topic: for those that nobody pops from, where it would wait for the next consumer."""

from __future__ import annotations

from chalicelib.service.promoter import Promoter
from chalicelib.topic import Topic


def forward(promoter: Promoter, topic: Topic) -> int:
    """Returns how many messages it delivered. May be run at any moment, by several at once, and stopped anywhere."""
    count = 0
    for queue in range(topic.queues if topic.delays else 0):
        while promoted := promoter.promote(topic, queue):
            count += promoted
    return count
