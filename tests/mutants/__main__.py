"""Changes the protocol in small ways, one at a time, and counts the changes that checks notice.

First it measures, once, which tests and histories reach which lines: about 15 minutes of one core. After an interrupt,
the next run continues."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from random import Random

import chalice  # noqa: F401 - what is imported here, no fork has to import
import pytest

from tests.mutants import histories, suite
from tests.mutants.changes import Mutant, mutants_of
from tests.mutants.planting import is_hot
from tests.mutants.reach import Reach
from tests.mutants.results import HEADS, Results, counted, row
from tests.mutants.running import INTERRUPTED, Judge, Verdict, apart, hasten, interruptible, judged, stop
from tests.mutants.types import types
from tests.support.arguments import above_zero, at_least_one

_NAMES = (
    *("cursors", "consuming", "log", "producing", "delays", "dead_letters"),
    *("transactions", "requests", "upkeep", "access"),
)
ROOMS = {
    **{name: f"chalicelib/core/{name}/*.py" for name in _NAMES},
    "push": "chalicelib/push/*.py",
    "evaluate": "local/memory/evaluate.py",
}

FILES_MAX = 8
"""Test files for a mutant that is planted before anything is imported: each of them imports everything anew."""

KEPT = Path(".mutants")
"""The state from which a run continues."""


def main() -> int:
    asked = _asked()
    interruptible()
    try:
        KEPT.mkdir(exist_ok=True)
        rooms = {room: _mutants(room, asked) for room in asked.rooms or ROOMS}
        if not asked.report:
            _judge(rooms, asked)
        _report(rooms)
    except KeyboardInterrupt:
        stop()
        print("\ninterrupted; run it again to go on", file=sys.stderr)
        return INTERRUPTED
    return 0


def _judge(rooms: Mapping[str, Sequence[Mutant]], asked: argparse.Namespace) -> None:
    if asked.again:
        for room, mutants in rooms.items():
            _results(room).forget_survivors(mutants)
    known = [mutant for room, mutants in rooms.items() for mutant in filter(_results(room).of, mutants)]
    print(f"mutants: {len(known)} of {sum(map(len, rooms.values()))} known already", file=sys.stderr)
    print("measures which tests and histories reach what: about 15 minutes of one core, once", file=sys.stderr)
    apart(_measure)
    for room, mutants in rooms.items():
        _through("tests", room, mutants, asked, _judge_by_tests)
    _judge_by_types(rooms)
    for room, mutants in rooms.items():
        _through("histories", room, mutants, asked, _judge_by_histories)


def _report(rooms: Mapping[str, Sequence[Mutant]]) -> None:
    counts = {room: counted(mutants, _results(room), _survivors(room)) for room, mutants in rooms.items()}
    print(HEADS)
    for room in rooms:
        print(row(room, counts[room]))
    if len(rooms) > 1:
        print(row("all", sum(counts.values(), Counter[str]())))
    for room in rooms:
        if counts[room]["open"]:
            print(f"open: {_survivors(room)}")


def _survivors(room: str) -> Path:
    return KEPT / f"{room}.diff"


def _mutants(room: str, asked: argparse.Namespace) -> list[Mutant]:
    mutants = (mutant for path in sorted(Path().glob(ROOMS[room])) for mutant in mutants_of(path))
    asked_for = (mutant for mutant in mutants if mutant.decides or not asked.decisions)
    return [mutant for mutant in asked_for if int(mutant.id, 16) % asked.one_in == 0]


def _results(room: str) -> Results:
    return Results(KEPT / f"{room}.jsonl")


# -- what reaches what ------------------------------------------------------------------------------------------------


def _measure() -> None:
    """Measures tests and histories that are new since the last run."""
    paths = [path for room in ROOMS.values() for path in sorted(Path().glob(room))]
    tests, played = Reach(KEPT / "tests.json"), Reach(KEPT / "histories.json")

    def measure(items: dict[str, pytest.Item]) -> None:
        tests.measure(paths, {name: partial(suite.passes, item) for name, item in items.items()})

    apart(lambda: suite.with_tests(measure))
    played.measure(paths, {name: partial(histories.is_clean, name) for name in histories.names()})


# -- the judges -------------------------------------------------------------------------------------------------------


def _through(
    stage: str, room: str, mutants: Sequence[Mutant], asked: argparse.Namespace, judge: Callable[[_Stage, bool], None]
) -> None:
    results = _results(room)
    waiting = [mutant for mutant in mutants if results.lacks(mutant, stage)]
    waiting.sort(key=lambda mutant: not mutant.decides)
    reach, killers = Reach(KEPT / f"{stage}.json"), Counter[tuple[str, str]]()
    for hot in (False, True):
        those = [mutant for mutant in waiting if is_hot(mutant) is hot]
        if those:
            apart(partial(judge, _Stage(stage, room, those, results, reach, killers, asked), hot))


class _Stage:
    def __init__(
        self,
        name: str,
        room: str,
        waiting: Sequence[Mutant],
        results: Results,
        reach: Reach,
        killers: Counter[tuple[str, str]],
        asked: argparse.Namespace,
    ) -> None:
        self.asked, self.reach = asked, reach
        self._breadths = reach.breadths() if name == "tests" else Counter[str]()
        self._name = name
        self._room, self._waiting, self._results, self._killers = room, waiting, results, killers

    def judge(self, judge: Judge) -> None:
        verdicts = judged(self._waiting, judge, self.asked.processes)
        for mutant, by in _shown(f"{self._room} {self._name}", len(self._waiting), verdicts):
            self._results.note(mutant, self._name, by)
            self._killers[str(mutant.path), by or ""] += 1

    def chosen(self, mutant: Mutant, seconds: float, most: int) -> list[str]:
        """The checks to run, in order: first those that noticed other mutants of this file, then one test of each file
        or history of each plan in turn, those that reach little else first, as long as there is time."""
        names = [name for name in self.reach.of(mutant) if self.reach.runners[name] < seconds / 2]
        Random(mutant.id).shuffle(names)
        names.sort(key=self._breadths.__getitem__)
        counts, turns = Counter[str](), dict[str, int]()
        for name in names:
            turns[name] = counts[kind := _kind(name)]
            counts[kind] += 1
        names.sort(key=lambda name: (-self._killers[str(mutant.path), name], turns[name], self._breadths[name]))
        chosen: list[str] = []
        for name in names[:most]:
            seconds -= self.reach.runners[name]
            if chosen and seconds < 0:
                break
            chosen.append(name)
        return chosen


def _shown(what: str, count: int, verdicts: Iterable[Verdict]) -> Iterator[Verdict]:
    """Shows progress in a line on the terminal."""
    began = time.monotonic()
    for done, verdict in enumerate(verdicts, 1):
        yield verdict
        rate = (time.monotonic() - began) / done
        print(f"\r{what}: {done} of {count}, {rate:.2f} s each ", end="", file=sys.__stderr__)
    print(file=sys.__stderr__)


def _kind(name: str) -> str:
    """The file of a test; the plan of a history. Those of the seeds' own plans count as ten."""
    file, _, _ = name.partition("::")
    plan, _, seed = name.partition("/")
    return file if file != name else plan + seed[-1] * (plan == "seeds")


