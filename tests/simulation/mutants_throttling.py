"""Bugs planted into what callers do while partitions throttle."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

from chalicelib.producing.queue_choice import QueueChoice
from tests.simulation.mutants import planted


@planted
def messages_that_stay_where_they_are_throttled() -> Any:
    """A produce goes to no other queue."""
    return patch.object(QueueChoice, "others", lambda *_: [])
