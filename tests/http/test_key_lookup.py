"""Messages are found by their key, in topics that index keys."""

from __future__ import annotations

import random
from typing import Any

import pytest

from chalicelib.core.base.deadline import CALL_MS_MAX
from chalicelib.core.base.limits import ENTRY_LATE_MS
from tests.support.client import Client, Topic, bodies
from tests.support.troubled_store import TroubledStore, from_request, unavailable, unknown


@pytest.fixture
def topic(client: Client) -> Topic:
    assert client.put("/topics/orders", queues=3, index_keys=True).status == 201
    return Topic(client, "orders")


def found(topic: Topic, key: str, **query: Any) -> list[str]:
    return bodies(topic.read(key=key, **query)["messages"])


def test_messages_with_a_key_are_found_in_the_order_they_were_stored(topic: Topic) -> None:
    for number in range(5):
        topic.produce({"body": f"a{number}", "key": "a"}, {"body": f"b{number}", "key": "b"}, {"body": "no key"})
    assert found(topic, "a") == [f"a{number}" for number in range(5)]
    assert found(topic, "b") == [f"b{number}" for number in range(5)]
    assert found(topic, "c") == []


def test_a_message_found_by_its_key_is_whole(topic: Topic) -> None:
    [made] = topic.produce({"body": "a", "key": "k", "tag": "t", "properties": {"p": "v"}})
    [message] = topic.read(key="k")["messages"]
    assert message == topic.client.get(f"{topic.path}/messages/{made['message_id']}").json


def test_one_key_in_several_queues_is_found_in_all_by_time(topic: Topic) -> None:
    for number in range(9):
        topic.produce({"body": str(number), "key": "k", "queue": number * 2 % 3})
        topic.client.clock.sleep(1)
    assert found(topic, "k") == [str(number) for number in range(9)]


def test_messages_of_one_millisecond_and_instance_keep_their_order(topic: Topic) -> None:
    for number in range(30):
        topic.produce({"body": str(number), "key": "k"})
    assert found(topic, "k") == [str(number) for number in range(30)]


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 100])
def test_pages_neither_repeat_nor_skip_though_more_is_stored_meanwhile(topic: Topic, limit: int) -> None:
    sizes = [1, 5, 2, 1, 9]
    expected = []
    for number, size in enumerate(sizes):
        batch = [{"body": f"{number}-{each}", "key": "k"} for each in range(size)]
        topic.produce(*batch, {"body": "x", "key": "other"})
        expected += [each["body"] for each in batch]
        topic.client.clock.sleep(1)
    seen: list[str] = []
    token = None
    for _ in range(100):
        page = topic.read(key="k", limit=limit, **({"next": token} if token else {}))
        assert len(page["messages"]) <= limit
        seen += bodies(page["messages"])
        topic.client.clock.sleep(1)
        if len(expected) < 25:
            topic.produce({"body": f"later {len(expected)}", "key": "k"})
            expected.append(f"later {len(expected)}")
        if (token := page["next"]) is None:
            break
    assert seen == expected[: len(seen)]
    assert len(seen) >= sum(sizes)


def test_messages_too_large_for_one_response_come_in_several(topic: Topic) -> None:
    noise = random.Random(1)
    sent = [noise.randbytes(900_000).hex() for _ in range(5)]
    for body in sent:
        topic.produce({"body": body, "key": "k"})
    first = topic.read(key="k")
    assert 1 <= len(first["messages"]) < 5
    rest = topic.read(key="k", next=first["next"])
    assert bodies(first["messages"] + rest["messages"]) == sent[: len(first["messages"]) + len(rest["messages"])]


def test_a_key_of_any_text_is_found(topic: Topic) -> None:
    keys = ["#", "a b", "\u00e9", "e\u0301", "k" * 256, "\n", "\U0001f600" * 64]
    for key in keys:
        topic.produce({"body": key, "key": key})
    assert [found(topic, key) for key in keys] == [[key] for key in keys]


def test_an_entry_that_landed_far_behind_where_it_was_meant_to_is_found(topic: Topic) -> None:
    stale = Topic(topic.client.another(), "orders")
    stale.produce({"body": "warm", "queue": 1})
    for number in range(100):
        topic.produce({"body": f"{number:060}", "queue": 1})
    stale.produce({"body": "a", "key": "k", "queue": 1})
    assert found(topic, "k") == ["a"]


@pytest.mark.parametrize("number", range(4))
@pytest.mark.parametrize("fault", ["before", "after"])
def test_only_stored_messages_are_found(store: TroubledStore, topic: Topic, number: int, fault: str) -> None:
    topic.produce("warm", queue=0)
    setattr(store, fault, from_request(number) if fault == "before" else unknown("write"))
    topic.client.post(f"{topic.path}/messages", messages=[{"body": "a", "key": "k", "queue": 0}])
    setattr(store, fault, unavailable())
    topic.produce({"body": "b", "key": "k", "queue": 0})
    there = [each["body"] for each in topic.read(queue=0)["messages"] if each["key"] == "k"]
    assert found(topic, "k") == there


