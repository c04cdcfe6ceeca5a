"""Bugs planted into looks at some of the queues, and into the pages of their cursors."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

from chalicelib.core.consuming.tour import Tour
from chalicelib.core.cursors.broadcast import Consumers
from chalicelib.core.table import keys
from tests.simulation.mutants import planted


@planted
def nothing_though_queues_are_left() -> Any:
    """A pop whose first look shows nothing returns none."""
    return patch.object(Tour, "is_over", lambda self, _topic: bool(self.seen))


@planted
def resets_that_forget_a_page() -> Any:
    """A reset moves the cursors of the first page alone."""
    true = Consumers.moving

    def moving(self: Any, *args: Any) -> Any:
        return [(cursor, offset) for cursor, offset in true(self, *args) if not keys.page_of(cursor.queue)]

    return patch.object(Consumers, "moving", moving)
