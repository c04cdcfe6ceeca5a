"""A clock for tests, which only sleeping moves."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from random import Random
from typing import Any

from chalicelib.core.base.runtime import Runtime

START_MS = 1_767_225_600_000
UPTIME_MS = 12_345
"""The two clocks at the start: so different that tests notice when code confuses them."""


class Clock:
    """Time passes only in `sleep`, which runs the calls planned by `at` on its way."""

    def __init__(self) -> None:
        self.ms = START_MS
        self.slept: list[int] = []
        self.set_back_ms = 0
        """How far the wall clock has been set back."""
        self._plans: list[tuple[int, int, Callable[[], Any]]] = []
        self._numbers = itertools.count()

    def now(self) -> int:
        return self.ms - self.set_back_ms

    def uptime(self) -> int:
        return self.ms - START_MS + UPTIME_MS

    def at(self, ms: int, action: Callable[[], Any]) -> None:
        heapq.heappush(self._plans, (ms, next(self._numbers), action))

    def sleep(self, ms: int, bell: Bell | None = None) -> None:
        """Ends early when the bell rings."""
        self.slept.append(ms)
        end = self.ms + ms
        while self._plans and self._plans[0][0] <= end:
            self.ms, _, action = heapq.heappop(self._plans)
            action()
            if bell and bell.has_rung:
                return
        self.ms = end

    def runtime(self, seed: int = 0) -> Runtime:
        """A runtime of this clock, and chance from a seed."""
        return Runtime(self.now, self.sleep, Random(seed).randbytes, self.uptime, lambda: Bell(self))


class Bell:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.has_rung = False

    def ring(self) -> None:
        self.has_rung = True

    def wait(self, ms: int) -> None:
        if not self.has_rung:
            self._clock.sleep(ms, self)
