"""Facts in a file, line by line, so that they outlive the process.

A process writes a fact when it begins, with its outcome unknown, and once more when it knows the outcome: the last line
of a fact counts. A line without an end belongs to a process that died while it wrote, and does not count.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.history.facts import Fact
from tests.history.history import LISTS, History

_KINDS = {kind.__name__: kind for kind in LISTS}


class Journal:
    """The facts of one caller, which does one thing at a time."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("ab", buffering=0)
        self._numbers: dict[int, int] = {}
        self._kept: list[Fact] = []

    def begin(self, facts: Sequence[Fact]) -> None:
        self._write(facts)

    def end(self, facts: Sequence[Fact]) -> None:
        self._write(facts)

    def _write(self, facts: Sequence[Fact]) -> None:
        lines = [json.dumps([self._number(fact), type(fact).__name__, asdict(fact)]) for fact in facts]
        self._file.write("".join(f"{line}\n" for line in lines).encode())

    def close(self) -> None:
        self._file.close()

    def _number(self, fact: Fact) -> int:
        if id(fact) not in self._numbers:
            self._kept.append(fact)  # without it another fact could get its id
            self._numbers[id(fact)] = len(self._numbers)
        return self._numbers[id(fact)]


def read(paths: Sequence[Path]) -> History:
    """The facts of these journals; those of one caller in the order in which they began."""
    history = History()
    for path in paths:
        facts: dict[int, Fact] = {}
        for line in path.read_bytes().split(b"\n")[:-1]:
            number, kind, members = json.loads(line)
            facts[number] = _fact(kind, members)
        for fact in facts.values():
            history.begin([fact])
    return history


def _fact(kind: str, members: dict[str, Any]) -> Fact:
    if members.get("place") is not None:
        members["place"] = tuple(members["place"])
    if isinstance(members.get("to"), list):
        members["to"] = tuple(members["to"])
    fact: Fact = _KINDS[kind](**members)
    return fact
