"""A queue that fails: who may go elsewhere does, who may not says so, and nothing is ever stored twice."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from chalicelib.base.errors import StoreUnavailable
from chalicelib.base.limits import HOP_MS_MAX
from chalicelib.producing.produce import HOPS_MAX
from chalicelib.producing.queue_choice import ISOLATED_MS_MIN
from tests.support.client import Client, Topic, bodies
from tests.support.troubled_store import Trouble, TroubledStore, throttled_queue, unavailable

QUEUES = 8


@pytest.fixture
def topic(client: Client) -> Topic:
    return client.topic("orders", queues=QUEUES)


def failing(*queues: int, took_ms: int = 0, client: Client | None = None, **members: str) -> Trouble:
    """Appends to these queues fail, each after so long."""

    def trouble(verb: str, about: Any) -> Exception | None:
        if verb != "write" or not about.key.pk.startswith("log#") or int(about.key.pk.split("#")[2]) not in queues:
            return None
        if client:
            client.clock.sleep(took_ms)
        return StoreUnavailable("throttled", **members)

    return trouble


def sticky(topic: Topic) -> int:
    queue: int = topic.produce("where")[0]["queue"]
    return queue


def test_an_unkeyed_message_goes_to_another_queue(store: TroubledStore, topic: Topic) -> None:
    queue = sticky(topic)
    store.before = throttled_queue(queue)
    [made] = topic.produce("a")
    assert made["queue"] != queue
    assert bodies(topic.read(queue=made["queue"])["messages"]) == ["a"]


@pytest.mark.parametrize("fields", [{"key": "k"}, {"queue": 3}, {"dedup_id": "x"}])
def test_keyed_messages_do_not_go_to_another_queue(
    store: TroubledStore, client: Client, topic: Topic, fields: dict[str, Any]
) -> None:
    tried: set[str] = set()
    fails = failing(*range(QUEUES))
    store.before = lambda verb, about: (trouble := fails(verb, about)) and (tried.add(about.key.pk) or trouble)
    answer = client.post(f"{topic.path}/messages", messages=[{"body": "a", **fields}])
    assert answer.problem == (503, "StoreUnavailable")
    assert len(tried) == 1


def test_unkeyed_messages_of_a_batch_hop_and_the_others_fail(store: TroubledStore, topic: Topic) -> None:
    queue = sticky(topic)
    store.before = throttled_queue(queue)
    batch = [{"body": "a"}, {"body": "b", "queue": queue}, {"body": "c"}]
    answer = topic.client.post(f"{topic.path}/messages", messages=batch)
    assert answer.status == 207
    first, second, third = answer.json["messages"]
    assert second == {"error": {"code": "StoreUnavailable", "detail": "the store throttled"}}
    assert first["queue"] == third["queue"] != queue
    assert third["offset"] == first["offset"] + 1


def test_a_hop_does_not_split_what_the_request_sends_to_another_queue(store: TroubledStore, client: Client) -> None:
    """Its offsets there would not follow on each other, if others wrote in between."""
    topic = client.topic("pairs", queues=2)
    queue = sticky(topic)
    store.before = throttled_queue(queue)
    batch = [{"body": "a"}, {"body": "b", "queue": 1 - queue}]
    answer = topic.client.post(f"{topic.path}/messages", messages=batch)
    assert answer.status == 207
    assert "error" in answer.json["messages"][0]


def test_a_queue_that_fails_in_one_topic_is_no_worse_in_another(
    store: TroubledStore, client: Client, topic: Topic
) -> None:
    other = client.topic("others", queues=QUEUES)
    queue = sticky(other)
    store.before = throttled_queue(queue)
    assert client.post(f"{topic.path}/messages", messages=[{"body": "a", "queue": queue}]).status == 503
    store.before = unavailable()
    assert {sticky(other) for _ in range(9)} == {queue}


def test_an_unknown_outcome_is_not_tried_elsewhere(store: TroubledStore, topic: Topic) -> None:
    queue = sticky(topic)
    store.after = throttled_queue(queue, outcome="unknown")
    answer = topic.client.post(f"{topic.path}/messages", messages=[{"body": "a"}])
    assert (answer.problem, answer.json["outcome"]) == ((503, "StoreUnavailable"), "unknown")
    store.after = unavailable()
    assert Counter(bodies(topic.read()["messages"])) == {"where": 1, "a": 1}


def test_after_some_queues_have_failed_it_is_the_store(store: TroubledStore, topic: Topic) -> None:
    tried: list[int] = []

    def trouble(verb: str, about: Any) -> Exception | None:
        if verb == "write" and about.key.pk.startswith("log#"):
            tried.append(int(about.key.pk.split("#")[2]))
            return StoreUnavailable("throttled")
        return None

    store.before = trouble
    assert topic.client.post(f"{topic.path}/messages", messages=[{"body": "a"}]).status == 503
    assert len(tried) == len(set(tried)) == HOPS_MAX + 1


# -- keeping away -----------------------------------------------------------------------------------------------------


def test_an_instance_avoids_a_failed_queue_until_its_time_is_over(store: TroubledStore, client: Client) -> None:
    topic = client.topic("pairs", queues=2)
    queue = sticky(topic)
    store.before = throttled_queue(queue)
    topic.produce("a")
    store.before = throttled_queue(1 - queue)
    client.clock.sleep(ISOLATED_MS_MIN - 1)
    assert client.post(f"{topic.path}/messages", messages=[{"body": "there is nowhere to go"}]).status == 503
    client.clock.sleep(1)
    assert topic.produce("b")[0]["queue"] == queue


def test_a_queue_that_hangs_leaves_time_for_another(store: TroubledStore, client: Client, topic: Topic) -> None:
    queue = sticky(topic)
    store.before = failing(queue, took_ms=HOP_MS_MAX, client=client)
    assert topic.produce("a")[0]["queue"] != queue
