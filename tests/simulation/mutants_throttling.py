"""Bugs planted into what callers do while partitions throttle."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

from chalicelib.core.consuming.taker import Taker
from chalicelib.core.producing.queue_choice import QueueChoice
from tests.simulation.mutants import planted


@planted
def messages_that_stay_where_they_are_throttled() -> Any:
    """A produce goes to no other queue."""
    return patch.object(QueueChoice, "others", lambda *_: [])


@planted
def pops_that_fail_with_one_log() -> Any:
    """A pop takes nothing if it cannot read the end of each log that it looks at."""
    true = Taker.take

    def take(self: Any, group_view: Any, *args: Any, **more: Any) -> Any:
        for view in group_view.queues.values():
            if view.trouble:
                raise view.trouble
        return true(self, group_view, *args, **more)

    return patch.object(Taker, "take", take)
