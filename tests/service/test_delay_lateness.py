"""How late messages that waited come, in virtual time, from a store that answers in some milliseconds."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from chalicelib.api import Api
from chalicelib.core.base.runtime import Runtime
from chalicelib.service import Service
from local.memory.store import MemoryStore
from tests.support.distant_store import DistantStore
from tests.support.instances import SIGNING_KEY
from tests.support.scheduler import Scheduler

MESSAGES, OVER_MS = 1_000, 5_000
P99_MS = 250
WAKE_MS = 300


class Place:
    """Instances of the service, far from one store, in virtual time."""

    def __init__(self, seed: int) -> None:
        self.chance = Random(seed)
        self.scheduler = Scheduler(self.chance)
        self.store = MemoryStore()

    def instance(self) -> Api:
        store = DistantStore(self.store, self.scheduler, self.chance, jitter_ms=3)
        runtime = Runtime(self._now, self.scheduler.sleep, self.chance.randbytes, self._now)
        return Api(Service(store, runtime, SIGNING_KEY))

    def _now(self) -> int:
        return self.scheduler.now


@pytest.mark.parametrize("queues", [1, 4])
@pytest.mark.parametrize("consumers", [1, 4])
def test_a_thousand_delayed_messages_come_once_never_early_and_hardly_late(consumers: int, queues: int) -> None:
    place = Place(seed=queues)
    due: dict[str, int] = {}
    late: list[int] = []

    def run() -> None:
        producer = place.instance()
        producer.put_topic("t", {"queues": queues})
        producer.put_group("t", "g", {})
        for _ in range(consumers):
            place.scheduler.spawn(consume, 0)
        first_ms = place.scheduler.now + 2_000
        for at in range(0, MESSAGES, 100):
            batch: list[dict[str, Any]] = [
                {"body": str(number), "deliver_at_ms": first_ms + OVER_MS * number // MESSAGES}
                for number in range(at, at + 100)
            ]
            due.update({each["body"]: each["deliver_at_ms"] for each in batch})
            producer.produce("t", {"messages": batch})

    def consume() -> None:
        api, receipts = place.instance(), None
        while len(late) < MESSAGES:
            ask = {"max_messages": 100, "wait_ms": 1_000, "ack": receipts}
            messages = api.pop("t", "g", ask)["messages"]
            late.extend(place.scheduler.now - due[each["body"]] for each in messages)
            receipts = [each["receipt"] for each in messages] or None

    place.scheduler.spawn(run, 0)
    place.scheduler.run()
    assert len(late) == MESSAGES
    assert min(late) >= 0
    assert sorted(late)[MESSAGES * 99 // 100] < P99_MS, sorted(late)[-20:]


@pytest.mark.parametrize("after_ms", [333, 500, 777, 5_000])
def test_a_pop_that_waits_wakes_for_what_falls_due(after_ms: int) -> None:
    """For a delayed message, and then for its retry."""
    place = Place(seed=after_ms)
    late: list[int] = []

    def run() -> None:
        api = place.instance()
        api.put_topic("t", {"queues": 4})
        api.put_group("t", "g", {})
        due_ms = place.scheduler.now + after_ms
        api.produce("t", {"messages": [{"body": "a", "deliver_at_ms": due_ms}]})
        (message,) = api.pop("t", "g", {"wait_ms": 20_000})["messages"]
        late.append(place.scheduler.now - due_ms)
        due_ms = place.scheduler.now + after_ms
        api.nack("t", "g", {"receipts": [message["receipt"]], "delay_ms": after_ms})
        api.pop("t", "g", {"wait_ms": 20_000})["messages"][0]
        late.append(place.scheduler.now - due_ms)

    place.scheduler.spawn(run, 0)
    place.scheduler.run()
    assert 0 <= min(late) <= max(late) < WAKE_MS, late
