"""Wakes the waiters of a topic: the pops of this instance, and the push, at most once a second for each topic and
instance."""

from __future__ import annotations

from chalicelib.core.base import deadline
from chalicelib.core.base.cache import BoundedCache
from chalicelib.core.base.limits import SECOND_MS
from chalicelib.core.catalogue.catalogue import Env
from chalicelib.core.catalogue.topic import Topic
from chalicelib.core.consuming.waiters import Waiters
from chalicelib.push.outside import Outside

WAKE_EVERY_MS = SECOND_MS
"""A run looks for longer than this, so it finds messages stored while no other wake is sent."""


class Wakes:
    def __init__(self, env: Env, outside: Outside) -> None:
        self._runtime, self._outside, self.waiters = env.runtime, outside, Waiters(env.runtime)
        self._woken_ms: BoundedCache[int] = env.caches.bounded(lambda topic_id, _: [topic_id])
        """When (`Runtime.uptime`) each topic was last woken."""

    def stored(self, topic: Topic) -> None:
        """Call it when messages were stored in the topic or are ready again. Costs nothing for the push in a topic that
        never had a pushed group."""
        self.waiters.stored(topic.id)
        if not topic.pushes:
            return
        now, woken_ms = self._runtime.uptime(), self._woken_ms.get(topic.id)
        if deadline.has_ended(now):  # the schedule runs the push too
            return
        if woken_ms is None or now - woken_ms >= WAKE_EVERY_MS:
            self._woken_ms.keep(topic.id, now)
            self._outside.wake(topic.name, False)
