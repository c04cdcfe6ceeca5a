"""Many instances at once, in memory and on an emulator."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from chalicelib.api import Api

PRODUCERS, CALLS, CONSUMERS = 8, 25, 6

Instance = Callable[[], Api]


def prepared(instance: Instance, topic: str, **group: Any) -> None:
    api = instance()
    api.put_topic(topic, {"queues": 4})
    api.put_group(topic, "g", {"invisible_ms": 600_000, **group})


def produce_with_one_key(instance: Instance, topic: str, size: int = 100) -> list[dict[str, Any]]:
    """The results of `PRODUCERS` instances, each for `CALLS` messages of one key."""

    def produce(name: int) -> list[dict[str, Any]]:
        api = instance()
        told = []
        for number in range(CALLS):
            message = {"body": f"{name}-{number}".ljust(size, "."), "key": "k"}
            made = api.produce(topic, {"messages": [message]})["messages"][0]
            told.append({"body": message["body"], "queue": made["queue"], "offset": made["offset"]})
        return told

    with ThreadPoolExecutor(PRODUCERS) as pool:
        return [each for told in pool.map(produce, range(PRODUCERS)) for each in told]


def pop_until(instance: Instance, topic: str, total: int, max_messages: int = 7) -> list[dict[str, Any]]:
    """The messages that `CONSUMERS` instances get until together they have this many; each acks with its next pop."""
    seen: list[dict[str, Any]] = []
    lock = threading.Lock()

    def consume(name: int) -> None:
        api = instance()
        acks: list[str] = []
        while True:
            answer = api.pop(
                topic, "g", {"max_messages": max_messages, "ack": acks, "wait_ms": 200, "consumer_id": str(name)}
            )
            assert answer["failed"] == []
            acks = [message["receipt"] for message in answer["messages"]]
            with lock:
                seen.extend(answer["messages"])
                if not acks and len(seen) >= total:
                    return

    with ThreadPoolExecutor(CONSUMERS) as pool:
        list(pool.map(consume, range(CONSUMERS)))
    return seen


def test_eight_producers_of_one_key_leave_dense_offsets(instance: Instance, topic: str) -> None:
    prepared(instance, topic)
    told = produce_with_one_key(instance, topic)
    assert len({each["queue"] for each in told}) == 1
    assert sorted(each["offset"] for each in told) == list(range(PRODUCERS * CALLS))
    log = instance().read_messages(topic, {"queue": str(told[0]["queue"]), "offset": "0", "limit": "1000"})
    assert {each["offset"]: each["body"] for each in log["messages"]} == {each["offset"]: each["body"] for each in told}


def test_six_consumers_see_every_message_once_and_leave_nothing(instance: Instance, topic: str) -> None:
    prepared(instance, topic)
    told = produce_with_one_key(instance, topic)
    seen = pop_until(instance, topic, len(told))
    assert Counter(each["body"] for each in seen) == Counter(each["body"] for each in told)
    assert {each["attempt"] for each in seen} == {1}
    progress = instance().get_group(topic, "g")
    assert (progress["lag"], progress["retrying"], progress["dead"]) == (0, 0, 0)
    assert all(each["committed_offset"] == each["end_offset"] for each in progress["queues"])


def test_producers_and_consumers_at_once_neither_lose_nor_double(instance: Instance, topic: str) -> None:
    prepared(instance, topic)
    with ThreadPoolExecutor(2) as pool:
        producing = pool.submit(produce_with_one_key, instance, topic, 400)
        seen = pool.submit(pop_until, instance, topic, PRODUCERS * CALLS).result()
        told = producing.result()
    assert Counter(each["body"] for each in seen) == Counter(each["body"] for each in told)


def test_the_cap_on_messages_in_flight_holds_among_instances(instance: Instance, topic: str) -> None:
    prepared(instance, topic, max_in_flight=10)
    instance().produce(topic, {"messages": [{"body": "x", "queue": 0}] * 100})
    with ThreadPoolExecutor(CONSUMERS) as pool:
        got = list(pool.map(lambda _: instance().pop(topic, "g", {"max_messages": 4}), range(12)))
    assert sum(len(answer["messages"]) for answer in got) == 10
    assert any(answer.get("limited") == "in_flight" for answer in got)


def test_one_attempt_made_twice_at_once_gets_one_lease_a_queue(instance: Instance, topic: str) -> None:
    api = instance()
    api.put_topic(topic, {"queues": 1})
    api.put_group(topic, "g", {})
    api.produce(topic, {"messages": [{"body": str(number)} for number in range(50)]})
    with ThreadPoolExecutor(8) as pool:
        got = list(pool.map(lambda _: instance().pop(topic, "g", {"attempt_id": "a", "max_messages": 5}), range(8)))
    assert {tuple(message["receipt"] for message in answer["messages"]) for answer in got} == {
        tuple(message["receipt"] for message in got[0]["messages"])
    }
    assert api.get_group(topic, "g")["in_flight"] == 5


def test_acks_of_one_lease_by_many_instances_all_count(instance: Instance, topic: str) -> None:
    prepared(instance, topic)
    instance().produce(topic, {"messages": [{"body": str(number), "queue": 1} for number in range(24)]})
    messages = instance().pop(topic, "g", {"max_messages": 24})["messages"]
    with ThreadPoolExecutor(8) as pool:
        acked = list(pool.map(lambda each: instance().ack(topic, "g", {"receipts": [each["receipt"]]}), messages))
    assert all(answer == {"acked": 1, "failed": []} for answer in acked)
    assert instance().get_group(topic, "g")["lag"] == 0


def test_one_of_many_that_take_over_an_expired_lease_gets_each_message(instance: Instance, topic: str) -> None:
    prepared(instance, topic)
    instance().produce(topic, {"messages": [{"body": str(number), "queue": 2} for number in range(30)]})
    instance().pop(topic, "g", {"max_messages": 30, "invisible_ms": 1})
    with ThreadPoolExecutor(CONSUMERS) as pool:
        got = list(pool.map(lambda _: instance().pop(topic, "g", {"max_messages": 8, "wait_ms": 50}), range(CONSUMERS)))
    bodies = Counter(message["body"] for answer in got for message in answer["messages"])
    assert set(bodies.values()) == {1}
    assert all(message["attempt"] == 2 for answer in got for message in answer["messages"])


def test_consumers_of_a_filtered_group_get_what_it_wants_once_each(instance: Instance, topic: str) -> None:
    prepared(instance, topic, filter={"tags": ["even"]})
    api = instance()
    for number in range(40):
        batch = [{"body": f"{number}-{part}", "tag": ("even", "odd")[part % 2]} for part in range(6)]
        api.produce(topic, {"messages": batch})
    seen = pop_until(instance, topic, 120)
    assert Counter(each["body"] for each in seen) == Counter(f"{n}-{part}" for n in range(40) for part in (0, 2, 4))


def test_consumers_of_an_ordered_group_see_each_queue_in_its_order(instance: Instance, topic: str) -> None:
    prepared(instance, topic, ordered=True)
    told = produce_with_one_key(instance, topic)
    seen = pop_until(instance, topic, len(told))
    assert [each["offset"] for each in seen] == list(range(len(told)))
