"""The tests known to reach a line."""

from __future__ import annotations

import sys
from functools import partial
from importlib import import_module, reload
from pathlib import Path

import pytest

from tests.mutants.changes import mutants_of
from tests.mutants.reach import Reach


def test_what_reached_a_function_is_measured_again_when_that_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, kept, ran = tmp_path / "reached.py", tmp_path / "kept.json", list[str]()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def reaching(text: str) -> list[set[str]]:
        """For each function, its runs."""
        source.write_text(text)
        reached = reload(import_module("reached"))

        def run(name: str) -> bool:
            ran.append(name)
            return bool(getattr(reached, name)())

        Reach(kept).measure([source], {name: partial(run, name) for name in ("one", "two")})
        places = {mutant.place.name: mutant for mutant in mutants_of(source)}
        return [{*Reach(kept).of(places[name])} for name in ("one", "two")]

    two = "def two():\n    return 2 > 1\n"
    assert reaching("def one():\n    return 1 > 0\n" + two) == [{"one"}, {"two"}]
    assert reaching("def one():\n    return two() > 0\n" + two) == [{"one"}, {"one", "two"}]
    assert ran == ["one", "two", "one"]
    assert reaching("def one():\n    return two() > 2\n" + two) == [set(), {"two"}]  # it fails now
