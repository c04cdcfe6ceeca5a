"""Runs the jobs that AWS schedules in threads of this process: the sweeps, every second while that is cheap, and the
push. On a laptop, a minute is too long to wait."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from chalicelib import wiring
from chalicelib.core.base.errors import StoreUnavailable
from chalicelib.core.base.limits import HOUR_MS, SECOND_MS
from chalicelib.core.base.runtime import Runtime
from chalicelib.doors.sqs.registry import moves_of
from local.memory import opening

_log = logging.getLogger("decant")

PERIOD_SECONDS = 1.0

PAUSES_PER_ROUND = 19
"""A round is followed by a pause of this many times its length, so sweeps take at most 5 % of the time, however much is
due."""

DROP_EVERY_MS = HOUR_MS
"""How often a search of the whole memory store removes expired items."""

_dropped_at_ms = 0
"""By the monotonic clock."""

MOVE_MS = 5 * SECOND_MS
"""How long one sweep works on move tasks; most of the time it waits for their rates. This sweep has a thread of its
own, and new tasks must not wait long."""


def start() -> None:
    """Sweeps in threads of their own until the process ends."""
    never = threading.Event().wait
    for name, run in (("sweeps", lambda: sweep_for_ever(sweep_all, never)), ("moves", lambda: move_for_ever(never))):
        threading.Thread(target=run, name=f"decant-{name}", daemon=True).start()


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


def move_for_ever(wait: Callable[[float], bool]) -> None:
    """`wait`: as above."""
    while not wait(PERIOD_SECONDS):
        _answered(move)


def move() -> None:
    """Works on the move tasks that are due, for `MOVE_MS` at most."""
    service = wiring.api().service
    service.sweeps.move(moves_of(service), MOVE_MS)


def pause_seconds(round_seconds: float) -> float:
    """The pause after a round of this length."""
    return max(PERIOD_SECONDS, PAUSES_PER_ROUND * round_seconds)


def sweep_all() -> bool:
    """Runs all sweeps once, except the one of move tasks. Logs errors, which do not stop later rounds. Returns whether
    the store responded: a round that waited for it in vain took long but used nothing."""
    service = wiring.api().service
    sweeps = service.sweeps
    all_sweeps: tuple[Callable[[], object], ...] = (
        sweeps.forward,
        sweeps.revive,
        sweeps.expire,
        sweeps.check,
        lambda: sweeps.push(service.outside.wake),
        lambda: drop_expired(service.env.runtime),
    )
    answered = [_answered(sweep) for sweep in all_sweeps]
    return all(answered)


def _answered(sweep: Callable[[], object]) -> bool:
    """Runs a sweep. Returns whether the store responded."""
    try:
        sweep()
    except StoreUnavailable as trouble:
        _log.warning("a sweep failed: %s", trouble.detail)
        return False
    except Exception:  # noqa: BLE001 - a defect in a sweep must not end the others
        _log.exception("a sweep failed")
    return True


def drop_expired(runtime: Runtime) -> None:
    """Removes expired items from the memory store once an hour; DynamoDB does so by itself."""
    global _dropped_at_ms
    if runtime.uptime() - _dropped_at_ms >= DROP_EVERY_MS:
        _dropped_at_ms = runtime.uptime()
        opening.drop_expired(runtime.now())


def wake(topic_name: str, _is_staying: bool) -> None:
    """Starts a push run for the topic. It need not stay: the sweeps start the next one within seconds."""
    threading.Thread(target=_run, args=[topic_name], name="decant-push", daemon=True).start()


def _run(topic_name: str) -> None:
    wiring.api().service.pushing.run(topic_name)
