"""Counts what histories reach: lines and branches of the rooms, guards of writes, errors, and operations that meet at
an item. No check judges code that no history reaches."""

from __future__ import annotations

import ast
import gc
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from functools import cache
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from types import CodeType, FrameType
from typing import Any, NamedTuple
from unittest.mock import patch

from coverage import Coverage
from greenlet import getcurrent

from chalicelib.core import table
from chalicelib.core.base import errors
from chalicelib.core.base.records import _initializer
from chalicelib.core.store import Keys, Read
from chalicelib.core.table import writes
from chalicelib.core.table.writes import Guard, Item, Key, Refused, Write, key_of
from local.memory.evaluate import holds
from tests.simulation import world
from tests.simulation.faulty_store import PastStore
from tests.simulation.intruders import Intruders

_ROOT = Path(table.__file__).parents[2]
ROOMS = (
    *("log", "cursors", "consuming", "delays", "producing", "dead_letters", "transactions", "requests", "push"),
    *("upkeep", "admin", "access", "moves", "reading", "catalogue"),
)
_GUARDS = (
    *(writes.Exists, writes.Absent, writes.Equals, writes.AtMost, writes.AtLeast, writes.SizeIs, writes.SizeBelow),
    *(writes.Lacks, writes.Either),
)
_ERRORS = [name for name, kind in vars(errors).items() if isinstance(kind, type)]
_CHUNK = 25
_RARELY = 3
_intruder = ContextVar[object]("intruder", default=None)
_INTRUSION = Intruders._intrude.__code__
_LATE = "a late write"
"""The operation of a write whose caller has given up."""


class Place(NamedTuple):
    file: str
    line: int
    function: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line} {self.function}"


class Seen:
    """Counts of many histories."""

    def __init__(self) -> None:
        self.held, self.failed, self.alone = Counter[Place](), Counter[Place](), Counter[Place]()
        """Guards by their place in the code: how often each held, failed, and was the only one of its write that
        failed."""
        self.errors = Counter[Place]()
        """By their place in the code."""
        self.met = Counter[tuple[str, str, str]]()
        """Kinds of items, operations that wrote one, and the operations that had written it since their read."""
        self.wrote = Counter[tuple[str, str]]()
        """Kinds of items, and operations that wrote one."""

    def add(self, other: Seen) -> None:
        for name, counter in vars(other).items():
            getattr(self, name).update(counter)


# -- measuring --------------------------------------------------------------------------------------------------------


def measured(seeds: Sequence[int], processes: int) -> tuple[Seen, dict[str, Any]]:
    """Plays these seeds and returns what they reach, with the report of coverage.py about the rooms."""
    seen = Seen()
    chunks = [seeds[first : first + _CHUNK] for first in range(0, len(seeds), _CHUNK)]
    with TemporaryDirectory() as folder:
        with get_context("fork").Pool(processes, _cover, [folder]) as pool:
            for each in pool.imap_unordered(_played, chunks):
                seen.add(each)
        coverage = _coverage(folder)
        coverage.combine([folder])
        coverage.json_report(outfile=f"{folder}/report", show_contexts=True)
        return seen, json.loads(Path(folder, "report").read_text())


_covering: list[Coverage] = []


def _cover(folder: str) -> None:
    _covering.append(coverage := _coverage(folder))
    coverage.start()


def _coverage(folder: str) -> Coverage:
    rooms = [str(_folder(room)) for room in ROOMS]
    kept: dict[str, Any] = {"data_file": f"{folder}/data", "data_suffix": True, "config_file": False}
    return Coverage(branch=True, source=rooms, concurrency=["greenlet"], **kept)


def _played(seeds: Sequence[int]) -> Seen:
    _covering[0].switch_context(str(seeds[0]))
    with watching() as seen:
        for seed in seeds:
            world.play(seed)
    _covering[0].save()
    gc.collect()
    return seen


@contextmanager
def watching() -> Iterator[Seen]:
    """Counts the histories played within it."""
    seen, marks = Seen(), dict[int, tuple[Guard, Place]]()

    def store(time: Any) -> WatchedStore:
        marks.clear()
        return WatchedStore(time, seen, marks)

    def made(guard: Guard, place: Place) -> None:
        marks[id(guard)] = guard, place

    with ExitStack() as patches:
        patches.enter_context(patch.object(world, "PastStore", store))
        patches.enter_context(patch.object(Intruders, "_intrude", _by_itself(Intruders._intrude)))
        for kind in _GUARDS:
            patches.enter_context(patch.object(kind, "__init__", _noting(_initializer(kind), made)))
        told = _noting(errors.DecantError.__init__, lambda _, place: seen.errors.update([place]))
        patches.enter_context(patch.object(errors.DecantError, "__init__", told))
        yield seen


def _noting(begin: Any, note: Any) -> Any:
    def init(self: Any, *given: Any, **named: Any) -> None:
        begin(self, *given, **named)
        frame = sys._getframe(1)
        note(self, Place(_file(frame.f_code), frame.f_lineno, frame.f_code.co_qualname))

    return init


