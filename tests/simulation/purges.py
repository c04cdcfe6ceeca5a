"""Purges of groups while messages come in and wait."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from typing import TYPE_CHECKING
from unittest.mock import patch

from chalicelib.core.admin import groups
from chalicelib.core.catalogue.group import NOW
from chalicelib.doors.sqs import registry as sqs_queues
from chalicelib.service import Service
from tests.history.case import PURGE_APART_MS

if TYPE_CHECKING:
    from tests.simulation.world import World


class Emptier:
    """Resets a group to `now` again and again."""

    def __init__(self, world: World, count: int, random: Random) -> None:
        self._world, self._left, self._random = world, count, random

    def work(self, service: Service) -> None:
        while self._left:
            self._left -= 1
            self._world.sleep(self._random.randrange(self._random.choice((400, 2_500))))
            self._world.caller(service).reset(self._random.choice(self._world.groups), NOW)


@contextmanager
def clocks_apart(ms: int) -> Iterator[None]:
    """Purges allow for clocks that differ as those of most histories do, those of queues for any."""
    with (
        patch.object(groups, "CLOCKS_APART_MS", min(ms, PURGE_APART_MS)),
        patch.object(sqs_queues, "CLOCKS_APART_MS", ms),
    ):
        yield
