"""Chooses the queue of a message. Without a key an instance stays with one queue and avoids those that fail or are
slow.

The queue of a key is its Jump Consistent Hash (J. Lamping, E. Veach, "A Fast, Minimal Memory, Consistent Hash
Algorithm", 2014, https://arxiv.org/abs/1406.2294).

When a topic grows from m to n queues, the share (n - m) / n of the keys moves, which is the least that balances them,
and all of these move to new queues. When it shrinks, only the keys of the queues that leave move."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Sequence

from chalicelib.core.base.limits import MINUTE_MS, SECOND_MS
from chalicelib.core.base.records import record
from chalicelib.core.base.runtime import Runtime

_HASH_BYTES = 8
_STATES = 2 ** (8 * _HASH_BYTES)
_MULTIPLIER = 2_862_933_555_777_941_757
"""The multiplier of the paper's linear congruential generator."""
_DRAWN_BITS = 31
_UNDRAWN_BITS = 8 * _HASH_BYTES - _DRAWN_BITS


def queue_of_key(key: str, queues: int) -> int:
    """The same in every process and version, unlike Python's own hash."""
    state = int.from_bytes(hashlib.blake2b(key.encode(), digest_size=_HASH_BYTES).digest(), "big")
    queue, jump = 0, 0
    while jump < queues:
        queue = jump
        state = (state * _MULTIPLIER + 1) % _STATES
        drawn = (state >> _UNDRAWN_BITS) + 1
        jump = ((queue + 1) << _DRAWN_BITS) // drawn
    return queue


ISOLATED_MS_MIN = SECOND_MS
ISOLATED_MS_MAX = MINUTE_MS
"""How long an instance keeps unkeyed messages away from a queue that failed: the first value at first, twice as long
after each further failure, up to the second. DynamoDB needs minutes to split a hot partition."""

_GRADES = ((550, 2), (1_800, 5), (3_000, 6), (5_000, 10), (15_000, 30))
"""An append that takes at least so many ms isolates its queue for so many seconds, as clients of RocketMQ isolate a
slow broker. A failed one isolates it for at least as long."""


@record
class _Isolation:
    failures: int
    until_ms: int


_NEVER = _Isolation(0, 0)


def isolated_ms(took_ms: int) -> int:
    """How long a queue is isolated after an append that took this long."""
    return max([0, *(seconds * SECOND_MS for least_ms, seconds in _GRADES if took_ms >= least_ms)])


class QueueChoice:
    """The choice among the queues of one topic. `is_crowded`: whether other writers were seen at a log lately."""

    def __init__(self, runtime: Runtime, is_crowded: Callable[[str], bool], queues: int) -> None:
        self._runtime = runtime
        self._is_crowded = is_crowded
        self.count = queues
        self._queues = range(queues)
        self._current: dict[tuple[int, ...], int] = {}
        """By the queues that were to be preferred."""
        self._isolated: dict[int, _Isolation] = {}

    def unkeyed(self, logs: Sequence[str], full: Collection[int] = (), near: tuple[int, ...] = ()) -> int:
        """The queue for messages without a key. `logs`: those of all queues. An instance stays with one queue, so that
        writers do not contend, and changes it if others write there too, if it fails, or if it is `full`. If all have
        failed, it uses the one whose isolation ends first, and a full one only if all are. While any of the queues that
        are `near` is open, it is one of them."""
        queue, others = self._current.get(near), self.others(full)
        open_queues = _nearest(others, near) if near else others
        stays = [queue] if queue is not None and queue in open_queues else []
        if stays and not self._is_crowded(logs[stays[0]]):
            return stays[0]
        calm = [each for each in open_queues if not self._is_crowded(logs[each])]
        if stays and not calm:
            return stays[0]
        roomy = [each for each in self._queues if each not in full] or self._queues
        soonest = min(map(self._isolated_until_ms, roomy))
        last_resort = [each for each in roomy if self._isolated_until_ms(each) == soonest]
        return self.hop(calm or open_queues or last_resort, near)

    def others(self, besides: Collection[int] = ()) -> list[int]:
        """Queues that have not failed lately, except these."""
        if not self._isolated:
            return [queue for queue in self._queues if queue not in besides]
        now = self._runtime.uptime()
        return [queue for queue in self._queues if queue not in besides and self._isolated_until_ms(queue) <= now]

    def hop(self, queues: Sequence[int], near: tuple[int, ...] = ()) -> int:
        """Continues with one of these, a near one if there is one."""
        self._current[near] = self._runtime.choice(_nearest(queues, near) if near else queues)
        return self._current[near]

    def note(self, queue: int, has_failed: bool, took_ms: int = 0) -> None:
        """Keeps messages away from a queue for a while: one that has failed, twice as long after each further failure,
        and one that took this long for an append (0: unknown). Then it is open again, and the next message probes it.
        A queue that was neither is open at once."""
        if not has_failed and took_ms < _GRADES[0][0]:
            self._isolated.pop(queue, None)
            return
        ms = isolated_ms(took_ms)
        failures = 0
        if has_failed:
            failures = self._isolation(queue).failures + 1
            ms = max(ms, min(ISOLATED_MS_MIN << min(failures - 1, 30), ISOLATED_MS_MAX))
        self._isolated[queue] = _Isolation(failures, self._runtime.uptime() + ms)

    def _isolation(self, queue: int) -> _Isolation:
        return self._isolated.get(queue, _NEVER)

    def _isolated_until_ms(self, queue: int) -> int:
        return self._isolation(queue).until_ms


def _nearest(queues: Sequence[int], near: Collection[int]) -> Sequence[int]:
    """Those of the queues that are near, or all if none is."""
    return [queue for queue in queues if queue in near] or queues
