"""Consumers join and die while queues are added and taken away, and no message notices: in virtual time, on the memory
store, and with fewer consumers on an emulator."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any, TypeVar
from uuid import uuid4

import pytest

from chalicelib.api import Api
from chalicelib.core.base.limits import ENTRY_LATE_MS, HEARD_MS, METADATA_AGE_MS_MAX, SECOND_MS
from chalicelib.core.base.runtime import Runtime
from chalicelib.core.store import Store
from chalicelib.service import Service
from local.memory.store import MemoryStore
from tests.store.conftest import dynoxide_store
from tests.support.distant_store import DistantStore
from tests.support.instances import SIGNING_KEY
from tests.support.scheduler import Killed, Scheduler

__all__ = ["dynoxide_store"]

T = TypeVar("T")
Json = dict[str, Any]

FEW, MANY = 2, 16
GROWS_MS, SHRINKS_MS, BUSY_MS = 2_000, 30_000, 55_000
DRAINED_MS = SHRINKS_MS + HEARD_MS + ENTRY_LATE_MS
LEASE_MS = 3_000
LATE_MS_MAX = METADATA_AGE_MS_MAX + 4 * LEASE_MS
"""An instance may have to hear of the queue first, and a message may fall to some consumers that die."""


class Mortal(DistantStore):
    """Its process may die at every request, before or after it is applied."""

    death = 0.0

    def _far(self, apply: Callable[[], T]) -> T:
        if self._chance.random() < self.death:
            raise Killed
        answer = super()._far(apply)
        if self._chance.random() < self.death:
            raise Killed
        return answer


@dataclass
class World:
    store: Store
    seed: int
    producers: int
    consumers: int
    topic: str = field(default_factory=lambda: f"t{uuid4().hex}")
    sent: dict[str, int] = field(default_factory=dict)
    """When each message was stored."""
    deliveries: dict[str, list[Json]] = field(default_factory=dict)
    """By body: each delivery, and when it was made and acked."""
    slow: list[str] = field(default_factory=list)
    """The bodies that the slow group got."""
    deaths: int = 0

    def __post_init__(self) -> None:
        self.chance = Random(self.seed)
        self.scheduler = Scheduler(self.chance)
        self.began_ms = self.scheduler.now
        self.setup = self.instance(0)
        self.setup.put_topic(self.topic, {"queues": FEW})
        self.setup.put_group(self.topic, "g", {"invisible_ms": LEASE_MS, "max_attempts": 1_000})
        self.setup.put_group(self.topic, "slow", {})

    @property
    def now(self) -> int:
        """Since the beginning."""
        return self.scheduler.now - self.began_ms

    @property
    def is_over(self) -> bool:
        return self.now > DRAINED_MS + 2 * LATE_MS_MAX

    def instance(self, death: float) -> Api:
        """A process of its own."""
        runtime = Runtime(lambda: self.scheduler.now, self.scheduler.sleep, self.chance.randbytes, lambda: self.now)
        mortal = Mortal(self.store, self.scheduler, self.chance, jitter_ms=3)  # type: ignore[arg-type]
        mortal.death = death
        return Api(Service(mortal, runtime, SIGNING_KEY))

    def produce(self, producer: int) -> None:
        api = self.instance(0)
        numbers = iter(range(1_000_000))
        while self.now < DRAINED_MS + LATE_MS_MAX:
            batch = [f"{producer}.{next(numbers)}" for _ in range(3)]
            keyed = [{"body": body, **({"key": body} if self.chance.random() < 0.7 else {})} for body in batch]
            api.produce(self.topic, {"messages": keyed})
            self.sent |= dict.fromkeys(batch, self.now)
            self.scheduler.sleep(self.chance.randrange(200, 600) * (1 if self.now < BUSY_MS else 20))

    def consume(self) -> None:
        """One consumer after another, each of which lives for some requests."""
        while not self.is_over:
            self.scheduler.spawn(self._live)
            self.scheduler.sleep(self.chance.randrange(5_000, 15_000) * (1 if self.now < BUSY_MS else 10))

    def _live(self) -> None:
        api, until_ms = self.instance(death=0.01), self.now + 12_000 * (1 if self.now < BUSY_MS else 10)
        try:
            while self.now < until_ms and not self.is_over:
                held = self._pop(api)
                self.scheduler.sleep(self.chance.randrange(10, 300))
                if held:
                    api.ack(self.topic, "g", {"receipts": [delivery["receipt"] for delivery in held]})
                    for delivery in held:
                        delivery["acked_at"] = self.now
                else:
                    self.scheduler.sleep(self.chance.randrange(500, 2_000) * (1 if self.now < BUSY_MS else 10))
        except Killed:
            self.deaths += 1

    def _pop(self, api: Api) -> list[Json]:
        held = api.pop(self.topic, "g", {"max_messages": 5})["messages"]
        for delivery in held:
            delivery["at"] = self.now
            self.deliveries.setdefault(delivery["body"], []).append(delivery)
        return list(held)

    def administer(self) -> None:
        api = self.instance(0)
        self.scheduler.sleep(GROWS_MS)
        api.put_topic(self.topic, {"queues": MANY})
        self.scheduler.sleep(SHRINKS_MS - GROWS_MS)
        api.put_topic(self.topic, {"queues": FEW})
        while not self.is_over:
            api.service.sweeps.check()
            self.scheduler.sleep(SECOND_MS if self.now > DRAINED_MS else 10 * SECOND_MS)
            if self.now > DRAINED_MS + 3 * SECOND_MS:
                self._catch_up(api)

    def _catch_up(self, api: Api) -> None:
        """The slow group begins when the queues could leave if it were not for it."""
        while taken := api.pop(self.topic, "slow", {"max_messages": 256})["messages"]:
            self.slow += [message["body"] for message in taken]
            api.ack(self.topic, "slow", {"receipts": [message["receipt"] for message in taken]})

    def run(self) -> None:
        for producer in range(self.producers):
            self.scheduler.spawn(lambda producer=producer: self.produce(producer))  # type: ignore[misc]
        for _ in range(self.consumers):
            self.scheduler.spawn(self.consume, self.chance.randrange(1_000))
        self.scheduler.spawn(self.administer)
        self.scheduler.run()


def doubled(deliveries: list[Json]) -> Iterator[str]:
    """A delivery while an earlier one was leased, or after it was acked, or under another place."""
    for before, after in zip(deliveries, deliveries[1:], strict=False):
        if after["at"] + 1_000_000 < before["invisible_until_ms"] or before.get("acked_at", after["at"]) < after["at"]:
            yield f"{after['body']} came at {after['at']} and before that at {before['at']}"
        if (before["queue"], before["offset"]) != (after["queue"], after["offset"]):
            yield f"{after['body']} is stored twice"


@pytest.mark.parametrize(("kind", "seed", "producers", "consumers"), [("memory", 1, 3, 25), ("dynoxide", 3, 1, 4)])
def test_queues_and_consumers_come_and_go_and_no_message_notices(
    kind: str, seed: int, producers: int, consumers: int, request: pytest.FixtureRequest
) -> None:
    """With few consumers a message may by chance fall to many that die: the seed is of a history where none does."""
    store: Store = MemoryStore() if kind == "memory" else request.getfixturevalue("dynoxide_store")
    world = World(store, seed, producers, consumers)
    world.run()
    assert world.deaths > consumers / 5
    assert world.deliveries.keys() == world.sent.keys(), "nothing is lost"
    assert sorted(world.slow) == sorted(world.sent)
    assert [found for deliveries in world.deliveries.values() for found in doubled(deliveries)] == []
    late = {body: deliveries[0]["at"] - world.sent[body] for body, deliveries in world.deliveries.items()}
    assert max(late.values()) <= LATE_MS_MAX, "nothing stops"
    assert {delivery["queue"] for deliveries in world.deliveries.values() for delivery in deliveries} == {*range(MANY)}
    topic, group = world.setup.get_topic(world.topic), world.setup.get_group(world.topic, "g")
    assert [queue["queue"] for queue in topic["queue_offsets"]] == [*range(FEW)], "the others have left"
    assert (group["lag"], group["retrying"], group["dead"]) == (0, 0, 0)
