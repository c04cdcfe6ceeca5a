"""Bugs planted into what becomes of the dead."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

from chalicelib.core.consuming.claim import Claimer
from chalicelib.core.cursors import cursor_writes
from chalicelib.core.cursors.lease import parked
from chalicelib.core.dead_letters import dead_letter, queue, redrive
from chalicelib.core.table.writes import RemoveItem, Write
from tests.simulation.mutants import planted


@planted
def purges_that_do_not_count() -> Any:
    """The letters go, and the cursor counts them still."""
    return patch.object(queue, "purge", lambda cursor, _: cursor_writes.purge(cursor, 0))


@planted
def purges_that_do_nothing() -> Any:
    """A purge is answered, and all that was dead is there."""
    return patch.object(queue.DeadLetterQueue, "purge", lambda *_: 0)


@planted
def purges_of_what_is_gone() -> Any:
    """A letter is counted as purged though it was redriven, or purged, since it was read."""

    class Unguarded:
        """The module `dead_letter`, but for one thing."""

        def __getattr__(self, name: str) -> Any:
            return getattr(dead_letter, name)

        def remove(self, letter: Any) -> Write:
            return Write(dead_letter.remove(letter).key, (), (RemoveItem(),))

    return patch.object(queue, "dead_letter", Unguarded())


@planted
def redrives_that_come_late() -> Any:
    """What is brought back waits for two seconds."""
    return patch.object(
        redrive, "parked", lambda runtime, run, now, attempt: parked(runtime, run, now + 2_000, attempt=attempt)
    )


@planted
def claims_that_a_reset_ends() -> Any:
    """A claim that meets a reset takes nothing."""
    claim, plan = Claimer.claim, Claimer._plan
    begun: dict[int, int] = {}

    def claiming(self: Any, view: Any, want: int) -> Any:
        begun[id(view)] = view.cursor.epoch
        return claim(self, view, want)

    def planning(self: Any, view: Any, want: int, now: int) -> Any:
        return plan(self, view, want if view.cursor.epoch == begun[id(view)] else 0, now)

    return patch.multiple(Claimer, claim=claiming, _plan=planning)
