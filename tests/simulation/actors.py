"""The callers of the service in a simulated world, besides its producers."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Protocol

from chalicelib.core.admin.groups import OneQueue
from chalicelib.core.base.errors import DecantError, StoreUnavailable
from chalicelib.core.consuming.request import Pop
from chalicelib.service import Service
from tests.history.caller import Caller, named
from tests.history.facts import Delivered
from tests.simulation.expiry import CONSUMERS_LULL
from tests.simulation.requests import Replier
from tests.simulation.zones import AWAY, AWAY_MS_MAX

if TYPE_CHECKING:
    from tests.simulation.world import World

EXTENDED_MS = 2_000
RETRIES_MS = (0, 300, 2_000)
ELSEWHERE = 0.25
"""The probability that a consumer settles at another instance than it popped from, as a client of Lambda does."""


class Working(Protocol):
    def work(self, service: Service) -> None:
        """As long as there is something to do."""


class Actor:
    """Somebody who calls the service. The work that is left outlives the process that does it."""

    def work(self, service: Service) -> None:
        raise NotImplementedError


class Consumer(Actor):
    def __init__(self, world: World, name: str, group: str, random: Random, zone: str | None = None) -> None:
        self._world, self._name, self._group, self._random = world, name, group, random
        self._zone = zone
        self._left = world.pops
        self._acks: list[Delivered] = []
        self._old: list[Delivered] = []
        self._replier = Replier(world, name, random)

    def work(self, service: Service) -> None:
        random, caller = self._random, self._world.caller(service)
        while self._left:
            self._left -= 1
            plan = self._world.plan
            self._world.sleep(random.randrange(400) * (CONSUMERS_LULL if plan.retention_ms else plan.pace))
            if plan.zones and random.random() < AWAY:
                self._world.sleep(random.randrange(AWAY_MS_MAX))
            riding, self._acks = self._acks, []
            ask = self._ask(riding)
            if ask.attempt_id and self._is_hasty():
                self._world.beside(partial(self._pop, ask, riding))
            got = caller.pop(self._group, ask, riding)
            if ask.attempt_id and (got is None or random.random() < 0.2):
                got = caller.pop(self._group, ask, riding) or got
            if random.random() < 0.3:
                self._world.sleep(random.randrange(2_500))
            for request in got or []:
                if request.correlation_id and random.random() < 0.7:
                    self._replier.reply(service, request)
            settler = self._world.caller(self._world.running()) if random.random() < ELSEWHERE else caller
            self._settle(settler, got or [])
            if self._old and random.random() < 0.2:
                caller.ack([random.choice(self._old)])
            if got and random.random() < 0.1:
                self._mistake(caller, got)
            self._old = (got or self._old)[:3]

    def _pop(self, ask: Pop, riding: list[Delivered], service: Service) -> None:
        self._world.caller(service).pop(self._group, ask, riding)

    def _is_hasty(self) -> bool:
        return bool(self._world.plan.hasty) and self._random.random() < self._world.plan.hasty

    def _mistake(self, caller: Caller, got: list[Delivered]) -> None:
        """Shows receipts to another group than theirs."""
        twin = self._world.twin
        if twin and self._group in twin.groups:
            service = twin.instance()
            twin.caller(service).ack(got[:2], self._group)
        others = [group for group in self._world.groups if named(group) != named(self._group)]
        if others:
            caller.ack(got[:2], self._random.choice(others))

    def _ask(self, riding: list[Delivered]) -> Pop:
        random = self._random
        return Pop(
            max_messages=random.choice(self._world.plan.pop_sizes),
            invisible_ms=random.choice(self._world.plan.leases_ms),
            wait_ms=random.choice(self._world.plan.waits_ms),
            attempt_id=f"{self._name}{self._left}" if random.random() < 0.3 else None,
            ack=tuple(message.receipt for message in riding),
            zone=self._zone,
            fill=bool(self._world.plan.fills) and random.random() < self._world.plan.fills,
        )

    def _settle(self, caller: Caller, got: list[Delivered]) -> None:
        """Acks most messages, at once or with the next pop; nacks some, extends some, forgets some."""
        random = self._random
        while got:
            some, got = got[: (size := random.choice((1, 2, 5)))], got[size:]
            fate = random.random()
            if fate < 0.25:
                self._acks += some
            elif fate < 0.6:
                caller.ack(some)
            elif fate < 0.75:
                caller.nack(some, random.choice(RETRIES_MS))
            elif fate < 0.75 + self._world.plan.burials:
                caller.bury(some[:1])
            elif fate < 0.9:
                self._acks += caller.extend(some, EXTENDED_MS)[:1]


class LateGroup(Actor):
    """A group that is made while messages come in, from the beginning on."""

    def __init__(self, world: World, name: str, random: Random) -> None:
        self._world, self._name, self._random = world, name, random
        self._begins_in = random.randrange(600)
        self._consumer: Consumer | None = None

    def work(self, service: Service) -> None:
        if self._consumer is None:
            self._world.sleep(self._begins_in)
            try:
                service.admin.groups.put(self._world.topic, self._name, self._world.settings)
            except StoreUnavailable:
                return
            self._world.add_group(self._name)
            self._consumer = Consumer(self._world, self._name, self._name, self._random)
        self._consumer.work(service)


class Resetter(Actor):
    def __init__(self, world: World, random: Random) -> None:
        self._world, self._random = world, random
        self._is_done = False

    def work(self, service: Service) -> None:
        if not self._is_done:
            self._is_done = True
            self._world.sleep(self._random.randrange(2_000))
            self._world.caller(service).reset(self._random.choice(self._world.groups), self._target())

    def _target(self) -> str | int | OneQueue:
        random, world = self._random, self._world
        delivered = random.choice(world.history.delivered).place if world.history.delivered else (0, 0)
        instant = world.now - random.randrange(2_000)
        return random.choice(("earliest", "earliest", "latest", instant, delivered))


class Sweeper(Actor):
    """Runs the scheduled sweeps now and then."""

    def __init__(self, world: World, random: Random) -> None:
        self._world, self._random = world, random
        self._left = world.plan.sweeps

    def work(self, service: Service) -> None:
        while self._left:
            self._left -= 1
            self._world.sleep(self._random.randrange(1_500))
            with suppress(StoreUnavailable):
                service.sweeps.forward()
                service.sweeps.revive()
                service.sweeps.expire()


class Housekeeper(Actor):
    """Pauses a group and resumes it, and makes and removes one that no caller needs."""

    def __init__(self, world: World, chores: int, random: Random) -> None:
        self._world, self._left, self._random = world, chores, random

    def work(self, service: Service) -> None:
        while self._left:
            self._left -= 1
            self._world.sleep(self._random.randrange(600))
            try:
                self._chore(service, self._random.choice(self._world.groups))
            except DecantError:
                continue

    def _chore(self, service: Service, group: str) -> None:
        topic = self._world.topic
        if self._random.random() < 0.5:
            self._world.pause(service, group, True)
            self._world.sleep(self._random.randrange(self._random.choice((200, 2_500))))
            self._world.pause(service, group, False)
        else:
            service.admin.groups.put(topic, "spare", {})
            service.consuming.pop(topic, "spare", Pop(3, 500))
            service.admin.groups.delete(topic, "spare")
