"""Chooses the queue for messages without a key: an instance stays with one and avoids queues that fail."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from chalicelib.base.cache import BoundedCache
from chalicelib.base.limits import MINUTE_MS, SECOND_MS
from chalicelib.base.runtime import Runtime
from chalicelib.catalogue.topic import Topic

ISOLATED_MS_MIN = SECOND_MS
ISOLATED_MS_MAX = MINUTE_MS
"""How long an instance keeps unkeyed messages away from a queue that failed: the first value at first, twice as long
after each further failure, up to the second. DynamoDB needs minutes to split a hot partition."""


@dataclass(frozen=True, slots=True)
class _Isolation:
    failures: int
    until_ms: int


class QueueChoice:
    """`is_crowded`: whether other writers were seen at a log lately."""

    def __init__(self, runtime: Runtime, is_crowded: Callable[[str], bool]) -> None:
        self._runtime = runtime
        self._is_crowded = is_crowded
        self._sticky: BoundedCache[int] = BoundedCache()
        self._isolated: BoundedCache[_Isolation] = BoundedCache()

    def unkeyed(self, topic: Topic) -> int:
        """An instance stays with one queue, so that writers do not contend, and changes it if others write there too or
        if it fails. If all have failed, it uses the one whose isolation ends first."""
        queue = self._sticky.get(topic.id)
        if queue is None or self._is_crowded(topic.logs[queue]) or self._is_isolated(topic.logs[queue]):
            open_ones = self._open(topic) or [min(range(topic.queues), key=lambda each: self._due(topic.logs[each]))]
            queue = self._stay(topic, open_ones)
        return queue

    def others(self, topic: Topic, besides: Collection[int]) -> list[int]:
        """Queues that have not failed lately, except these."""
        return [queue for queue in self._open(topic) if queue not in besides]

    def hop(self, topic: Topic, others: Sequence[int]) -> int:
        """Continues with one of these."""
        return self._stay(topic, others)

    def failed(self, log: str) -> None:
        """Keeps messages away for a while, twice as long after each further failure. Then the queue is open again, and
        the next message probes it."""
        before = self._isolated.get(log)
        failures = before.failures + 1 if before else 1
        ms = min(ISOLATED_MS_MIN << min(failures - 1, 30), ISOLATED_MS_MAX)
        self._isolated.keep(log, _Isolation(failures, self._runtime.uptime() + ms))

    def worked(self, log: str) -> None:
        self._isolated.forget(log)

    def _stay(self, topic: Topic, queues: Sequence[int]) -> int:
        queue = self._runtime.choice(queues)
        self._sticky.keep(topic.id, queue)
        return queue

    def _open(self, topic: Topic) -> list[int]:
        return [queue for queue in range(topic.queues) if not self._is_isolated(topic.logs[queue])]

    def _is_isolated(self, log: str) -> bool:
        return self._due(log) > self._runtime.uptime()

    def _due(self, log: str) -> int:
        isolation = self._isolated.get(log)
        return isolation.until_ms if isolation else 0
