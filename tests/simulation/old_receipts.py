"""Callers that settle by any receipt that anybody ever got, and callers that move the end of a lease again and
again."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from chalicelib.service import Service
from tests.history.caller import Caller
from tests.history.facts import Delivered

if TYPE_CHECKING:
    from tests.simulation.world import World

RECENT = 30
"""How many of the newest deliveries they mostly use."""
LENGTHS_MS = (0, 300, 2_000, 4_000)
HEARTBEATS_MS = (1_500, 3_000, 6_000)


class Meddler:
    def __init__(self, world: World, count: int, random: Random) -> None:
        self._world, self._left, self._random = world, count, random

    def work(self, service: Service) -> None:
        while self._left:
            self._left -= 1
            self._world.sleep(self._random.randrange(500) * self._world.plan.pace)
            delivered = self._world.history.delivered
            known = [each for each in delivered if each.group in self._world.groups]
            if known:
                recent = known[-RECENT:] if self._random.random() < 0.8 else known
                self._settle(self._world.caller(service), self._random.choice(recent))

    def _settle(self, caller: Caller, message: Delivered) -> None:
        fate = self._random.random()
        if fate < 0.25:
            caller.ack([message])
        elif fate < 0.5:
            caller.extend([message], self._random.choice(LENGTHS_MS))
        elif fate < 0.8:
            self._hold(caller, message)
        elif fate < 0.97:
            caller.nack([message], self._random.choice(LENGTHS_MS))
        else:
            caller.bury([message])

    def _hold(self, caller: Caller, message: Delivered) -> None:
        """Heartbeats, each longer than the one before."""
        for lasting_ms in HEARTBEATS_MS:
            renewed = caller.extend([message], lasting_ms)
            message = renewed[0] if renewed and self._random.random() < 0.5 else message
            self._world.sleep(self._random.randrange(600))
