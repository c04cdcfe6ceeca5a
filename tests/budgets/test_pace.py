"""Producers that meet in one queue keep their pace, and their cost."""

from __future__ import annotations

from random import Random

import pytest

from chalicelib.api import Api
from chalicelib.core.base.runtime import Runtime
from chalicelib.service import Service
from local.memory.meter import Meter
from local.memory.store import MemoryStore
from tests.budgets.shop import QUEUES
from tests.support.clock import Clock
from tests.support.distant_store import DistantStore
from tests.support.instances import SIGNING_KEY, instance
from tests.support.orders import orders
from tests.support.scheduler import Scheduler

PRODUCERS = 16
PACE_SECONDS = 3
PACE_PER_SECOND = 400
PACE_UNITS = 3


@pytest.mark.parametrize(("seed", "jitter_ms"), [(0, 0), (1, 1), (2, 3)])
def test_producers_on_one_keyed_queue_keep_pace(seed: int, jitter_ms: int) -> None:
    """Each in an instance of its own, one message of 200 B after the other, all with one key: in virtual time."""
    chance = Random(seed)
    scheduler = Scheduler(chance)
    store = MemoryStore()
    bodies = orders(PRODUCERS, 200, seed)
    warm, ends = scheduler.now + 1_000, scheduler.now + 1_000 + PACE_SECONDS * 1_000
    done: list[tuple[int, Meter]] = []

    def produce(number: int) -> None:
        runtime = Runtime(lambda: scheduler.now, scheduler.sleep, chance.randbytes, lambda: scheduler.now)
        api = Api(Service(DistantStore(store, scheduler, chance, jitter_ms), runtime, SIGNING_KEY))
        while scheduler.now < ends:
            api.produce("t", {"messages": [{"body": bodies[number], "key": "one"}]})
            done.append((scheduler.now, store.meter.copy()))

    instance(store, Clock()).put_topic("t", {"queues": QUEUES})
    for number in range(PRODUCERS):
        scheduler.spawn(lambda number=number: produce(number), chance.randrange(50))  # type: ignore[misc]
    scheduler.run()
    metered = [meter for instant, meter in done if warm <= instant < ends]
    cost = metered[-1].since(metered[0])
    assert len(metered) / PACE_SECONDS >= PACE_PER_SECOND
    assert (cost.write_units + cost.read_units) / len(metered) <= PACE_UNITS
