"""Bugs planted into what pops bring of paused groups, and to those who ask again."""

from __future__ import annotations

import dataclasses
from typing import Any
from unittest.mock import patch

from chalicelib.core.base.runtime import Runtime
from chalicelib.core.catalogue.rate import Window
from chalicelib.core.consuming import settle, taker
from chalicelib.core.consuming.view import QueueView
from chalicelib.core.cursors import lease
from chalicelib.core.cursors.cursor import Cursor, RetryPage
from chalicelib.core.table.writes import AtMost
from tests.simulation import world
from tests.simulation.mutants import planted, without


@planted
def pauses_that_nobody_looks_at() -> Any:
    """A paused group delivers."""
    true = taker.Taker.take

    def take(self: Any, view: Any, *args: Any) -> Any:
        return true(self, dataclasses.replace(view, group=dataclasses.replace(view.group, paused=False)), *args)

    return patch.object(taker.Taker, "take", take)


@planted
def waits_by_a_clock_that_is_set() -> Any:
    """A pop whose clock is set back while it waits goes on waiting for as long as that."""
    return patch.object(
        world, "Runtime", lambda now, sleep, entropy, _uptime, bell: Runtime(now, sleep, entropy, now, bell)
    )


@planted
def repeats_that_take_more() -> Any:
    """A pop that is called again by its attempt id leases once more."""
    return patch.object(Cursor, "held", lambda *_: [])


@planted
def leases_that_come_back_late() -> Any:
    """A lease is taken over only seconds after it has run out."""
    return patch.object(lease.Lease, "is_due", lambda self, now: self.deadline + 4_000 <= now and bool(self.owed))


@planted
def nacks_that_come_back_late() -> Any:
    """A nacked message waits for seconds more than it should."""

    def later(*args: Any) -> Any:
        made = lease.parked(*args)
        return dataclasses.replace(made, deadline=made.deadline + 4_000)

    return patch.object(settle, "parked", later)


@planted
def pages_that_come_back_late() -> Any:
    """A retry page is brought back when its last message is due, and more."""
    true = RetryPage.holding.__func__  # type: ignore[attr-defined]

    def holding(page_id: str, leases: Any) -> Any:
        made = true(RetryPage, page_id, leases)
        return dataclasses.replace(made, due=made.due + 4_000)

    return patch.object(RetryPage, "holding", holding)


@planted
def heads_that_are_gone_unseen() -> Any:
    """A log that was read for where the cursor stood before a reset is taken for all there is."""
    return patch.object(QueueView, "is_outrun", property(lambda _: False))


@planted
def permits_that_others_have_taken() -> Any:
    """A pop takes as many permits as it saw, whatever others have taken since."""
    true = Window.take
    return patch.object(Window, "take", lambda *args: without(true(*args), AtMost))
