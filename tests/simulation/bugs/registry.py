"""Planted bugs by name: the check that shows each, and the plan that makes its situation common."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from tests.history.case import Case
from tests.simulation.plans import Plan

Check = Callable[[Case], Iterator[str]]
Plant = Callable[[], AbstractContextManager[Any]]


@dataclass(frozen=True, slots=True)
class Bug:
    """`plant`: for as long as its context lasts. `plan` None: those of the seeds."""

    plant: Plant
    check: str
    plan: Plan | None = None


BUGS: dict[str, Bug] = {}


def shown_by(check: Check, plan: Plan | None = None) -> Callable[[Plant], Plant]:
    def noted(plant: Plant) -> Plant:
        assert plant.__name__ not in BUGS
        BUGS[plant.__name__] = Bug(plant, check.__name__, plan)
        return plant

    return noted