def _judge_by_tests(stage: _Stage, hot: bool) -> None:
    def noticing(items: dict[str, pytest.Item], names: Iterable[str]) -> str | None:
        for name in names:
            hasten(stage.reach.runners[name])
            if name in items and suite.fails(items[name]):
                return name
        return None

    def collected(mutant: Mutant) -> str | None:
        names, found = stage.chosen(mutant, stage.asked.seconds, sys.maxsize), list[str | None]()
        files = [*dict.fromkeys(file for file in map(_kind, names) if Path(file).exists())][:FILES_MAX]
        if files:
            suite.with_tests(lambda items: found.append(noticing(items, names)), files)
        return found[0] if found else None

    def of(items: dict[str, pytest.Item]) -> Judge:
        return lambda mutant: noticing(items, stage.chosen(mutant, stage.asked.seconds, sys.maxsize))

    if hot:
        suite.with_tests(lambda items: stage.judge(of(items)))
    else:
        stage.judge(collected)


def _judge_by_types(rooms: Mapping[str, Sequence[Mutant]]) -> None:
    waiting = {room: [each for each in rooms[room] if _results(room).lacks(each, "types")] for room in rooms}
    if any(waiting.values()):
        with types() as checked:
            for room, mutants in waiting.items():
                results = _results(room)
                verdicts = ((mutant, checked.rejected(mutant)) for mutant in mutants)
                for mutant, by in _shown(f"{room} types", len(mutants), verdicts):
                    results.note(mutant, "types", by)


def _judge_by_histories(stage: _Stage, hot: bool) -> None:
    def noticing(mutant: Mutant) -> str | None:
        for name in stage.chosen(mutant, float("inf"), stage.asked.histories):
            hasten(stage.reach.runners[name])
            if not histories.is_clean(name):
                return name
        return None

    if hot:
        histories.names()  # imports all
    stage.judge(noticing)


def _room(name: str) -> str:
    if name not in ROOMS:
        raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(ROOMS)}")
    return name


def _asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("rooms", nargs="*", type=_room, metavar="room", help=", ".join(ROOMS))
    parser.add_argument("--processes", type=at_least_one, default=os.cpu_count() or 1, help="mutants at a time")
    parser.add_argument("--seconds", type=above_zero, default=30, help="of tests for each mutant")
    parser.add_argument("--histories", type=at_least_one, default=500, help="for each mutant that the tests let live")
    parser.add_argument("--decisions", action="store_true", help="only guards, conditions and fences")
    parser.add_argument(
        "--one-in", type=at_least_one, default=1, help="only a sample: one mutant in so many, always the same"
    )
    parser.add_argument("--again", action="store_true", help="judge again what survived without an excuse")
    parser.add_argument("--report", action="store_true", help="only print what is known")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
