"""Runs the scheduled sweeps every second while that is cheap; on a laptop, a minute is too long to wait."""

from __future__ import annotations

import sys
import threading
import time
import traceback
from collections.abc import Callable

from chalicelib import wiring
from chalicelib.base.errors import StoreUnavailable
from chalicelib.base.limits import HOUR_MS
from chalicelib.base.runtime import Runtime
from local.memory import opening

PERIOD_SECONDS = 1.0

PAUSES_PER_ROUND = 19
"""A round is followed by a pause of this many times its length, so sweeps take at most 5 % of the time, however much is
due."""


DROP_EVERY_MS = HOUR_MS
"""How often the memory store is searched for what has expired: all of it is looked at."""

_dropped_at_ms = 0
"""By the clock that is never set."""


def start() -> threading.Thread:
    """Sweeps in a thread of its own until the process ends."""
    arguments = (sweep_all, threading.Event().wait)
    sweeping = threading.Thread(target=sweep_for_ever, args=arguments, name="decant-sweeps", daemon=True)
    sweeping.start()
    return sweeping


def sweep_for_ever(
    sweep: Callable[[], bool],
    wait: Callable[[float], bool],
    now: Callable[[], float] = time.monotonic,
) -> None:
    """`wait`: takes seconds, and returns True to end."""
    pause = PERIOD_SECONDS
    while not wait(pause):
        began_at = now()
        is_answered = sweep()
        pause = pause_seconds(now() - began_at) if is_answered else PERIOD_SECONDS


def pause_seconds(round_seconds: float) -> float:
    """The pause after a round of this length."""
    return max(PERIOD_SECONDS, PAUSES_PER_ROUND * round_seconds)


def sweep_all() -> bool:
    """Runs all sweeps once. Errors are printed, and do not stop later rounds. Returns whether the store responded: a
    round that waited for it in vain took long but used nothing."""
    service = wiring.api().service
    sweeps = service.sweeps
    is_answered = True
    all_sweeps: tuple[Callable[[], object], ...] = (
        sweeps.forward,
        sweeps.revive,
        sweeps.expire,
        sweeps.check,
        lambda: sweeps.push(service.outside.wake),
        lambda: drop_expired(service.env.runtime),
    )
    for sweep in all_sweeps:
        try:
            sweep()
        except StoreUnavailable as trouble:
            is_answered = False
            sys.stderr.write(f"decant: a sweep failed: {trouble.detail}\n")
        except Exception:  # noqa: BLE001 - a defect in a sweep must not end the others
            sys.stderr.write(f"decant: a sweep failed\n{traceback.format_exc()}")
    return is_answered


def drop_expired(runtime: Runtime) -> None:
    """DynamoDB removes expired items by itself."""
    global _dropped_at_ms
    if runtime.uptime() - _dropped_at_ms >= DROP_EVERY_MS:
        _dropped_at_ms = runtime.uptime()
        opening.drop_expired(runtime.now())
