"""Zones: producers and consumers keep to the queues near them, and to others only while these fail or stand idle."""

from __future__ import annotations

from typing import Any

import pytest

from chalicelib.core.base.limits import MINUTE_MS, SECOND_MS, TAKE_OVER_AFTER_MS, TAKEN_OVER_MS
from tests.support.client import Client, Group, Topic
from tests.support.clock import Clock
from tests.support.troubled_store import TroubledStore, throttled_queue, unavailable

ZONES = {"a": [0, 1], "b": [2, 3]}
FREE = 4
"""A queue of no zone."""


@pytest.fixture
def topic(client: Client) -> Topic:
    assert client.put("/topics/orders", queues=5, zones=ZONES).status == 201
    return Topic(client, "orders")


def placed(topic: Topic, count: int = 1, client: Client | None = None, **fields: Any) -> set[int]:
    """The queues of messages that are sent one by one."""
    queues = set()
    for _ in range(count):
        answer = (client or topic.client).post(f"{topic.path}/messages", messages=[{"body": "x", **fields}])
        queues.add(answer.json["messages"][0]["queue"])
    return queues


# -- produce ----------------------------------------------------------------------------------------------------------


def test_a_message_goes_to_a_queue_of_its_zone_always_the_same(client: Client, topic: Topic) -> None:
    for zone in "ab":
        assert len(placed(topic, 5, zone=zone)) == 1
        others = [Client(client.store, client.clock, seed) for seed in range(2, 12)]
        assert set.union(*(placed(topic, 3, client=other, zone=zone) for other in others)) == {*ZONES[zone]}


def test_a_queue_wins_over_a_key_and_a_key_over_a_zone(topic: Topic) -> None:
    assert placed(topic, queue=3, key="k", zone="a") == {3}
    by_key = {key: placed(topic, key=key) for key in "klmnopqr"}
    assert {key: placed(topic, key=key, zone="a") for key in by_key} == by_key
    assert set.union(*by_key.values()) > {0, 1}


def test_messages_of_several_zones_share_a_request(topic: Topic) -> None:
    made = topic.produce({"body": "a", "zone": "a"}, {"body": "b", "zone": "b"}, {"body": "c", "zone": "a"})
    first, second, third = (message["queue"] for message in made)
    assert first == third in ZONES["a"]
    assert second in ZONES["b"]


def test_a_message_crosses_only_when_all_queues_of_its_zone_fail(
    store: TroubledStore, client: Client, topic: Topic
) -> None:
    [near] = placed(topic, zone="a")
    store.before = throttled_queue(near)
    assert placed(topic, 3, zone="a") == {1 - near}
    store.before = lambda verb, about: throttled_queue(0)(verb, about) or throttled_queue(1)(verb, about)
    crossed = placed(topic, 3, zone="a")
    assert not crossed & {0, 1}
    store.before = unavailable()
    client.clock.sleep(MINUTE_MS)
    assert placed(topic, 3, zone="a") <= {0, 1}


def test_a_message_crosses_when_the_queues_of_its_zone_are_full(client: Client, topic: Topic) -> None:
    client.put(topic.path, max_depth=2)
    topic.group("billing")
    assert placed(topic, 4, zone="a") == {0, 1}
    assert not placed(topic, zone="a") & {0, 1}
    for queue in range(5):
        for _ in range(2):
            client.post(f"{topic.path}/messages", messages=[{"body": "x", "queue": queue}])
    answer = client.post(f"{topic.path}/messages", messages=[{"body": "x", "zone": "a"}])
    assert answer.problem == (429, "QueueFull")


def test_delayed_messages_requests_and_transactions_have_zones(client: Client, topic: Topic) -> None:
    assert placed(topic, 8, zone="b", delay_ms=SECOND_MS) <= {2, 3}
    client.post(f"{topic.path}/requests", body="x", zone="b", timeout_ms=SECOND_MS)
    begun = client.post(f"{topic.path}/transactions", messages=[{"body": "x", "zone": "b"}]).json["transaction_id"]
    [made] = client.post(f"{topic.path}/transactions/{begun}/commit").json["messages"]
    assert made["queue"] in ZONES["b"]
    stored = [message["queue"] for message in topic.read()["messages"]]
    assert len(stored) > 1
    assert {*stored} <= {2, 3}


def test_a_half_message_goes_where_its_key_goes_when_it_is_committed(
    client: Client, topic: Topic, clock: Clock
) -> None:
    messages = [{"body": "x", "key": key, "zone": "a"} for key in "klmnopqr"]
    begun = client.post(f"{topic.path}/transactions", messages=messages).json["transaction_id"]
    client.put(topic.path, queues=9)
    clock.sleep(MINUTE_MS)
    made = client.post(f"{topic.path}/transactions/{begun}/commit").json["messages"]
    assert [{message["queue"]} for message in made] == [placed(topic, key=key) for key in "klmnopqr"]


