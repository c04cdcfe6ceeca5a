"""Clock and randomness, injected so that the whole core runs in a simulation."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from chalicelib.core.base.fields import base64url
from chalicelib.core.base.records import record

T = TypeVar("T")

_NEVER_SET = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""On Linux, the clock that also runs during suspension: a write sent before it is late after it."""


class Bell(Protocol):
    """A bell that one thread waits for and another rings, once."""

    def ring(self) -> None:
        """Ends the wait, and any wait to come."""

    def wait(self, ms: int) -> None:
        """Returns after this time, or as soon as the bell has rung."""


@record
class Runtime:
    """`now`: ms since the epoch, for stored times. `sleep`: takes ms. `entropy`: n unpredictable bytes. `uptime`: ms on
    a clock that is never set, for waits, deadlines and cache ages. `make_bell`: None if no wait can be ended early."""

    now: Callable[[], int]
    sleep: Callable[[int], None]
    entropy: Callable[[int], bytes]
    uptime: Callable[[], int]
    make_bell: Callable[[], Bell] | None = None

    def bell(self) -> Bell:
        return self.make_bell() if self.make_bell else _Unheard(self.sleep)

    def name(self, chars: int) -> str:
        """A random name of letters, digits, `-` and `_`: 6 bits a character."""
        return base64url(self.entropy(-(-chars * 6 // 8)))[:chars]

    def choice(self, options: Sequence[T]) -> T:
        return options[int.from_bytes(self.entropy(4), "big") % len(options)]


class _Unheard:
    """A bell of a runtime where no wait can be ended early."""

    def __init__(self, sleep: Callable[[int], None]) -> None:
        self.wait = sleep

    def ring(self) -> None:
        pass


class _Event:
    """A bell between threads."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self.ring = self._event.set

    def wait(self, ms: int) -> None:
        self._event.wait(ms / 1_000)


def system() -> Runtime:
    return Runtime(
        now=lambda: time.time_ns() // 1_000_000,
        sleep=lambda ms: time.sleep(ms / 1_000),
        entropy=os.urandom,
        uptime=lambda: time.clock_gettime_ns(_NEVER_SET) // 1_000_000,
        make_bell=_Event,
    )
