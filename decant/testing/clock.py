"""A clock that runs as the machine's does, and which a test moves forward."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

_CALL_SECONDS_MAX = 30.0
"""How long `advance` waits for calls that are under way: longer than any takes that does not wait."""


class Clock:
    """The time of a `Server`: leases, delays, retries, retention and time-outs follow it."""

    def __init__(self, moved: Callable[[], None] = lambda: None) -> None:
        """`moved`: called each time after the clock was moved."""
        self._ahead_ms, self._busy = 0, 0
        self._here = threading.local()
        self._changed = threading.Condition()
        self._moved = moved
        self._watchers: list[Callable[[], None]] = []

    @property
    def now(self) -> datetime:
        return datetime.fromtimestamp(self.now_ms() / 1_000, UTC)

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        return time.time_ns() // 1_000_000 + self._ahead_ms

    def uptime_ms(self) -> int:
        """The same time, on a clock that is never set."""
        return time.monotonic_ns() // 1_000_000 + self._ahead_ms

    def advance(
        self, by: timedelta | None = None, *, days: float = 0, hours: float = 0, minutes: float = 0, seconds: float = 0
    ) -> None:
        """Moves the clock forward, ends waits that are over by then, and runs the scheduled work of the service.
        Calls that do not wait end before. Raises ValueError for a time in the past."""
        step = (by or timedelta()) + timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
        if step <= timedelta():
            raise ValueError(f"the clock can only be moved forward; the step is {step}")
        with self._changed:
            if not self._changed.wait_for(lambda: not self._busy, _CALL_SECONDS_MAX):
                raise TimeoutError(f"a call does not end for {_CALL_SECONDS_MAX:.0f} s")
            self._ahead_ms += step // timedelta(milliseconds=1)
            self._changed.notify_all()
            watchers = list(self._watchers)
        self._moved()
        for watcher in watchers:
            watcher()

    # -- for the service ----------------------------------------------------------------------------------------------

    @contextmanager
    def call(self) -> Iterator[None]:
        """Around a call: the clock is moved only between calls, or while they wait."""
        self._here.is_busy = True
        self._count(1)
        try:
            yield
        finally:
            self._count(-1)
            self._here.is_busy = False

    def sleep(self, ms: int, is_over: Callable[[], bool] = lambda: False) -> None:
        """Waits until the clock has gone on for so long, or `ring` finds that it is over."""
        until_ms = self.uptime_ms() + ms
        calls = 1 if getattr(self._here, "is_busy", False) else 0
        with self._changed:
            self._busy -= calls
            self._changed.notify_all()
            try:
                while (left_ms := until_ms - self.uptime_ms()) > 0 and not is_over():
                    self._changed.wait(left_ms / 1_000)
            finally:
                self._busy += calls

    def ring(self) -> None:
        """Has all that wait look whether their wait is over."""
        with self._changed:
            self._changed.notify_all()

    @contextmanager
    def watch(self, watcher: Callable[[], None]) -> Iterator[None]:
        """Has the watcher called each time after the clock was moved."""
        with self._changed:
            self._watchers.append(watcher)
        try:
            yield
        finally:
            with self._changed:
                self._watchers.remove(watcher)

    def _count(self, calls: int) -> None:
        with self._changed:
            self._busy += calls
            self._changed.notify_all()


class Seconds:
    """The clock as clients read it, whose consumers notice when it is moved."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.watch = clock.watch

    def __call__(self) -> float:
        return self._clock.uptime_ms() / 1_000

    def sleep(self, seconds: float) -> None:
        self._clock.sleep(round(seconds * 1_000))


class Bell:
    """Ends a wait of another thread."""

    def __init__(self, clock: Clock) -> None:
        self._clock, self._has_rung = clock, False

    def ring(self) -> None:
        self._has_rung = True
        self._clock.ring()

    def wait(self, ms: int) -> None:
        self._clock.sleep(ms, lambda: self._has_rung)
