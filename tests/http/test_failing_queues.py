"""A queue that fails: who may go elsewhere does, who may not says so, and nothing is ever stored twice."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from chalicelib.core.base import deadline
from chalicelib.core.base.errors import StoreUnavailable
from chalicelib.core.base.limits import HOP_MS_MAX, HOP_MS_MIN, SECOND_MS, STORE_DEADLINE_MS
from chalicelib.core.producing.produce import ISOLATED_MS_MIN, isolated_ms
from chalicelib.core.store import Throttled
from tests.support.client import Client, Topic, bodies
from tests.support.troubled_store import Trouble, TroubledStore, throttled_queue, unavailable, unknown

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


def throttling(*queues: int) -> Trouble:
    """The partitions of these queues are hot."""
    fails = failing(*queues)
    return lambda verb, about: Throttled("the store throttles") if fails(verb, about) else None


def noting(met: list[str], trouble: Trouble) -> Trouble:
    """The trouble, and where it was met."""

    def noted(verb: str, about: Any) -> Exception | None:
        if found := trouble(verb, about):
            met.append(about.key.pk)
        return found

    return noted


def slow(queue: int, client: Client, took_ms: int) -> Trouble:
    """Appends to this queue take so long."""

    def trouble(verb: str, about: Any) -> None:
        if verb == "write" and about.key.pk.startswith("log#") and about.key.pk.endswith(f"#{queue}"):
            client.clock.sleep(took_ms)

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


@pytest.mark.parametrize("fields", [{"key": "k"}, {"queue": 3}, {"key": "k", "queue": 3}])
def test_a_message_for_a_hot_queue_is_shed_within_a_second(
    store: TroubledStore, client: Client, topic: Topic, fields: dict[str, Any]
) -> None:
    tried: list[str] = []
    store.before = noting(tried, throttling(*range(QUEUES)))
    began_ms = client.clock.ms
    answer = client.post(f"{topic.path}/messages", messages=[{"body": "a", **fields}])
    assert answer.problem == (503, "StoreUnavailable")
    assert "outcome" not in answer.json
    assert answer.headers["Retry-After"] == "1"
    assert client.clock.ms - began_ms < SECOND_MS
    assert (len(tried), len({*tried})) == (7, 1)


def test_a_message_that_can_go_anywhere_leaves_a_hot_queue_at_once(
    store: TroubledStore, client: Client, topic: Topic
) -> None:
    queue, began_ms, tried = sticky(topic), client.clock.ms, list[str]()
    store.before = noting(tried, throttling(queue))
    assert topic.produce("a")[0]["queue"] != queue
    assert (len(tried), client.clock.ms) == (1, began_ms)


@pytest.mark.parametrize("fields", [{"key": "k"}, {"queue": 3}, {"dedup_id": "x"}])
def test_keyed_messages_do_not_go_to_another_queue(
    store: TroubledStore, client: Client, topic: Topic, fields: dict[str, Any]
) -> None:
    tried: list[str] = []
    fails = failing(*range(QUEUES))
    store.before = noting(tried, fails)
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


def test_a_message_hops_also_when_another_queue_fails(store: TroubledStore, topic: Topic) -> None:
    queue = sticky(topic)
    other = (queue + 1) % QUEUES
    store.before = failing(queue, other)
    answer = topic.client.post(f"{topic.path}/messages", messages=[{"body": "a"}, {"body": "b", "queue": other}])
    assert answer.status == 207
    assert answer.json["messages"][0]["queue"] not in (queue, other)


@pytest.mark.parametrize("first", [0, 1])
def test_a_failed_batch_says_if_some_of_it_may_be_stored(store: TroubledStore, topic: Topic, first: int) -> None:
    troubles = throttled_queue(0), throttled_queue(1, outcome="unknown")
    store.before = lambda verb, about: next(filter(None, (trouble(verb, about) for trouble in troubles)), None)
    batch = [{"body": "a", "queue": queue} for queue in (first, 1 - first)]
    answer = topic.client.post(f"{topic.path}/messages", messages=batch)
    assert (answer.problem, answer.json["outcome"]) == ((503, "StoreUnavailable"), "unknown")


def test_a_message_of_which_only_the_payload_may_be_stored_is_not(store: TroubledStore, topic: Topic) -> None:
    store.after = unknown("put_all")
    batch = [{"body": random.Random(1).randbytes(1_000).hex(), "dedup_id": "a"}]
    answer = topic.client.post(f"{topic.path}/messages", messages=batch)
    assert answer.problem == (503, "StoreUnavailable")
    assert "outcome" not in answer.json


@pytest.mark.parametrize("queues", [2, 3])
def test_a_hop_does_not_split_what_the_request_sends_to_another_queue(
    store: TroubledStore, client: Client, queues: int
) -> None:
    """Its offsets there would not follow on each other, if others wrote in between."""
    topic = client.topic("few", queues)
    other = (sticky(topic) + 1) % queues
    store.before = failing(*{*range(queues)} - {other})
    batch = [{"body": "a"}, {"body": "b", "queue": other}]
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
    assert len(tried) == len(set(tried)) == 4


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


def test_an_instance_avoids_a_queue_where_a_dedup_id_failed(store: TroubledStore, client: Client, topic: Topic) -> None:
    queue = sticky(topic)
    store.before = throttled_queue(queue)
    assert client.post(f"{topic.path}/messages", messages=[{"body": "a", "dedup_id": "x"}]).status == 503
    store.before = unavailable()
    assert sticky(topic) != queue


def test_an_instance_avoids_a_slow_queue_for_a_while(store: TroubledStore, client: Client) -> None:
    topic = client.topic("pairs", queues=2)
    queue = sticky(topic)
    store.after = slow(queue, client, took_ms=550)
    assert sticky(topic) == queue  # stored all the same
    store.after = unavailable()
    assert sticky(topic) == 1 - queue
    store.before = throttled_queue(1 - queue)
    client.clock.sleep(isolated_ms(550))
    assert sticky(topic) == queue


def test_a_queue_is_not_called_slow_for_what_others_took(store: TroubledStore, client: Client, topic: Topic) -> None:
    """How long each of several parallel appends took is not known."""
    queue = sticky(topic)
    other = (queue + 1) % QUEUES
    store.after = slow(other, client, took_ms=15_000)
    topic.produce("a", {"body": "b", "queue": other})
    assert sticky(topic) == queue


def test_a_payload_that_took_long_is_not_the_fault_of_its_queue(store: TroubledStore, client: Client) -> None:
    topic = client.topic("pairs", queues=2)
    queue = sticky(topic)
    store.after = lambda verb, _about: client.clock.sleep(5_000) if verb == "put_all" else None
    topic.produce(random.Random(1).randbytes(1_000).hex())
    assert sticky(topic) == queue


# -- deadlines --------------------------------------------------------------------------------------------------------


def hanging(client: Client, *queues: int) -> Trouble:
    """Appends to these queues fail when their time is over, and certainly were not stored."""

    def trouble(verb: str, about: Any) -> Exception | None:
        if verb != "write" or not about.key.pk.startswith("log#") or int(about.key.pk.split("#")[2]) not in queues:
            return None
        client.clock.sleep(deadline.give_up_at_ms(client.clock.uptime()) - client.clock.uptime())
        return StoreUnavailable("the store did not answer in time")

    return trouble


@pytest.mark.parametrize(
    ("prefer", "answered_ms"),
    [
        ("wait=2", 2_000),
        ("respond-async, Wait = 3 ; x=y", 3_000),
        ('return=minimal, wait="1", wait=7', 1_000),
        ("wait=0", HOP_MS_MIN),
        ("wait=60", STORE_DEADLINE_MS),
        ("wait", STORE_DEADLINE_MS),
        ("wait=-1", STORE_DEADLINE_MS),
        ("wait=1.5", STORE_DEADLINE_MS),
        ("wait=a", STORE_DEADLINE_MS),
        ("wait=", STORE_DEADLINE_MS),
    ],
)
def test_a_produce_is_answered_within_the_time_it_prefers(
    store: TroubledStore, client: Client, topic: Topic, prefer: str, answered_ms: int
) -> None:
    topic.produce({"body": "where", "queue": 3})
    store.before = hanging(client, *range(QUEUES))
    began_ms = client.clock.ms
    body = {"messages": [{"body": "a", "queue": 3}]}
    answer = client.ask("POST", f"{topic.path}/messages", body, prefer=prefer)
    assert answer.problem == (503, "StoreUnavailable")
    assert "outcome" not in answer.json
    assert client.clock.ms - began_ms == answered_ms
    store.before = unavailable()
    assert bodies(topic.read()["messages"]) == ["where"]


def test_a_message_hops_with_half_of_the_time_that_is_left(store: TroubledStore, client: Client, topic: Topic) -> None:
    queue = sticky(topic)
    store.before = hanging(client, queue)
    began_ms = client.clock.ms
    answer = client.ask("POST", f"{topic.path}/messages", {"messages": [{"body": "a"}]}, prefer="wait=1")
    assert answer.json["messages"][0]["queue"] != queue
    assert client.clock.ms - began_ms == 500


def test_no_queue_is_tried_when_the_time_is_over(store: TroubledStore, client: Client, topic: Topic) -> None:
    tried: list[str] = []
    fails = failing(*range(QUEUES), took_ms=1_000, client=client)
    store.before = noting(tried, fails)
    answer = client.ask("POST", f"{topic.path}/messages", {"messages": [{"body": "a"}]}, prefer="wait=1")
    assert (answer.status, answer.json["detail"], len(tried)) == (503, "throttled", 1)


def test_a_queue_that_hangs_leaves_time_for_another(store: TroubledStore, client: Client, topic: Topic) -> None:
    queue = sticky(topic)
    store.before = failing(queue, took_ms=HOP_MS_MAX, client=client)
    assert topic.produce("a")[0]["queue"] != queue
