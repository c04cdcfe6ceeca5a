"""Bugs planted into the alarms of groups."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

from chalicelib.table.writes import Absent, Equals
from chalicelib.upkeep import alarms
from chalicelib.upkeep.alarms import change
from tests.simulation.mutants import planted, without


@planted
def alarms_in_two_writes() -> Any:
    """The state changes, and the message that tells of it comes after: not, if its caller dies."""
    true = alarms.Alarms.announce

    class OneByOne:
        def __init__(self, store: Any) -> None:
            self._store = store

        def __getattr__(self, name: str) -> Any:
            return getattr(self._store, name)

        def write_together(self, writes: Any) -> None:
            for each in writes:
                self._store.write(each)

    def changed(self: Any, *args: Any) -> bool:
        store, self._store = self._store, OneByOne(self._store)
        try:
            return true(self, *args)
        finally:
            self._store = store

    return patch.object(alarms.Alarms, "announce", changed)


@planted
def alarms_that_race() -> Any:
    """Two checks that see one crossing both tell of it."""

    return patch.object(alarms, "change", lambda *args: without(change(*args), Absent, Equals))
