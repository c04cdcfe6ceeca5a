"""Gives topics whose `queues` are "auto" more of them while their logs or cursors carry too much.

The instance that meets the load changes the topic itself, as an operator would: readers first, writers once every
instance has heard of it. Keys move to other queues then, so a topic stays as it is while something depends on their
places: an ordered group, zones, or queues that drain. A group that is created meanwhile changes the topic, and the
store refuses the growth."""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import TYPE_CHECKING

from chalicelib.core.base import deadline
from chalicelib.core.base.cache import BoundedCache, Caches
from chalicelib.core.base.errors import InvalidField, StoreUnavailable, TopicNotFound
from chalicelib.core.base.limits import HOP_MS_MIN, QUEUES_MAX, SECOND_MS
from chalicelib.core.base.records import record
from chalicelib.core.base.runtime import Runtime
from chalicelib.core.catalogue import topic as topics
from chalicelib.core.catalogue.topic import Topic
from chalicelib.core.store import Store
from chalicelib.core.table import keys
from chalicelib.core.table.writes import Refused

APPENDS_PER_SECOND_MAX = 300
"""With more appends to one log a topic gets more queues. At twice as many, single messages of many instances reach the
1,000 write units a second that a partition key carries."""
CROWDED_LEASES = 64
"""With more leases in one cursor it does too: each 32 cost a claim one write unit more."""
GROWTH = 4
"""So many times as many queues at once: few changes, and a quarter of the load for each queue."""
MEASURED_MS_MIN, MEASURED_MS_MAX = SECOND_MS, 10 * SECOND_MS
"""An instance measures a log between two of its own appends that are so far apart."""
TRIED_MS = 10 * SECOND_MS
"""An instance that could not give a topic more queues tries again after so long."""

if TYPE_CHECKING:
    from chalicelib.core.catalogue.catalogue import Catalogue

_log = logging.getLogger(__name__)


@record
class _Seen:
    """Where a log ended at an instant of `Runtime.uptime`, under this version of the topic."""

    version: int
    at_ms: int
    end: int


class Growth:
    def __init__(self, store: Store, runtime: Runtime, catalogue: Catalogue, caches: Caches) -> None:
        self._store, self._runtime, self._catalogue = store, runtime, catalogue
        self._seen: BoundedCache[_Seen] = caches.bounded(lambda log, _: keys.owners(log))
        self._tried_at_ms: BoundedCache[int] = caches.bounded(lambda topic_id, _: [topic_id])

    def appended(self, topic: Topic, log: str, end: int, appends_per_message: float) -> None:
        """This instance has appended to this log, which ends there now."""
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
        """A pop has met so many leases in one cursor."""
        if leases > CROWDED_LEASES and self._may_grow(topic):
            self._grow(topic, f"{leases} leases in one cursor")

    def _may_grow(self, topic: Topic) -> bool:
        """Whether it grows by itself, and its last change has taken effect."""
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
                return  # what was measured is of another state
            self._tried_at_ms.keep(topic.id, now)
            if self._has_places(current):
                return
            queues = min(GROWTH * current.queues, QUEUES_MAX)
            self._store.write(topics.change(current, {"queues": queues}, self._runtime.now()))
            self._catalogue.forget(topic.name)
            _log.info("topic %r has %d queues now: %s", topic.name, queues, reason)

    def _has_places(self, topic: Topic) -> bool:
        """Whether something depends on the queues that keys have."""
        return bool(topic.known_zones.given) or any(group.ordered for group in self._catalogue.groups(topic))