@pytest.mark.parametrize("zone", ["c", "A"])
def test_an_unknown_zone_is_refused_and_the_known_ones_are_named(client: Client, topic: Topic, zone: str) -> None:
    group = topic.group("billing")
    before = topic.details()
    wrong: list[tuple[str, dict[str, Any], str]] = [
        (f"{topic.path}/messages", {"messages": [{"body": "x"}, {"body": "x", "zone": zone}]}, "messages[1].zone"),
        (f"{topic.path}/requests", {"body": "x", "zone": zone}, "zone"),
        (f"{topic.path}/transactions", {"messages": [{"body": "x", "zone": zone}]}, "messages[0].zone"),
        (f"{group.path}/pop", {"zone": zone}, "zone"),
    ]
    for path, body, field in wrong:
        answer = client.post(path, **body)
        assert answer.problem == (400, "InvalidField")
        for part in (f"field '{field}'", "'a', 'b'", f'"{zone}"'):
            assert part in answer.json["detail"]
    assert topic.details() == before


def test_a_pop_knows_of_zones_that_were_set_a_moment_ago(client: Client, topic: Topic) -> None:
    other = client.another()
    group = topic.group("billing").seen_by(other)
    group.pop(zone="a")
    client.put(topic.path, zones={"c": [0]})
    assert group.pop(zone="c")["messages"] == []


# -- pop --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def group(topic: Topic) -> Group:
    return topic.group("billing")


def test_a_pop_takes_from_near_queues_and_from_those_of_no_zone(topic: Topic, group: Group) -> None:
    for queue in range(5):
        topic.produce(str(queue), queue=queue)
    taken = [group.pop(zone="b", max_messages=1)["messages"] for _ in range(5)]
    assert sorted(message["body"] for messages in taken for message in messages) == ["2", "3", "4"]


def test_a_pop_without_zone_takes_from_every_queue(topic: Topic, group: Group) -> None:
    for queue in range(5):
        topic.produce(str(queue), queue=queue)
    assert len({group.take_one()["queue"] for _ in range(5)}) == 5


@pytest.mark.parametrize("ordered", [False, "key"])
def test_a_queue_is_taken_over_when_its_zone_lets_a_message_wait(
    topic: Topic, clock: Clock, ordered: bool | str
) -> None:
    group = topic.group("billing", ordered=ordered)
    topic.produce("near", queue=2)
    topic.produce("waits", queue=2)
    assert group.take_one(zone="b")["body"] == "near"
    clock.sleep(TAKE_OVER_AFTER_MS - 1)
    assert group.pop(zone="a")["messages"] == []
    clock.sleep(1)
    assert group.take_one(zone="a")["body"] == "waits"


def test_a_zone_that_takes_messages_is_left_alone_however_long_they_wait(
    topic: Topic, group: Group, clock: Clock
) -> None:
    topic.produce(*["x"] * 20, queue=2)
    for _ in range(10):
        clock.sleep(TAKE_OVER_AFTER_MS - 1)
        group.take_one(zone="b")
        assert group.pop(zone="a")["messages"] == []


def test_what_is_taken_over_stays_so_until_its_zone_is_back(topic: Topic, group: Group, clock: Clock) -> None:
    topic.produce("x", queue=2)
    clock.sleep(TAKE_OVER_AFTER_MS)
    group.take_one(zone="a")
    for _ in range(5):
        clock.sleep(TAKEN_OVER_MS - 1)
        topic.produce("x", queue=2)
        group.ack(group.take_one(zone="a"))
    topic.produce("x", "x", queue=2)
    group.take_one(zone="b")
    assert group.pop(zone="a")["messages"] == []


def test_a_takeover_ends_when_nothing_was_taken_for_a_while(topic: Topic, group: Group, clock: Clock) -> None:
    topic.produce("x", queue=2)
    clock.sleep(TAKE_OVER_AFTER_MS)
    group.ack(group.take_one(zone="a"))
    clock.sleep(TAKEN_OVER_MS)
    topic.produce("x", queue=2)
    assert group.pop(zone="a")["messages"] == []
    clock.sleep(TAKE_OVER_AFTER_MS)
    group.take_one(zone="a")


def test_a_pop_without_zone_neither_takes_over_nor_gives_back(topic: Topic, group: Group, clock: Clock) -> None:
    topic.produce(*["x"] * 9, queue=2)
    group.take_one()
    assert group.pop(zone="a")["messages"] == []
    clock.sleep(TAKE_OVER_AFTER_MS)
    group.take_one()
    group.take_one(zone="a")
    group.take_one()
    group.take_one(zone="a")


def test_an_expired_lease_is_taken_over_by_another_zone_too(topic: Topic, group: Group, clock: Clock) -> None:
    topic.produce("x", queue=2)
    group.take_one(zone="b", invisible_ms=SECOND_MS)
    clock.sleep(SECOND_MS + TAKE_OVER_AFTER_MS - 1)
    assert group.pop(zone="a")["messages"] == []
    clock.sleep(1)
    assert group.take_one(zone="a")["attempt"] == 2


def test_a_long_poll_wakes_for_a_queue_that_it_may_take_over(topic: Topic, group: Group, clock: Clock) -> None:
    topic.produce("x", queue=2)
    began_ms = clock.ms
    [message] = group.pop(zone="a", wait_ms=20_000)["messages"]
    assert message["queue"] == 2
    assert clock.ms - began_ms == TAKE_OVER_AFTER_MS


