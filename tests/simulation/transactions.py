"""Senders of transactions, which may die or change their minds, and callers that decide in their place."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from chalicelib.service import Service
from tests.history.transactions import COMMIT, ROLLBACK, TransactionCaller

if TYPE_CHECKING:
    from tests.simulation.world import World

CHECKS_AFTER_MS = (200, 700)
ROLLBACKS_AFTER_MS = (900, 4_000, 86_400_000)


class Sender:
    """Begins transactions and decides most of them, some twice, and some while another instance decides otherwise."""

    def __init__(self, world: World, count: int, random: Random) -> None:
        self._world, self._left, self._random = world, count, random

    def work(self, service: Service) -> None:
        random, caller = self._random, self._world.transactor(service)
        while self._left:
            self._left -= 1
            self._world.sleep(random.randrange(500))
            bodies = [f"tx{self._left}-{part}" for part in range(random.choice((1, 3, 5)))]
            keys = [random.choice((None, "a", "b")) for _ in bodies]
            padding = random.randbytes(random.choice(self._world.plan.sizes) // 2).hex()
            after_ms = random.choice(CHECKS_AFTER_MS), random.choice(ROLLBACKS_AFTER_MS)
            begun = caller.begin(bodies, keys, *after_ms, padding)
            self._world.sleep(random.randrange(random.choice((50, 1_500, 4_000))))
            if begun.id and random.random() < 0.7:
                self._decide(caller, begun.id)

    def _decide(self, caller: TransactionCaller, transaction_id: str) -> None:
        verb = self._random.choice((COMMIT, COMMIT, ROLLBACK))
        if self._random.random() < 0.4:
            other = self._random.choice((COMMIT, ROLLBACK))
            self._world.beside(lambda service: self._world.transactor(service).decide(transaction_id, other))
        outcome = caller.decide(transaction_id, verb)
        if outcome == "unknown" or self._random.random() < 0.2:
            caller.decide(transaction_id, verb)


class Decider:
    """Decides one of the newest transactions, of any caller."""

    def __init__(self, world: World, random: Random) -> None:
        self._world, self._random = world, random

    def work(self, service: Service) -> None:
        if known := [begun.id for begun in self._world.history.begun if begun.id]:
            self._world.transactor(service).decide(
                self._random.choice(known[-2:]), self._random.choice((COMMIT, ROLLBACK))
            )


class Arbiter:
    """Asks which transactions are undecided, and decides some."""

    def __init__(self, world: World, count: int, random: Random) -> None:
        self._world, self._left, self._random = world, count, random

    def work(self, service: Service) -> None:
        caller = self._world.transactor(service)
        while self._left:
            self._left -= 1
            self._world.sleep(self._random.randrange(900))
            for checked in caller.check(self._random.choice((1, 16))):
                if self._random.random() < 0.5:
                    caller.decide(checked.id, self._random.choice((COMMIT, ROLLBACK)))
