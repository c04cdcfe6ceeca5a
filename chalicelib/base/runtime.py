"""Clock and randomness, injected so that the whole core runs in a simulation."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from chalicelib.base import base64url

T = TypeVar("T")

_NEVER_SET = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""On Linux, the clock that counts during suspension too: a write from before it is late after it."""


@dataclass(frozen=True, slots=True)
class Runtime:
    """`now`: ms since the epoch, for what is stored. `sleep`: takes ms. `entropy`: n unpredictable bytes. `uptime`:
    ms on a clock that is never set, for waits, deadlines and cache ages."""

    now: Callable[[], int]
    sleep: Callable[[int], None]
    entropy: Callable[[int], bytes]
    uptime: Callable[[], int]

    def name(self, chars: int) -> str:
        """A random name of letters, digits, `-` and `_`: 6 bits a character."""
        return base64url.encoded(self.entropy(-(-chars * 6 // 8)))[:chars]

    def choice(self, options: Sequence[T]) -> T:
        return options[int.from_bytes(self.entropy(4), "big") % len(options)]


def system() -> Runtime:
    return Runtime(
        now=lambda: time.time_ns() // 1_000_000,
        sleep=lambda ms: time.sleep(ms / 1_000),
        entropy=os.urandom,
        uptime=lambda: time.clock_gettime_ns(_NEVER_SET) // 1_000_000,
    )
