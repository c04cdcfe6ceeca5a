"""Bugs planted into what leases note of the first delivery."""

from __future__ import annotations

import dataclasses
from typing import Any
from unittest.mock import patch

from chalicelib.core.consuming import claim, claim_plan, receipt_batch, settle
from chalicelib.core.cursors import cursor_writes, retries
from chalicelib.core.cursors.cursor_writes import Change
from chalicelib.core.cursors.lease import Lease, parked
from tests.simulation.mutants import calling, planted


@planted
def firsts_that_each_takeover_begins() -> Any:
    """A message that is taken over is delivered for the first time."""
    true = claim_plan.take

    def take(*args: Any) -> Change:
        with patch.object(claim_plan, "Lease", lambda *about: Lease(*[*about[:-1], args[-1]])):
            return true(*args)

    return patch.object(claim, "take", take)


@planted
def firsts_that_move_with_the_deadline() -> Any:
    """An extension in place leaves the age of the lease as it was."""

    def prolong(old: Any, deadline: int) -> Any:
        made: Any = cursor_writes.prolong(old, deadline)
        return dataclasses.replace(made, effects=tuple(each for each in made.effects if each.path != old.age_path))

    return calling(receipt_batch, prolong=prolong)


@planted
def firsts_that_retries_forget() -> Any:
    """A retry does not say when its message was delivered first."""
    return patch.object(settle, "parked", lambda *args: parked(*args[:-1]))


@planted
def firsts_that_pages_forget() -> Any:
    """What comes back from a page does not say when it was delivered first."""
    return patch.object(retries, "parked", lambda *args: parked(*args[:-1]))
