"""Gives topics with `queues` set to "auto" more queues while their logs or cursors are overloaded.

The instance that sees the load changes the topic as an operator would: readers first, writers once every instance has
read the change. Since keys then move to other queues, a topic does not grow while it has an ordered group, zones, or
draining queues. A group that is created meanwhile changes the topic, so the store refuses the growth."""

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

if TYPE_CHECKING:
    from chalicelib.core.catalogue.catalogue import Catalogue

_log = logging.getLogger(__name__)


@record
class _Seen:
    """The end of a log at an instant of `Runtime.uptime`, under this version of the topic."""

    version: int
    at_ms: int
    end: int


class Growth:
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
