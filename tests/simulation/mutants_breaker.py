"""Bugs planted into the circuit breaker."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch
from weakref import WeakKeyDictionary

from chalicelib.core.producing import depths
from tests.simulation.mutants import planted


@planted
def breakers_that_forget_their_own_appends() -> Any:
    """Between two looks nothing is counted."""
    return patch.object(depths.Depths, "note", lambda *_: None)


@planted
def breakers_that_stay_open() -> Any:
    """What was full once is full for ever."""
    true = depths.Depths.full
    seen: WeakKeyDictionary[Any, dict[Any, Any]] = WeakKeyDictionary()

    def full(self: Any, *asked: Any) -> Any:
        known = seen.setdefault(self, {})
        known.update(true(self, *asked))
        return known

    return patch.object(depths.Depths, "full", full)


@planted
def breakers_for_one_group() -> Any:
    """The fastest group counts, and not the slowest."""
    return patch.object(depths, "min", max, create=True)
