"""Delayed messages in memory and on an emulator: many at once, delivered by many instances, and cancelled meanwhile."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from chalicelib.api import Api
from chalicelib.core.base.errors import AlreadyDelivered

Instance = Callable[[], Api]

MESSAGES, CONSUMERS, CANCELLED = 60, 4, 10


def test_many_instances_deliver_each_message_once_or_cancel_it(instance: Instance, topic: str) -> None:
    api = instance()
    api.put_topic(topic, {"queues": 2})
    api.put_group(topic, "g", {"invisible_ms": 600_000})
    batch = [{"body": str(number) * (1 + number % 7 * 300), "delay_ms": 400, "queue": 0} for number in range(MESSAGES)]
    sent = [each["message_id"] for each in api.produce(topic, {"messages": batch})["messages"]]
    came: list[str] = []
    cancelled: list[str] = []

    def consume(_: int) -> None:
        consumer = instance()
        while messages := consumer.pop(topic, "g", {"max_messages": 7, "wait_ms": 1_500})["messages"]:
            came.extend(message["message_id"] for message in messages)

    def cancel(message_id: str) -> None:
        try:
            instance().cancel_delayed(topic, message_id)
        except AlreadyDelivered:
            return
        cancelled.append(message_id)

    with ThreadPoolExecutor(CONSUMERS + 2) as pool:
        consuming = [pool.submit(consume, number) for number in range(CONSUMERS)]
        list(pool.map(cancel, sent[:CANCELLED]))
        for each in consuming:
            each.result()
    assert Counter(came + cancelled) == Counter(sent)
    assert api.list_delayed(topic, {}) == {"messages": [], "next": None}
    assert [api.get_message(topic, each)["message_id"] for each in came] == came


def test_a_long_delay_is_listed_cancelled_and_purged(instance: Instance, topic: str) -> None:
    api = instance()
    api.put_topic(topic, {"queues": 1})
    texts = ["a", "b" * 3_000, "c"]
    sent = api.produce(topic, {"messages": [{"body": text, "delay_ms": 10**7} for text in texts]})["messages"]
    assert api.cancel_delayed(topic, sent[0]["message_id"]) == {"cancelled": True}
    assert {each["body"] for each in api.list_delayed(topic, {})["messages"]} == set(texts[1:])
    api.delete_topic(topic)
    api.put_topic(topic, {"queues": 1})
    assert api.list_delayed(topic, {})["messages"] == []
