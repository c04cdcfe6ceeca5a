"""Bugs planted into pops that fill up from several queues, and into groups without an end of attempts."""

from __future__ import annotations

import dataclasses
from typing import Any
from unittest.mock import patch

from chalicelib.catalogue.group import ENDLESS, Group
from tests.simulation.mutants import planted


@planted
def no_end_of_attempts_taken_for_no_attempt_left() -> Any:
    """In a group without an end of attempts, every message that comes back goes to the dead letters."""
    true = Group.of.__func__

    def of(cls: Any, *args: Any) -> Any:
        group = true(cls, *args)
        return dataclasses.replace(group, max_attempts=0) if group.max_attempts == ENDLESS else group

    return patch.object(Group, "of", classmethod(of))
