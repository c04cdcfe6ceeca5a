"""Each check finds the bug that is planted for it."""

from __future__ import annotations

import pytest

from tests.history.checker import CHECKS
from tests.history.outages import no_caller_meets_a_defect
from tests.simulation.bugs import BUGS
from tests.simulation.planted import FOUND_AT, is_found


@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_found(name: str) -> None:
    assert is_found(name)


def test_each_check_has_a_bug_that_it_finds() -> None:
    """But for the check that finds exceptions."""
    assert {check.__name__ for check in CHECKS} - {bug.check for bug in BUGS.values()} == {
        no_caller_meets_a_defect.__name__
    }


def test_seeds_are_of_planted_bugs() -> None:
    assert FOUND_AT.keys() <= BUGS.keys()
