"""The one clock of all processes of the machine."""

from __future__ import annotations

import time


def now() -> int:
    """The time in ms."""
    return time.time_ns() // 1_000_000


def sleep(ms: int) -> None:
    time.sleep(ms / 1_000)
