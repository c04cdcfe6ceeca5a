"""Bugs planted into the alarms of groups."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

from chalicelib.core.table.writes import Absent, Equals
from chalicelib.core.upkeep import alarms
from chalicelib.core.upkeep.alarms import change
from tests.simulation.mutants import planted, without, writing_one_by_one


@planted
def alarms_in_two_writes() -> Any:
    """The state changes, and the message that tells of it comes after: not, if its caller dies."""
    return writing_one_by_one(alarms.Alarms, "announce", lambda store, each: store.write(each))


@planted
def alarms_that_race() -> Any:
    """Two checks that see one crossing both tell of it."""

    return patch.object(alarms, "change", lambda *args: without(change(*args), Absent, Equals))
