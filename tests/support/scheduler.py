"""Runs callers as greenlets in virtual time. A seeded random source alone decides which of them runs next."""

from __future__ import annotations

import sys
from collections.abc import Callable
from heapq import heapify, heappop, heappush, heappushpop
from random import Random

from greenlet import GreenletExit, getcurrent, greenlet

from chalicelib.core.base.runtime import Bell


class Killed(GreenletExit):  # type: ignore[misc]
    """The process of this caller died."""


class Endless(Exception):
    """Callers keep each other busy."""


class Scheduler:
    def __init__(self, random: Random, start_ms: int = 1_000_000) -> None:
        self.now = start_ms
        self._random = random
        self._hub = getcurrent()
        self._waiting: list[tuple[int, float, greenlet]] = []
        self._steps_left = 0

    def spawn(self, run: Callable[[], None], after_ms: int = 0) -> None:
        heappush(self._waiting, self._turn(greenlet(run, parent=self._hub), after_ms))

    def sleep(self, ms: int) -> None:
        """Lets others run for `ms`; with 0 ms, those that are due now, in random order."""
        own = self._turn(getcurrent(), ms)
        if not self._steps_left:
            heappush(self._waiting, own)
            self._hub.switch()
            return
        self._steps_left -= 1
        first = heappushpop(self._waiting, own)
        if not first[2]:  # its parent is the hub: a greenlet counts the frames of its parent as its own
            heappush(self._waiting, first)
            self._hub.switch()
            return
        self.now = first[0]
        if first is not own:
            first[2].switch()  # without a detour by the hub: a history sleeps a thousand times

    def bell(self) -> Bell:
        return _Bell(self)

    def wake(self, caller: greenlet) -> None:
        """Ends its sleep."""
        self._waiting = [self._turn(caller, 0) if turn[2] is caller else turn for turn in self._waiting]
        heapify(self._waiting)

    def run(self, steps_max: int = sys.maxsize) -> None:
        """Runs until no caller waits. Raises Endless."""
        self._steps_left = steps_max
        while self._waiting:
            if not self._steps_left:
                raise Endless(f"{steps_max} steps, and no end")
            self._steps_left -= 1
            self.now, _, caller = heappop(self._waiting)
            caller.switch()

    def _turn(self, caller: greenlet, after_ms: int) -> tuple[int, float, greenlet]:
        return (self.now + after_ms if after_ms > 0 else self.now, self._random.random(), caller)


class _Bell:
    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._has_rung = False
        self._caller: greenlet | None = None

    def ring(self) -> None:
        self._has_rung = True
        if self._caller:
            self._scheduler.wake(self._caller)

    def wait(self, ms: int) -> None:
        if self._has_rung:
            return
        self._caller = getcurrent()
        self._scheduler.sleep(ms)
        self._caller = None
