"""Functions that record their arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

N = TypeVar("N")
R = TypeVar("R")


def noted(run: Callable[..., R], notes: list[N], note: Callable[..., N]) -> Callable[..., R]:
    """`run`; of the arguments of each call, `note` goes into `notes`."""

    def noting(*arguments: Any) -> R:
        notes.append(note(*arguments))
        return run(*arguments)

    return noting
