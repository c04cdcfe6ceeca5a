"""A cursor with a thousand leases costs little more processor time than one with a single lease."""

from __future__ import annotations

import time
from typing import Any

from local.memory.store import MemoryStore
from tests.support.clock import Clock
from tests.support.instances import instance

LEASES = 1_000
ROUNDS = 60
TAKEN = 10
CPU_RATIO_MAX = 3


def test_a_thousand_leases_at_most_triple_the_cpu_of_a_claim_and_ack() -> None:
    """The claims and acks are of several messages. They take turns, and the fastest of each counts, so that a busy
    machine matters less."""
    api = instance(MemoryStore(), Clock())
    for topic, others in (("one", 0), ("many", LEASES - 1)):
        api.put_topic(topic, {"queues": 1})
        api.put_group(topic, "g", {"max_in_flight": 4 * LEASES})
        for _ in range(0, others + ROUNDS * TAKEN, 100):
            api.produce(topic, {"messages": [{"body": "paid"}] * 100})
        for _ in range(others):
            api.pop(topic, "g", {"max_messages": 1})
    rounds = [[_claim_and_ack_ns(api, topic) for topic in ("one", "many")] for _ in range(ROUNDS)]
    one, many = (min(taken) for taken in zip(*rounds, strict=True))
    assert many <= CPU_RATIO_MAX * one, f"{one / 1_000:.0f} and {many / 1_000:.0f} us"


def test_a_claim_writes_a_unit_for_each_33_leases_of_its_cursor() -> None:
    """The figures of docs/costs.md."""
    store, clock = MemoryStore(), Clock()
    api = instance(store, clock)
    api.put_topic("t", {"queues": 1})
    api.put_group("t", "g", {})
    costs = {}
    for leases in range(501):
        clock.ms += 10
        api.produce("t", {"messages": [{"body": "paid"}]})
        before = store.meter.copy()
        api.pop("t", "g", {"max_messages": 1, "invisible_ms": 3_600_000})
        costs[leases] = store.meter.since(before).write_units
    assert [costs[leases] for leases in (30, 100, 200, 500)] == [1, 3, 6, 15]


def _claim_and_ack_ns(api: Any, topic: str) -> int:
    began = time.thread_time_ns()
    taken = api.pop(topic, "g", {"max_messages": TAKEN})["messages"]
    api.ack(topic, "g", {"receipts": [message["receipt"] for message in taken]})
    return time.thread_time_ns() - began
