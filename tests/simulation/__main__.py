"""Plays histories, prints their violations, and the whole history of the first bad one."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import fields
from functools import partial
from itertools import count
from multiprocessing import get_context
from multiprocessing.pool import Pool
from traceback import format_exc

from tests.history.facts import NEVER_MS, Moved
from tests.history.history import History
from tests.simulation.bugs import BUGS
from tests.simulation.planted import finding
from tests.simulation.reach import measured, tables
from tests.simulation.world import World, play
from tests.support.arguments import above_zero, at_least_one, at_least_zero

_CHUNK = 25
_ROUND = 500
_FRAMES_SHOWN = 4


def main() -> int:
    asked = _asked()
    if asked.history:
        return _show(asked.seed)
    if asked.planted:
        return _show_findings(asked.processes)
    if asked.reach:
        return _show_reach(asked)
    began, played = time.perf_counter(), 0
    bad: list[int] = []
    is_whole = False
    with _pool(asked.processes) as pool, suppress(KeyboardInterrupt):
        for seeds in _rounds(asked):
            for seed, violations in pool.imap(_judged, seeds, _CHUNK):
                played += 1
                bad += [seed] if violations else []
                for violation in violations:
                    print(f"seed {seed}: {violation}", flush=True)
                if played % _CHUNK == 0 and sys.stderr.isatty():
                    print(f"{played} histories, {len(bad)} bad", end="\r", file=sys.stderr, flush=True)
        is_whole = True
    seconds = time.perf_counter() - began
    print(
        f"{played} histories from seed {asked.seed} on, {len(bad)} with violations;"
        f" {played / seconds:.0f} a second in {asked.processes} processes{'' if is_whole else '; interrupted'}"
    )
    if bad:
        print(f"\nseed {min(bad)}, to be played again by: python -m tests.simulation --history --seed {min(bad)}")
        _show(min(bad))
    return 1 if bad else 0 if is_whole else 130


def _pool(processes: int) -> Pool:
    """A pool of processes that ignore interrupts, which are for this one."""
    return get_context("fork").Pool(processes, signal.signal, (signal.SIGINT, signal.SIG_IGN))


def _judged(seed: int) -> tuple[int, list[str]]:
    return seed, _violations(partial(play, seed))


def _violations(run: Callable[[], list[str]]) -> list[str]:
    """A history that cannot be played or judged is bad, and ends no others."""
    try:
        return run()
    except Exception:  # noqa: BLE001 - whatever it is, its seed is named
        return [f"could not be played and judged\n{format_exc(limit=-_FRAMES_SHOWN)}"]


def _rounds(asked: argparse.Namespace) -> Iterator[range]:
    """The seeds that `--seeds` asks for, or rounds of seeds for `--minutes`."""
    end = time.monotonic() + 60 * asked.minutes
    for first in count(asked.seed, _ROUND):
        left = asked.seed + asked.seeds - first
        if time.monotonic() > end if asked.minutes else left <= 0:
            return
        yield range(first, first + (_ROUND if asked.minutes else min(left, _ROUND)))


def _show(seed: int) -> int:
    violations = _violations(partial(_printed, seed))
    for violation in violations or ["clean"]:
        print(f"seed {seed}: {violation}")
    return 1 if violations else 0


def _printed(seed: int) -> list[str]:
    """Plays the history of a seed and prints it, in the order of beginnings; returns its violations."""
    world = World(seed)
    try:
        return world.run()
    finally:
        for _, fact in sorted(_facts(world.history), key=lambda each: each[0]):
            print(fact.replace(f"={NEVER_MS}", "=never"))


def _facts(history: History) -> Iterator[tuple[int, str]]:
    """The facts about callers, moved messages and changes of alarms, each with its time."""
    for values in (getattr(history, each.name) for each in fields(history)):
        for fact in values if isinstance(values, list) else ():
            if isinstance(fact, Moved) or hasattr(fact, "began_ms"):
                yield fact.at_ms if isinstance(fact, Moved) else fact.began_ms, str(fact)
    for group, changes in history.alarms_changed.items():
        yield from ((change.at_ms, f"{group}: {change}") for change in changes)


def _show_findings(processes: int) -> int:
    """The first seed that finds each planted bug."""
    with _pool(processes) as pool:
        for name, seed in zip(BUGS, pool.imap(finding, BUGS), strict=True):
            print(f'    "{name}": {seed},', flush=True)
    return 0


def _show_reach(asked: argparse.Namespace) -> int:
    """Prints what the histories of the seeds reach and, worst first, what they miss."""
    for line in tables(*measured(range(asked.seed, asked.seed + asked.seeds), asked.processes)):
        print(line)
    return 0


def _asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seed", type=at_least_zero, default=0, help="the first seed")
    parser.add_argument("--seeds", type=at_least_one, default=1, help="how many seeds from there on")
    parser.add_argument("--minutes", type=above_zero, default=0, help="go on for so long instead")
    parser.add_argument("--processes", type=at_least_one, default=os.cpu_count() or 1)
    parser.add_argument("--history", action="store_true", help="print all that happened in the history of --seed")
    parser.add_argument("--planted", action="store_true", help="print the first seed that finds each planted bug")
    parser.add_argument("--reach", action="store_true", help="print what the histories of the seeds reach and do not")
    asked = parser.parse_args()
    if asked.history and (asked.seeds > 1 or asked.minutes):
        parser.error("--history shows one history, that of --seed: it takes neither --seeds nor --minutes")
    return asked


if __name__ == "__main__":
    sys.exit(main())
