"""Versions of the tables: their files, and the step from one version to the next."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from uuid import uuid4

import orjson

from spark.errors import BadInput
from spark.files import TEMPORARY, Place

FOLDER = "_versions"
_LAYOUT = 2
_NAME = re.compile(r"(\d{12})\.json")
_KEPT = 10
"""Versions that are kept: for readers about to read them, and so that a suspended commit cannot find an old number free
and succeed unseen."""
_TRIES_MAX = 100


class File(NamedTuple):
    """`name`: within the folder of its partition. `bytes`: its size."""

    name: str
    rows: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Part:
    """A partition of a table. `made_from`: the source that it was computed from, if that matters."""

    files: tuple[File, ...] = ()
    made_from: str = ""

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)

    def spelled(self) -> dict[str, Any]:
        return {"files": [[*file] for file in self.files], "made_from": self.made_from}


class TableParts(Mapping[str, Part]):
    """The partitions of a table, by name. `spelled`: their form in the version's file. Each is parsed on access: a run
    needs a few of many."""

    def __init__(self, spelled: Mapping[str, dict[str, Any]]) -> None:
        self.spelled = spelled

    def __getitem__(self, name: str) -> Part:
        spelled = self.spelled[name]
        return Part(tuple(File(*file) for file in spelled["files"]), spelled["made_from"])

    def __iter__(self) -> Iterator[str]:
        return iter(self.spelled)

    def __len__(self) -> int:
        return len(self.spelled)


@dataclass(frozen=True, slots=True)
class Version:
    """`tables`: by table, then by partition. Number 0: there was no commit."""

    number: int = 0
    tables: Mapping[str, TableParts] = field(default_factory=dict)

    def parts(self, table: str) -> TableParts:
        return self.tables.get(table, TableParts({}))

    def named(self, places: Iterable[tuple[str, str]] | None = None) -> set[str]:
        """The files of these partitions, each given with its table, or of all, by their path below the root."""
        if places is None:
            places = [(table, name) for table, parts in self.tables.items() for name in parts]
        return {
            f"{table}/{name}/{file.name}"
            for table, name in places
            for file in self.parts(table).get(name, Part()).files
        }


@dataclass(slots=True)
class TablesChange:
    """`put`: new partitions, by table and partition; None removes one. `added`: files added to the existing ones."""

    put: dict[tuple[str, str], Part | None] = field(default_factory=dict)
    added: dict[tuple[str, str], tuple[File, ...]] = field(default_factory=dict)


class Versions:
    """The versions of the tables at `root`. A version never changes, so each is read once."""

    def __init__(self, root: Place) -> None:
        self._root, self._folder = root, root / FOLDER
        self._read = Version()

    def newest(self) -> Version:
        """Raises `BadInput` if the tables are of another layout."""
        for _ in range(_TRIES_MAX):
            numbers = self._numbers()
            if not numbers:
                return Version()
            place = self._place(numbers[-1])
            if numbers[-1] != self._read.number and place.size() is not None:  # else a newer one has replaced it
                self._read = Version(numbers[-1], _tables(place))
            if numbers[-1] == self._read.number:
                return self._read
        raise BadInput(f"{self._folder} cannot be read: versions come and go all the time")

    def commit(self, change: Callable[[Version], TablesChange]) -> tuple[Version, set[str]]:
        """Makes the version after the newest one. Calls `change` again if another commit came first; `change` may
        raise. Returns the new version, and the files that it no longer names."""
        for _ in range(_TRIES_MAX):
            before = self.newest()
            made = change(before)
            after = Version(before.number + 1, _changed(before, made))
            if self._place(after.number).create(_spelled(after)):
                self._read = after
                return after, before.named(made.put) - after.named(made.put)
        raise BadInput(f"{self._root}: others commit all the time; run the job again")

    def forget(self, newest: int) -> None:
        """Removes unneeded versions and the remains of crashed commits. Only for the sole committer."""
        for name in self._folder.names():
            is_old = _NAME.fullmatch(name) and f"{FOLDER}/{name}" not in self.kept(newest)
            if is_old or name.startswith(TEMPORARY):
                (self._folder / name).delete()

    def kept(self, newest: int) -> set[str]:
        """The last versions, below the root."""
        return {self.path(number) for number in range(newest, newest - _KEPT, -1)}

    def _numbers(self) -> list[int]:
        return sorted(int(match[1]) for name in self._folder.names() if (match := _NAME.fullmatch(name)))

    @staticmethod
    def path(number: int) -> str:
        """The path of a version, below the root."""
        return f"{FOLDER}/{number:012}.json"

    def _place(self, number: int) -> Place:
        return self._root / self.path(number)


def _changed(before: Version, change: TablesChange) -> dict[str, TableParts]:
    tables = {table: dict(parts.spelled) for table, parts in before.tables.items()}
    for (table, name), part in change.put.items():
        parts = tables.setdefault(table, {})
        parts.pop(name, None)
        if part is not None:
            parts[name] = part.spelled()
    for (table, name), files in change.added.items():
        parts = tables.setdefault(table, {})
        old = TableParts(parts).get(name, Part())
        parts[name] = Part((*old.files, *files), old.made_from).spelled()
    return {table: TableParts(parts) for table, parts in tables.items()}


def _spelled(version: Version) -> bytes:
    tables = {table: parts.spelled for table, parts in version.tables.items()}
    content = {"layout": _LAYOUT, "commit": uuid4().hex, "tables": tables}
    return orjson.dumps(content, option=orjson.OPT_SORT_KEYS)


def _tables(place: Place) -> dict[str, TableParts]:
    try:
        spelled = orjson.loads(place.read())
        if (layout := spelled["layout"]) != _LAYOUT:
            raise BadInput(f"{place} is of layout {layout}; this release reads layout {_LAYOUT}")
        return {table: TableParts(parts) for table, parts in spelled["tables"].items()}
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise BadInput(f"{place} does not tell the files of the tables: {error}") from error
