"""Bugs planted into zones."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

from chalicelib.core.consuming import view
from chalicelib.core.producing.queue_choice import QueueChoice
from tests.simulation.mutants import planted


@planted
def zones_that_producers_ignore() -> Any:
    """A message with a zone goes to any queue."""
    true = QueueChoice.unkeyed
    return patch.object(QueueChoice, "unkeyed", lambda self, logs, full=(), _near=(): true(self, logs, full))


@planted
def zones_that_consumers_ignore() -> Any:
    """All queues are near."""
    return patch.object(view.QueueView, "left_until_ms", lambda *_: 0)


@planted
def queues_that_are_never_taken_over() -> Any:
    """A queue is left to its zone however long its messages wait."""
    return patch.object(view, "TAKE_OVER_AFTER_MS", 10**9)


@planted
def queues_that_are_never_given_back() -> Any:
    """Consumers who come back to a queue that was taken over leave no note in its cursor."""

    def zone(self: Any) -> str | None:
        near, asked = self.topic.known_zones.zone_of(self.queue), self.ask.zone
        return None if asked == near else asked

    return patch.object(view.QueueView, "zone", property(zone))
