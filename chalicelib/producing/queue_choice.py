"""Chooses the queue for messages without a key: an instance stays with one and avoids queues that fail."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from chalicelib.base.limits import MINUTE_MS, SECOND_MS
from chalicelib.base.runtime import Runtime

ISOLATED_MS_MIN = SECOND_MS
ISOLATED_MS_MAX = MINUTE_MS
"""How long an instance keeps unkeyed messages away from a queue that failed: the first value at first, twice as long
after each further failure, up to the second. DynamoDB needs minutes to split a hot partition."""


@dataclass(frozen=True, slots=True)
class _Isolation:
    failures: int
    until_ms: int


class QueueChoice:
    """The choice among the queues of one topic. `is_crowded`: whether other writers were seen at a log lately."""

    def __init__(self, runtime: Runtime, is_crowded: Callable[[str], bool], queues: int) -> None:
        self._runtime = runtime
        self._is_crowded = is_crowded
        self._queues = range(queues)
        self._queue: int | None = None
        self._isolated: dict[int, _Isolation] = {}

    def unkeyed(self, logs: Sequence[str]) -> int:
        """The queue for messages without a key. `logs`: those of all queues. An instance stays with one queue, so that
        writers do not contend, and changes it if others write there too or if it fails. If all have failed, it uses the
        one whose isolation ends first."""
        queue = self._queue
        if queue is None or self._is_crowded(logs[queue]) or self._is_isolated(queue):
            queue = self.hop(self.others() or [min(self._queues, key=self._isolated_until_ms)])
        return queue

    def others(self, besides: Collection[int] = ()) -> list[int]:
        """Queues that have not failed lately, except these."""
        return [queue for queue in self._queues if queue not in besides and not self._is_isolated(queue)]

    def hop(self, queues: Sequence[int]) -> int:
        """Continues with one of these."""
        self._queue = self._runtime.choice(queues)
        return self._queue

    def note(self, queue: int, has_failed: bool) -> None:
        """Keeps messages away from a queue that has failed for a while, twice as long after each further failure. Then
        it is open again, and the next message probes it. A queue that has not failed is open at once."""
        if has_failed:
            before = self._isolated.get(queue)
            failures = before.failures + 1 if before else 1
            ms = min(ISOLATED_MS_MIN << min(failures - 1, 30), ISOLATED_MS_MAX)
            self._isolated[queue] = _Isolation(failures, self._runtime.uptime() + ms)
        else:
            self._isolated.pop(queue, None)

    def _is_isolated(self, queue: int) -> bool:
        return self._isolated_until_ms(queue) > self._runtime.uptime()

    def _isolated_until_ms(self, queue: int) -> int:
        isolation = self._isolated.get(queue)
        return isolation.until_ms if isolation else 0
