"""Histories in which a topic gets more and fewer queues. Steps that take minutes elsewhere take a second here, less
than a late write does: no clock may decide the outcome."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from random import Random
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from chalicelib.core.admin import draining
from chalicelib.core.base.errors import InvalidField, QueuesDraining, StoreUnavailable
from chalicelib.core.catalogue import catalogue, topic
from chalicelib.core.catalogue.topic import AUTO
from chalicelib.service import Service
from tests.history.facts import Resized

if TYPE_CHECKING:
    from tests.simulation.world import World

QUEUES_MAX = 4
HEARD_MS = 500
_METADATA_AGE_MS = 150
_WRITTEN_LATE_MS = 100
_REPEATED_LATE_MS = 6_500
"""With dedup ids, which complete an entry for as long as they are valid: two seconds here, and late writes besides."""

_QUICK_GROWTH: dict[str, Any] = {
    "QUEUES_MAX": QUEUES_MAX,
    "APPENDS_PER_SECOND_MAX": 1,
    "MEASURED_MS_MIN": 100,
    "TRIED_MS": 200,
}


@contextmanager
def quick_changes(has_dedup_ids: bool) -> Iterator[None]:
    late_ms = _REPEATED_LATE_MS if has_dedup_ids else _WRITTEN_LATE_MS
    with ExitStack() as stack:
        stack.enter_context(patch.object(topic, "HEARD_MS", HEARD_MS))
        stack.enter_context(patch.object(catalogue, "METADATA_AGE_MS_MAX", _METADATA_AGE_MS))
        stack.enter_context(patch.multiple(catalogue, **_QUICK_GROWTH))
        stack.enter_context(patch.multiple(draining, ENTRY_LATE_MS=late_ms, DELAYED_LATE_MS=late_ms))
        yield


class Resizer:
    """Changes the number of queues now and then."""

    def __init__(self, world: World, count: int, random: Random) -> None:
        self._world, self._left, self._random = world, count, random

    def work(self, service: Service) -> None:
        while self._left:
            self._left -= 1
            self._world.sleep(self._random.randrange(2_000))
            plan, queues = self._world.plan, self._random.randrange(1, QUEUES_MAX + 1)
            is_auto = self._random.random() < plan.grows
            if not (is_auto and plan.ordered):
                self._world.history.resized.append(Resized(QUEUES_MAX if is_auto else queues, self._world.now))
            with suppress(StoreUnavailable, QueuesDraining, InvalidField):
                service.admin.topics.put("t", {"queues": AUTO if is_auto else queues})


class Drainer:
    """The sweep that lets queues leave, as long as other actors run."""

    def __init__(self, world: World, random: Random) -> None:
        self._world, self._random = world, random

    def work(self, service: Service) -> None:
        while self._world.is_busy:
            self._world.sleep(self._random.randrange(self._world.plan.checks_pause_ms))
            with suppress(StoreUnavailable):
                service.sweeps.check()
