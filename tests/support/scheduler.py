"""Runs callers as greenlets in virtual time. A seeded random source alone decides which of them runs next."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from random import Random

from greenlet import GreenletExit, getcurrent, greenlet


class Killed(GreenletExit):
    """The process of this caller died."""


class Endless(Exception):
    """Callers keep each other busy."""


class Scheduler:
    def __init__(self, random: Random, start_ms: int = 1_000_000) -> None:
        self.now = start_ms
        self._random = random
        self._hub = getcurrent()
        self._waiting: list[tuple[int, float, greenlet]] = []

    def spawn(self, run: Callable[[], None], after_ms: int = 0) -> None:
        self._wake(greenlet(run, parent=self._hub), after_ms)

    def sleep(self, ms: int) -> None:
        """Lets others run for `ms`; with 0 ms, those that are due now, in random order."""
        self._wake(getcurrent(), ms)
        self._hub.switch()

    def run(self, steps_max: int | None = None) -> None:
        """Runs until no caller waits. Raises Endless."""
        steps = 0
        while self._waiting:
            if steps == steps_max:
                raise Endless(f"{steps} steps, and no end")
            steps += 1
            self.now, _, caller = heapq.heappop(self._waiting)
            caller.switch()

    def _wake(self, caller: greenlet, after_ms: int) -> None:
        heapq.heappush(self._waiting, (self.now + max(0, after_ms), self._random.random(), caller))
