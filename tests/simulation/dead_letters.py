"""Actors and settings of histories with redrives, and with retries in pages."""

from __future__ import annotations

from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING

from chalicelib.core.base.errors import MessageNotFound, StoreUnavailable
from chalicelib.service import Service
from tests.history.facts import NEVER_MS, Purge, Redrive

if TYPE_CHECKING:
    from tests.simulation.world import World


class Redriver:
    """Redrives a group's dead messages now and then."""

    def __init__(self, world: World, count: int, random: Random) -> None:
        self._world, self._left, self._random = world, count, random

    def work(self, service: Service) -> None:
        while self._left:
            self._left -= 1
            self._world.sleep(self._random.randrange(self._world.plan.redrives_pause_ms))
            group = self._random.choice(self._world.groups)
            self._world.history.redrives.append(fact := Redrive(group, self._world.now, NEVER_MS))
            with suppress(StoreUnavailable, MessageNotFound):
                fact.is_whole = self._redrive(service, group)
                fact.at_ms = self._world.now

    def _redrive(self, service: Service, group: str) -> bool:
        """Whether no message is dead."""
        topic, letters = service.env.catalogue.current_topic(self._world.name), service.dead_letters
        if self._random.random() < 0.7:
            return not letters.redrive.all(topic, group).remaining
        if dead := letters.queue.page(topic, group, 10, None)[0]:
            letters.redrive.some(topic, group, [each.stored.message_id for each in dead if self._random.random() < 0.5])
        return False


class Purger:
    """Purges a group's dead messages now and then."""

    def __init__(self, world: World, count: int, random: Random) -> None:
        self._world, self._left, self._random = world, count, random

    def work(self, service: Service) -> None:
        while self._left:
            self._left -= 1
            self._world.sleep(self._random.randrange(2_500))
            group = self._random.choice(self._world.groups)
            self._world.history.purges.append(fact := Purge(group, self._world.now))
            try:
                service.dead_letters.queue.purge(self._world.topic, group)
            except StoreUnavailable:
                continue
            fact.at_ms = self._world.now