def test_a_pop_acks_messages_of_a_queue_that_it_may_not_take_from(topic: Topic, group: Group, clock: Clock) -> None:
    topic.produce("x", "y", queue=2)
    message = group.take_one()
    answer = group.pop(zone="a", ack=[message["receipt"]])
    assert (answer["acked"], answer["messages"]) == (1, [])
    assert group.queue(2)["committed_offset"] == 1


def test_a_consumer_of_a_broadcast_group_gets_everything_whatever_its_zone(topic: Topic) -> None:
    group = topic.group("all", mode="broadcast")
    for queue in range(5):
        topic.produce("x", queue=queue)
    assert len({group.take_one(zone="a", consumer_id="c")["queue"] for _ in range(5)}) == 5


def test_without_zones_a_consumer_that_dies_leaves_nothing_behind(topic: Topic, group: Group, clock: Clock) -> None:
    """All of zone b's die: within ten seconds its messages reach zone a, and from then on as they come."""
    received: dict[str, int] = {}
    for second in range(40):
        topic.produce({"body": str(second), "zone": "b"})
        for zone in ("b", "a") if second < 10 else ("a",):
            for message in group.pop(zone=zone)["messages"]:
                assert message["body"] not in received
                received[message["body"]] = second
                group.ack(message)
        clock.sleep(SECOND_MS)
    late_s = {body: second - int(body) for body, second in received.items()}
    assert max(late_s.values()) <= 10
    assert {late_s[str(second)] for second in range(20, 40)} == {0}
    assert len(received) == 40


# -- the setting ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("zones", "names"),
    [
        ({"a": 1}, ["'zones.a'"]),
        ({"a": []}, ["'zones.a'", "at least one queue"]),
        ({"a": None}, ["'zones.a'"]),
        ({"a": ["0"]}, ["'zones.a'", '"0"']),
        ({"a": [True]}, ["'zones.a'", "true"]),
        ({"a": [-1]}, ["'zones.a'", "-1"]),
        ({"a": [128]}, ["'zones.a'", "128"]),
        ({"a": [0], "b": [1, 4]}, ["'zones.b'", "queue 4", "is 4"]),
        ({"a": [0, 1], "b": [1]}, ["'zones.b'", "queue 1", "zone 'a'"]),
        ({"a": [1, 1]}, ["'zones.a'", "queue 1", "zone 'a'"]),
        ({"": [0]}, ["'zones'", "''"]),
        ({"a b": [0]}, ["'zones'", "'a b'"]),
        ({"a" * 101: [0]}, ["'zones'"]),
    ],
)
@pytest.mark.parametrize("exists", [False, True])
def test_zones_that_cannot_be_are_refused(client: Client, zones: object, names: list[str], exists: bool) -> None:
    if exists:
        client.topic("orders", queues=4)
    answer = client.put("/topics/orders", zones=zones)
    assert answer.problem == (400, "InvalidField")
    for name in names:
        assert name in answer.json["detail"]
    assert client.get("/topics/orders").json.get("zones") is None
    assert client.get("/topics/orders").status == (200 if exists else 404)


def test_zones_may_name_every_queue_that_an_existing_topic_has(client: Client) -> None:
    client.topic("orders", queues=8)
    assert client.put("/topics/orders", zones={"far": [7]}).json["zones"] == {"far": [7]}


def test_zones_are_replaced_removed_and_otherwise_stay(client: Client, topic: Topic) -> None:
    assert topic.details()["zones"] == ZONES
    assert client.put(topic.path, retention_ms=MINUTE_MS, zones=None).json["zones"] == ZONES
    assert client.put(topic.path, zones={"c": [4]}).json["zones"] == {"c": [4]}
    assert placed(topic, 3, zone="c") == {4}
    assert client.put(topic.path, zones={}).json["zones"] is None
    assert client.get("/topics").json["topics"][0]["zones"] is None
    answer = client.post(f"{topic.path}/messages", messages=[{"body": "x", "zone": "c"}])
    assert answer.problem == (400, "InvalidField")
    assert "which has none" in answer.json["detail"]


def test_queues_do_not_shrink_below_one_that_a_zone_names(client: Client, topic: Topic) -> None:
    answer = client.put(topic.path, queues=3)
    assert answer.problem == (400, "InvalidField")
    for part in ("'zones.b'", "queue 3", "is 3"):
        assert part in answer.json["detail"]
    assert topic.details()["queues"] == 5
    assert client.put(topic.path, queues=3, zones={"b": [2]}).json["zones"] == {"b": [2]}


def test_new_queues_and_their_zone_are_set_at_once(client: Client, topic: Topic) -> None:
    assert client.put(topic.path, queues=6, zones={"c": [5]}).json["queues"] == 6
    assert 5 not in placed(topic, 3, zone="c")  # until every instance has heard of the new queue
    client.clock.sleep(MINUTE_MS)
    assert placed(topic, 3, zone="c") == {5}
