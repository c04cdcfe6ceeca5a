"""Bugs planted into pops that fill up from several queues, and into groups without an end of attempts."""

from __future__ import annotations

import dataclasses
from typing import Any
from unittest.mock import patch

from chalicelib.core.catalogue.group import ENDLESS, Group
from chalicelib.core.consuming.taker import Popped, Taker
from tests.simulation.mutants import planted


@planted
def no_end_of_attempts_taken_for_no_attempt_left() -> Any:
    """In a group without an end of attempts, every message that comes back goes to the dead letters."""
    true = vars(Group)["of"].__func__

    def of(cls: Any, *args: Any) -> Any:
        group = true(cls, *args)
        return dataclasses.replace(group, max_attempts=0) if group.max_attempts == ENDLESS else group

    return patch.object(Group, "of", classmethod(of))


@planted
def fills_that_stop_at_the_first_queue() -> Any:
    """A pop with `fill` takes from one queue."""
    return patch.object(Taker, "_is_filled", lambda _self, _view, got, _until: bool(got.deliveries))


@planted
def fills_that_ask_each_queue_for_all() -> Any:
    """Every queue gives as many messages as were asked for in all."""
    true = Taker._taken
    return patch.object(Taker, "_taken", lambda self, views, view, acks, _got: true(self, views, view, acks, Popped()))


@planted
def fills_that_forget_claims_without_answer() -> Any:
    """An attempt answers what it has although another queue may have leased messages to it, which a repeat shows."""
    return patch.object(Taker, "_may_have_leased", lambda *_: False)