class WatchedStore(PastStore):
    """`marks`: the place of each guard, by its id."""

    def __init__(self, time: Any, seen: Seen, marks: dict[int, tuple[Guard, Place]]) -> None:
        self._seen, self._marks = seen, marks
        self._writers: dict[Key, list[str]] = {}
        self._looks: dict[tuple[Any, Key], int] = {}
        """How many versions of an item there were when a caller last saw it."""
        super().__init__(time)

    def read_now(self, read: Read) -> list[Item]:
        items = super().read_now(read)
        self._look(read.keys if isinstance(read, Keys) else map(key_of, items))
        return items

    def read_past(self, read: Read, instant: int) -> list[Item]:
        items = super().read_past(read, instant)
        for key in read.keys if isinstance(read, Keys) else map(key_of, items):
            instants, _ = self._past.get(key.pk, {}).get(key.sk, ([], []))
            self._looks[_caller(), key] = sum(each <= instant for each in instants)
        return items

    def write(self, write: Write) -> Item:
        self._meet([write])
        try:
            return super().write(write)
        finally:
            self._look([write.key])

    def write_together(self, together: Sequence[Write]) -> None:
        self._meet(together)
        try:
            super().write_together(together)
        except Refused as refused:
            self._look([key_of(refused.before)] if refused.before else ())
            raise
        self._look(write.key for write in together)

    def _look(self, keys: Iterable[Key]) -> None:
        for key in keys:
            self._looks[_caller(), key] = len(self._writers.get(key, ()))

    def _meet(self, together: Sequence[Write]) -> None:
        operation = _operation(sys._getframe(2))
        for write in together:
            kind, since = _kind(write.key), self._looks.get((_caller(), write.key))
            self._seen.wrote[kind, operation] += 1
            if since is not None:
                for other in self._writers.get(write.key, [])[since:]:
                    self._seen.met[kind, operation, other] += 1
            self._judge(write)

    def _judge(self, write: Write) -> None:
        item = self._get(write.key)
        failed = [guard for guard in write.guards if not holds(guard, item)]
        for guard in write.guards:
            place = self._place(guard)
            if guard not in failed:
                self._seen.held[place] += 1
                continue
            self._seen.failed[place] += 1
            self._seen.alone[place] += len(failed) == 1

    def _place(self, guard: Guard) -> Place:
        return self._marks[id(guard)][1] if id(guard) in self._marks else Place("constant", 0, repr(guard))

    def _put(self, key: Key, item: Item | None) -> None:
        self._writers.setdefault(key, []).append(_operation(sys._getframe(1)))
        super()._put(key, item)


def _caller() -> tuple[Any, object]:
    return getcurrent(), _intruder.get()


def _by_itself(act: Callable[[Intruders], None]) -> Callable[[Intruders], None]:
    """Intruders run in the greenlet of the caller that they interrupt, and have read nothing."""

    def acting(intruders: Intruders) -> None:
        before = _intruder.set(object())
        try:
            act(intruders)
        finally:
            _intruder.reset(before)

    return acting


def _operation(frame: FrameType | None) -> str:
    """The outermost function of a room that a caller, or an intruder, called."""
    found = ""
    while frame is not None and frame.f_code is not _INTRUSION:
        found, frame = _entrance(frame.f_code) or found, frame.f_back
    return found or _LATE


@cache
def _entrance(code: CodeType) -> str:
    file = _file(code)
    room, _, rest = file.partition("/")
    return f"{room}.{code.co_qualname}" if room in ROOMS and rest and "<" not in code.co_qualname else ""


@cache
def _file(code: CodeType) -> str:
    return _named(code.co_filename)


def _named(path: str) -> str:
    """A file by its room and its name."""
    return path.removeprefix(f"{_ROOT}/").removeprefix("core/")


def _folder(room: str) -> Path:
    return _ROOT / (room if room == "push" else f"core/{room}")


def _kind(key: Key) -> str:
    kind = key.pk.partition("#")[0]
    return key.sk.partition("#")[0] if kind == "group" else kind


# -- the tables -------------------------------------------------------------------------------------------------------


def tables(seen: Seen, report: dict[str, Any]) -> Iterator[str]:
    yield from _lines(report)
    yield from _guards(seen)
    yield from _errors(seen)
    yield from _meetings(seen)


