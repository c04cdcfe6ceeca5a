"""Callers that send requests, wait, and ask again for the reply, through any instance."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from chalicelib.service import Service
from tests.history.facts import Delivered
from tests.history.requests import WAITING

if TYPE_CHECKING:
    from tests.simulation.world import World

TIMEOUTS_MS = (250, 900, 2_500)
WORK_MS = (1, 1, 600, 1_500)


class Requester:
    def __init__(self, world: World, name: str, count: int, random: Random) -> None:
        self._world, self._name, self._left, self._random = world, name, count, random

    def work(self, service: Service) -> None:
        random, caller = self._random, self._world.requester(service)
        while self._left:
            self._left -= 1
            self._world.sleep(random.randrange(300))
            body, timeout_ms = f"{self._name}-{self._left}", random.choice(TIMEOUTS_MS)
            wait_ms = random.choice((0, 100, timeout_ms, timeout_ms))
            correlation_id = caller.ask(body, random.choice((None, "a", "b")), timeout_ms, wait_ms)
            if correlation_id and random.random() < 0.5:
                self._ask_again(correlation_id, body)

    def _ask_again(self, correlation_id: str, body: str) -> None:
        """From another instance, that may be late."""
        self._world.sleep(self._random.randrange(self._random.choice((100, 1_500))))
        wait_ms = self._random.choice((0, 300))
        self._world.beside(lambda service: self._world.requester(service).fetch(correlation_id, body, wait_ms))


class Replier:
    """The part of a consumer that replies to requests: in time or not, twice, or differently at once."""

    def __init__(self, world: World, name: str, random: Random) -> None:
        self._world, self._name, self._random = world, name, random
        self._count = 0

    def reply(self, service: Service, request: Delivered) -> None:
        random, caller = self._random, self._world.requester(service)
        self._world.sleep(random.randrange(random.choice(WORK_MS)))
        self._count += 1
        body, acks = f"{request.body} by {self._name} {self._count}", random.random() < 0.5
        if random.random() < 0.3:
            other = random.choice((body, f"{body} again"))
            self._world.beside(lambda beside: self._world.requester(beside).reply(request, other, acks=False))
        if caller.reply(request, body, acks).outcome == "unknown" or random.random() < 0.2:
            caller.reply(request, body, acks=False)


def at_last(service: Service, world: World) -> None:
    """When all is quiet and all deadlines are over, every caller asks once more."""
    caller, history = world.requester(service), world.history
    known = {fact.id: fact.body for fact in history.fetched if fact.id}
    known |= {got.correlation_id: got.body for got in history.delivered if got.correlation_id}
    for correlation_id, body in known.items():
        if caller.fetch(correlation_id, body).outcome == WAITING:
            history.defects.append(f"{body} is still waited for")
