"""The changes of a source file."""

from __future__ import annotations

from pathlib import Path

from tests.mutants.changes import Mutant, mutants_of
from tests.mutants.results import Excuses


def _mutants(folder: Path, text: str) -> list[Mutant]:
    (folder / "source.py").write_text(text)
    return mutants_of(folder / "source.py")


def _lines(mutants: list[Mutant], line: int) -> set[str]:
    return {mutant.text.splitlines()[line - 1].strip() for mutant in mutants if mutant.line == line}


def test_every_guard_and_effect_is_left_out_once(tmp_path: Path) -> None:
    mutants = _mutants(tmp_path, "change = Change(guards=(Absent(path), Exists(other)), effects=(Remove(path),))\n")
    assert {mutant.text.strip(): mutant.decides for mutant in mutants} == {
        "change = Change(effects=(Remove(path),))": True,
        "change = Change(guards=(Absent(path), Exists(other)), )": False,
        "change = Change(guards=(Exists(other),), effects=(Remove(path),))": True,
        "change = Change(guards=(Absent(path), ), effects=(Remove(path),))": True,
        "change = Change(guards=(Absent(path), Exists(other)), effects=())": False,
    }


def test_every_condition_holds_always_never_and_a_little_otherwise(tmp_path: Path) -> None:
    mutants = _mutants(tmp_path, "def is_old(at):\n    if at < now and kept:\n        forget(at)\n")
    assert _lines(mutants, 2) == {
        "if ((at < now and kept) and False):",
        "if ((at < now and kept) or True):",
        "if at <= now and kept:",
        "if at < now or kept:",
        "if at < now:",
        "if kept:",
    }
    assert _lines(mutants, 3) == {"pass"}
    assert all(mutant.decides for mutant in mutants if mutant.line == 2)


def test_a_mutant_keeps_its_name_when_other_lines_change(tmp_path: Path) -> None:
    source = "def twice(number):\n    return 2 * number\n"
    before, after = (_mutants(tmp_path, text) for text in (source, "ONE = one\n" + source))
    assert {mutant.id for mutant in before} <= {mutant.id for mutant in after}


def test_an_excuse_is_of_one_mutant_or_of_all_that_fit_a_pattern(tmp_path: Path) -> None:
    mutants = _mutants(tmp_path, "KEPT_MAX = 10\nAGE_MAX = 10\n")
    aged = next(mutant for mutant in mutants if mutant.change == "AGE_MAX = 10 => AGE_MAX = 11")
    kept = {mutant for mutant in mutants if mutant.line == 1}
    excuses = Excuses(f"# source.py\n/^KEPT_MAX = / costs: a cache of one less\n{aged.id} equal: nobody is so old\n")
    assert {mutant for mutant in mutants if excuses.spare(mutant)} == {aged, *kept}
    assert not any(Excuses(f"{mutant.id} open: what then?").spare(mutant) for mutant in mutants)
