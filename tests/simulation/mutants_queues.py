"""Bugs planted into changes of the number of queues."""

from __future__ import annotations

import dataclasses
from typing import Any
from unittest.mock import patch

from chalicelib.core.admin import draining
from chalicelib.core.admin.draining import Draining
from chalicelib.core.catalogue.growth import Growth
from chalicelib.core.catalogue.scaling import Scaling
from chalicelib.core.log import segment
from chalicelib.core.table.writes import Add, Set
from tests.simulation.mutants import planted, replaced


@planted
def queues_that_leave_unsettled() -> Any:
    """A queue leaves while groups have messages of it to get."""
    return patch.object(draining, "is_settled", lambda *_: True)


@planted
def queues_that_leave_open() -> Any:
    """What comes late into a queue that has left is stored there."""

    def leave(log: str, last: Any, by: int) -> Any:
        made: Any = segment.leave(log, last, by=by)
        opened = {("bytes",): Add(("bytes",), 0), ("closed",): Set(("left",), by)}
        return dataclasses.replace(made, effects=tuple(opened.get(effect.path, effect) for effect in made.effects))

    return replaced(draining, "segment", leave=leave)


@planted
def queues_that_never_leave() -> Any:
    """A queue is read for ever."""
    return patch.object(Draining, "step", lambda *_: 0)


@planted
def queues_that_are_read_no_more() -> Any:
    """A queue that is too much is not read from the change on."""
    true = Scaling.resized
    return patch.object(Scaling, "resized", lambda self, queues, now: true(self, queues, now)._replace(readers=queues))


@planted
def topics_that_grow_under_ordered_groups() -> Any:
    """Keys move though somebody counts on their order."""
    return patch.object(Growth, "_has_places", lambda *_: False)
