"""Bugs planted into what pops bring of paused groups, and to those who ask again."""

from __future__ import annotations

import dataclasses
from typing import Any
from unittest.mock import patch

from chalicelib.base.runtime import Runtime
from chalicelib.consuming import pop
from chalicelib.consuming.skip import Skipper
from chalicelib.cursors.cursor import Cursor
from tests.simulation import world
from tests.simulation.mutants import planted


@planted
def pauses_that_nobody_looks_at() -> Any:
    """A paused group delivers."""
    true = pop.Popper.pop_once

    def pop_once(self: Any, view: Any, *args: Any) -> Any:
        return true(self, dataclasses.replace(view, group=dataclasses.replace(view.group, paused=False)), *args)

    return patch.object(pop.Popper, "pop_once", pop_once)


@planted
def waits_by_a_clock_that_is_set() -> Any:
    """A pop whose clock is set back while it waits goes on waiting for as long as that."""
    return patch.object(world, "Runtime", lambda now, sleep, entropy, _uptime: Runtime(now, sleep, entropy, now))


@planted
def repeats_that_take_more() -> Any:
    """A pop that is called again by its attempt id leases once more."""
    return patch.object(Cursor, "held", lambda *_: [])


@planted
def heads_that_are_gone_unseen() -> Any:
    """What a log was not read for is taken for expired."""
    return patch.object(Skipper, "look_back", lambda *_: None)
