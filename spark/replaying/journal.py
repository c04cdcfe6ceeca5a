"""The journal of a replay: the batches that it was about to send, and those known to be stored. The replay writes and
syncs each line before it acts on it.

    {"run": ..., "to": ..., "selection": ...}       the first line: what the run is
    {"sending": [first, end], "at_ms": ...}         messages `first` to `end` of the plan, of which `end` is not one
    {"stored": end}                                 all before `end` are stored
    {"refused": end}                                the service has refused the last batch, and stored none of it
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

import orjson

from spark.errors import BadInput


@dataclass(frozen=True, slots=True)
class Doubt:
    """A batch that may or may not be stored: first tried at `first_at_ms`, last at `last_at_ms`."""

    first: int
    end: int
    first_at_ms: int
    last_at_ms: int


class Journal:
    """The journal of one run. Raises `BadInput` if the file belongs to another run, is not a journal, or is being
    written by another process."""

    def __init__(self, path: Path, about: Mapping[str, Any]) -> None:
        self.stored = 0
        self.doubt: Doubt | None = None
        self._path, self._about = path, about
        self._file: BinaryIO

    def __enter__(self) -> Self:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._file = self._path.open("a+b")
        self._lock()
        self._file.seek(0)
        content = self._file.read()
        whole = content[: content.rfind(b"\n") + 1]
        if len(whole) < len(content):  # the writer died within a line, and so before it acted
            self._file.truncate(len(whole))
        try:
            for number, line in enumerate(whole.splitlines()):
                self._learn(number, line)
            if not whole:
                self._append(self._about)
        except BaseException:
            self._file.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def sending(self, first: int, end: int, at_ms: int) -> Doubt:
        """Records an attempt. Returns the batch that is in doubt from now on."""
        self._append({"sending": [first, end], "at_ms": at_ms})
        return self._doubted(first, end, at_ms)

    def sent(self, end: int) -> None:
        self._append({"stored": end})
        self.stored, self.doubt = end, None

    def refused(self, end: int) -> None:
        self._append({"refused": end})
        self.doubt = None

    def _doubted(self, first: int, end: int, at_ms: int) -> Doubt:
        began = self.doubt.first_at_ms if self.doubt else at_ms
        self.doubt = Doubt(first, end, began, at_ms)
        return self.doubt

    def _learn(self, number: int, line: bytes) -> None:
        try:
            noted = orjson.loads(line)
            if number == 0:
                self._demand_same(noted)
            elif "sending" in noted:
                first, end = noted["sending"]
                self._doubted(first, end, noted["at_ms"])
            else:
                self.stored, self.doubt = noted.get("stored", self.stored), None
        except (orjson.JSONDecodeError, TypeError, KeyError, AttributeError) as error:
            raise BadInput(f"{self._path} is not the journal of a replay: line {number + 1}") from error

    def _demand_same(self, noted: Any) -> None:
        wrong = [name for name, value in self._about.items() if noted.get(name) != value]
        if wrong:
            name = wrong[0]
            raise BadInput(
                f"run {self._about['run']} was begun with {name} {noted.get(name)!r}, not {self._about[name]!r}; "
                "give the same again, or another --run-id"
            )

    def _lock(self) -> None:
        import fcntl

        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._file.close()
            raise BadInput(f"another process is at work on {self._path}") from error

    def _append(self, line: Mapping[str, Any]) -> None:
        self._file.write(orjson.dumps(line) + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())