def test_looking_for_what_never_landed_ends_soon(store: TroubledStore, topic: Topic) -> None:
    topic.produce("warm", queue=0)
    store.before = unavailable("write")
    topic.client.post(f"{topic.path}/messages", messages=[{"body": "a", "key": "k", "queue": 0}])
    store.before = unavailable()
    topic.client.clock.sleep(ENTRY_LATE_MS + CALL_MS_MAX)
    for number in range(300):
        topic.produce(f"{number:060}", queue=0)
    before = store.meter.copy()
    assert found(topic, "k") == []
    assert store.meter.since(before).round_trips <= 5


def test_a_message_with_a_dedup_id_is_found_though_another_one_stored_it(store: TroubledStore, topic: Topic) -> None:
    batch = [{"body": "a", "key": "k", "dedup_id": "x"}]
    store.before = lambda verb, about: RuntimeError("died") if verb == "write" and about.key.pk[:4] == "log#" else None
    topic.client.post(f"{topic.path}/messages", messages=batch)
    store.before = unavailable()
    Topic(topic.client.another(), "orders").produce(*batch)
    assert found(topic, "k") == ["a"]


def test_expired_messages_are_not_found(client: Client, topic: Topic) -> None:
    assert client.put(topic.path, retention_ms=60_000).status == 200
    topic.produce({"body": "a", "key": "k"})
    client.clock.sleep(30_000)
    topic.produce({"body": "b", "key": "k"})
    client.clock.sleep(30_000)
    assert found(topic, "k") == ["b"]


# -- the setting ------------------------------------------------------------------------------------------------------


def test_keys_are_indexed_only_where_that_is_set_and_from_then_on(client: Client) -> None:
    topic = client.topic("plain")
    topic.produce({"body": "a", "key": "k"})
    answer = client.get(f"{topic.path}/messages", key="k")
    assert answer.problem == (400, "InvalidField")
    assert "index_keys" in answer.json["detail"]
    changed = client.put(topic.path, index_keys=True)
    assert (changed.status, changed.json["index_keys"]) == (200, True)
    client.clock.sleep(6_000)
    topic.produce({"body": "b", "key": "k"})
    assert found(topic, "k") == ["b"]
    assert client.put(topic.path, index_keys=False).json["index_keys"] is False
    assert client.get(f"{topic.path}/messages", key="k").problem == (400, "InvalidField")


def test_a_change_of_another_setting_leaves_it_as_it_is(client: Client, topic: Topic) -> None:
    assert client.put(topic.path, retention_ms=60_000).json["index_keys"] is True


@pytest.mark.parametrize(
    "query",
    [
        {"key": ""},
        {"key": "k" * 257},
        {"key": "k", "queue": 0},
        {"key": "k", "at_ms": 5},
        {"key": "k", "queue": 0, "offset": 5},
        {"key": "k", "limit": 0},
        {"key": "k", "next": "nonsense"},
        {"key": ["k", "l"]},
    ],
)
def test_a_look_up_by_key_refuses_what_it_does_not_take(topic: Topic, query: dict[str, Any]) -> None:
    assert topic.client.get(f"{topic.path}/messages", **query).problem == (400, "InvalidField")


def test_a_token_of_one_kind_of_look_up_is_refused_by_another(topic: Topic) -> None:
    topic.produce({"body": "a", "key": "k"}, {"body": "b", "key": "k"})
    by_key, by_time = topic.read(key="k", limit=1)["next"], topic.read(limit=1)["next"]
    assert topic.client.get(f"{topic.path}/messages", next=by_key).problem == (400, "InvalidField")
    assert topic.client.get(f"{topic.path}/messages", key="k", next=by_time).problem == (400, "InvalidField")


def test_a_message_that_waited_is_found_by_its_key_once_it_is_delivered(client: Client, topic: Topic) -> None:
    client.put(f"{topic.path}/groups/billing")
    topic.produce({"body": "a", "key": "k"}, delay_ms=1_000)
    assert found(topic, "k") == []
    client.clock.sleep(6_000)
    client.post(f"{topic.path}/groups/billing/pop")
    assert found(topic, "k") == ["a"]


def test_a_message_delivered_an_hour_late_is_found_by_its_key(
    store: TroubledStore, client: Client, topic: Topic
) -> None:
    """Its promotion was decided, and then nobody carried it out until the log had gone on."""
    group = topic.group("billing")
    topic.produce({"body": "a", "key": "k", "queue": 0}, {"body": "b", "key": "l", "queue": 0}, delay_ms=1_000)
    client.clock.sleep(6_000)
    store.before = lambda verb, about: RuntimeError("died") if verb == "write" and about.key.pk[:4] == "log#" else None
    client.post(f"{group.path}/pop")
    store.before = unavailable()
    client.clock.sleep(60 * 60_000)
    for number in range(100):
        topic.produce({"body": f"{number:060}", "queue": 0})
    assert (found(topic, "k"), found(topic, "l")) == ([], [])
    group.take(102)
    assert (found(topic, "k"), found(topic, "l")) == (["a"], ["b"])
