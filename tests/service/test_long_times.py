"""Behaviour over long times, in memory and on an emulator, with a clock that is moved by hand."""

from __future__ import annotations

from chalicelib.core.store import Store
from tests.support.clock import Clock
from tests.support.instances import instance

KEPT_MS = 60_000


def test_expired_messages_are_skipped(store: Store, topic: str) -> None:
    clock = Clock()
    api = instance(store, clock, seed=101)  # tests share a store, and must not draw the same ids
    api.put_topic(topic, {"queues": 1, "retention_ms": KEPT_MS})
    api.put_group(topic, "g", {})
    for _ in range(5):
        api.produce(topic, {"messages": [{"body": "old"}] * 256})
    clock.sleep(KEPT_MS)
    api.produce(topic, {"messages": [{"body": "new"}]})
    assert [each["body"] for each in api.pop(topic, "g", {})["messages"]] == ["new"]
    assert api.get_topic(topic)["queue_offsets"] == [{"queue": 0, "first_offset": 1_280, "end_offset": 1_281}]


def test_a_rate_holds_over_instances(store: Store, topic: str) -> None:
    clock = Clock()
    instances = [instance(store, clock, seed) for seed in (201, 202, 203)]
    instances[0].put_topic(topic, {"queues": 2})
    instances[0].put_group(topic, "g", {"rate_limit": 20})
    for _ in range(4):
        instances[0].produce(topic, {"messages": [{"body": "a", "key": f"{number}"} for number in range(50)]})
    got = 0
    for _ in range(30):
        got += sum(len(api.pop(topic, "g", {"max_messages": 7})["messages"]) for api in instances)
        clock.sleep(100)
    assert got == 60


def test_sixteen_attempts_with_the_default_backoff_end_in_the_dead_letters(store: Store, topic: str) -> None:
    clock = Clock()
    api = instance(store, clock, seed=301)
    api.put_topic(topic, {"queues": 1})
    api.put_group(topic, "g", {})
    api.produce(topic, {"messages": [{"body": "bad"}]})
    for attempt, wait_ms in enumerate(api.get_group(topic, "g")["backoff_ms"], 1):
        message = api.pop(topic, "g", {})["messages"][0]
        assert message["attempt"] == attempt
        assert api.nack(topic, "g", {"receipts": [message["receipt"]], "reason": "no"})["nacked"] == 1
        clock.sleep(wait_ms - 1)
        assert api.pop(topic, "g", {})["messages"] == []
        clock.sleep(1)
    letters = api.list_dead(topic, "g", {})["messages"]
    assert [(each["attempts"], each["reason"], each["offset"]) for each in letters] == [(16, "no", 0)]