def _lines(report: dict[str, Any]) -> Iterator[str]:
    """By function, since definitions of a module run before the measurement."""
    rooms, rows = dict[str, Counter[str]](), list[tuple[int, str]]()
    for path, file in report["files"].items():
        name = _named(str(Path(path).resolve()))
        room = rooms.setdefault(name.partition("/")[0], Counter())
        once = {int(line) for line, chunks in file["contexts"].items() if len(chunks) == 1}
        for function, part in file["functions"].items():
            if function:
                room.update(_counts(part, once))
                rows.append(_unreached(f"{name} {function}", part))
    rooms["all"] = sum(rooms.values(), Counter[str]())
    yield "lines and branches that no history reaches"
    yield f"rare: only histories of {_CHUNK} seeds in a row reach them (with up to {_CHUNK} seeds, every line is)"
    yield "12->15: line 15 never followed line 12; 307->-301: the function at line 301 was never left from line 307\n"
    yield f"{'room':16}{'lines':>8}{'never':>8}{'rare':>8}{'branches':>10}{'never':>8}"
    for name, count in sorted(rooms.items(), key=lambda each: -each[1]["missing"]):
        yield f"{name:16}{count['lines']:8}{count['missing']:8}{count['rare']:8}{count['branches']:10}{count['ways']:8}"
    yield ""
    yield from (text for count, text in sorted(rows, key=lambda row: -row[0]) if count)


def _counts(part: dict[str, Any], once: set[int]) -> dict[str, int]:
    run, missing = part["executed_lines"], len(part["missing_lines"])
    ways = {"branches": part["summary"]["num_branches"], "ways": len(part["missing_branches"])}
    return {"lines": len(run) + missing, "missing": missing, "rare": len(once.intersection(run)), **ways}


def _unreached(function: str, part: dict[str, Any]) -> tuple[int, str]:
    missing, ways = part["missing_lines"], part["missing_branches"]
    unseen = [f"{line}->{to}" for line, to in ways if line not in missing and to not in missing]
    return len(missing) + len(unseen), f"{function}: {' '.join([*_ranges(missing), *unseen])}"


def _ranges(lines: Sequence[int]) -> list[str]:
    """Joins lines that are at most three apart into ranges."""
    runs: list[list[int]] = []
    for line in sorted(lines):
        if runs and line <= runs[-1][-1] + 3:
            runs[-1].append(line)
        else:
            runs.append([line])
    return [f"{run[0]}-{run[-1]}" if run[1:] else f"{run[0]}" for run in runs]


def _guards(seen: Seen) -> Iterator[str]:
    known = {guard for file in _ROOT.rglob("*.py") for guard in _calls(file, [kind.__name__ for kind in _GUARDS])}
    met = seen.held | seen.failed
    places = {place[:2]: place for place in met}
    never = [guard for guard in sorted(known) if guard[:2] not in places]
    yield f"\n{len(known)} guards: {len(never)} belong to writes that no history made\n"
    sure = [place for place in met if not seen.failed[place]]
    joined = [place for place in met if seen.failed[place] and not seen.alone[place]]
    yield from map(str, never)
    yield f"\nothers are made at {len(met)} places: at {len(sure)} none failed, at {len(joined)} more none failed alone"
    yield f"{'held':>10}{'failed':>10}{'alone':>10}  guard of a write; alone: no other guard of the write failed"
    for place in sorted(met, key=lambda place: (seen.alone[place], seen.failed[place], place)):
        yield f"{seen.held[place]:10}{seen.failed[place]:10}{seen.alone[place]:10}  {place}"


def _errors(seen: Seen) -> Iterator[str]:
    places = {place[:2]: place for place in seen.errors}
    files = [file for room in ROOMS for file in _folder(room).rglob("*.py")]
    known = {call for file in files for call in _calls(file, _ERRORS)}
    yield "\nerrors by where they are made\n"
    rows = [(seen.errors[places[call[:2]]] if call[:2] in places else 0, str(call)) for call in known]
    yield from (f"{count:10}  {call}" for count, call in sorted(rows))


def _meetings(seen: Seen) -> Iterator[str]:
    yield "\npairs of operations that met: B wrote an item between A's read and A's write of it; (1): only once"
    met_in_all = known = 0
    for kind in sorted({kind for kind, _ in seen.wrote}):
        wrote = sorted(operation for each, operation in seen.wrote if each == kind)
        pairs = [*product((each for each in wrote if each != _LATE), wrote)]
        met = {pair: seen.met[kind, *pair] for pair in pairs}
        yield f"\n{kind}: {sum(map(bool, met.values()))} of {len(pairs)} pairs of operations met"
        met_in_all, known = met_in_all + sum(map(bool, met.values())), known + len(pairs)
        for operation in wrote:
            others = {other: count for (one, other), count in met.items() if one == operation and count < _RARELY}
            if others:
                never = ", ".join(f"{other}{f' ({count})' * bool(count)}" for other, count in others.items())
                yield f"  {operation} was never or rarely met by: {never}"
    yield f"\nin all: {met_in_all} of {known} pairs of operations met"


def _calls(file: Path, names: Sequence[str]) -> Iterator[Place]:
    """The places where functions make one of these."""
    functions = [node for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.FunctionDef)]
    for node in (node for function in functions for node in ast.walk(function)):
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if name in names:
                yield Place(_named(str(file)), node.lineno, name)
