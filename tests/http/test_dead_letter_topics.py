"""Groups whose dead messages move into a topic."""

from __future__ import annotations

from typing import Any

import pytest

from chalicelib.core.base.limits import HOUR_MS, KIB
from chalicelib.core.dead_letters import move
from chalicelib.core.dead_letters.move import Mover
from chalicelib.core.table import keys
from chalicelib.core.table.writes import Key
from tests.support.client import Client, Group, Json, Topic, bodies, receipts
from tests.support.clock import Clock
from tests.support.orders import noise

LEASE_MS = 1_000


@pytest.fixture
def graves(client: Client) -> Topic:
    return client.topic("graves")


@pytest.fixture
def reader(graves: Topic) -> Group:
    return graves.group("reader")


@pytest.fixture
def group(topic: Topic, graves: Topic) -> Group:
    return topic.group("billing", max_attempts=1, invisible_ms=LEASE_MS, dead_letters={"topic": "graves"})


def about(group: Group) -> Json:
    details: Json = group.client.get(group.path).json
    return details


def bury(group: Group, *messages: Json, reason: str = "") -> Json:
    answer: Json = group.client.post(f"{group.path}/bury", receipts=receipts(*messages), reason=reason).json
    return answer


def expire(group: Group, clock: Clock) -> list[Json]:
    """The next pop finds what was popped before visible."""
    clock.sleep(LEASE_MS)
    messages: list[Json] = group.pop()["messages"]
    return messages


def moved(reader: Group, count: int = 1) -> list[Json]:
    messages = reader.take(count)
    assert reader.pop()["messages"] == []
    return messages


# -- what moves -------------------------------------------------------------------------------------------------------


def test_a_message_whose_last_lease_expired_moves(topic: Topic, group: Group, reader: Group, clock: Clock) -> None:
    sent = topic.produce({"body": "hi", "key": "k", "tag": "t", "properties": {"a": "b"}})[0]
    stored = topic.read(queue=0, offset=0)["messages"][0]
    assert group.take_one()["attempt"] == 1
    assert expire(group, clock) == []
    [message] = moved(reader)
    properties = {
        "a": "b",
        "sqs:id": sent["message_id"],
        "sqs:sent": str(stored["stored_at_ms"]),
        "sqs:source": "billing",
        "sqs:origin": "0:0",
        "sqs:count": "1",
        "decant.reason": "the lease expired",
    }
    assert {name: message[name] for name in ("body", "key", "tag", "properties", "attempt")} == {
        "body": "hi",
        "key": "k",
        "tag": "t",
        "properties": properties,
        "attempt": 1,
    }


def test_it_is_in_one_place_only(topic: Topic, group: Group, reader: Group, clock: Clock) -> None:
    topic.produce("hi")
    group.take_one()
    expire(group, clock)
    totals = about(group)
    assert [totals[name] for name in ("ready", "in_flight", "retrying", "dead")] == [0, 0, 0, 0]
    assert group.client.get(f"{group.path}/dead").json == {"messages": [], "next": None}
    assert bodies(moved(reader)) == ["hi"]


def test_a_nack_at_the_last_attempt_and_a_bury_move_with_their_reasons(
    topic: Topic, group: Group, reader: Group
) -> None:
    group.change(max_attempts=2)
    topic.produce("nacked", "buried")
    first, second = group.take(2)
    group.nack(first, delay_ms=0)
    assert bury(group, second, reason="no such customer") == {"buried": 1, "failed": []}
    group.nack(group.take_one(), delay_ms=0, reason="twice")
    told = {each["body"]: each["properties"] for each in moved(reader, 2)}
    assert [told["nacked"][name] for name in ("decant.reason", "sqs:count")] == ["twice", "2"]
    assert [told["buried"][name] for name in ("decant.reason", "sqs:count")] == ["no such customer", "1"]


def test_a_bury_without_a_reason_tells_none(topic: Topic, group: Group, reader: Group) -> None:
    topic.produce({"body": "hi", "properties": {"decant.reason": "another"}})
    bury(group, group.take_one())
    assert "decant.reason" not in moved(reader)[0]["properties"]


def test_a_sweep_moves_what_nobody_pops_in_order_in_several_transactions(
    topic: Topic, group: Group, reader: Group, clock: Clock
) -> None:
    names = [str(number) for number in range(130)]
    topic.produce(*names)
    group.take(130)
    clock.sleep(60_000)
    assert group.client.api.service.sweeps.revive().done == 130
    assert bodies(moved(reader, 130)) == names


@pytest.mark.parametrize("body_bytes", [2 * KIB, 300 * KIB])
@pytest.mark.parametrize("moved_together", [1, 3])
def test_large_bodies_move_whole(
    topic: Topic,
    group: Group,
    reader: Group,
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
    body_bytes: int,
    moved_together: int,
) -> None:
    monkeypatch.setattr(move, "MOVED_BYTES_MAX", moved_together * body_bytes)
    names = [f"{number}{'x' * body_bytes}" for number in range(4)]
    for name in names:
        topic.produce(name)
    group.take(4)
    expire(group, clock)
    came: list[str] = []
    while messages := reader.pop()["messages"]:
        came += bodies(messages)
    assert came == names


def test_messages_move_to_the_queue_of_their_key(client: Client, topic: Topic) -> None:
    graves = client.topic("many", queues=8)
    reader = graves.group("reader")
    group = topic.group("g", dead_letters={"topic": "many"})
    names = list("abcdef")
    topic.produce(*[{"body": "dead", "key": name} for name in names])
    bury(group, *group.take(len(names)))
    expected = {name: graves.produce("new", key=name)[0]["queue"] for name in names}
    came = [message for _ in range(8) for message in reader.pop(max_messages=100)["messages"]]
    assert {each["key"]: each["queue"] for each in came if each["body"] == "dead"} == expected


def test_messages_that_the_log_has_dropped_only_leave_their_lease(
    client: Client, topic: Topic, group: Group, reader: Group
) -> None:
    sent = noise(9, 300)
    for body in sent:
        topic.produce(body)
    taken = group.take(9)
    items = client.store._items
    log = next(pk for pk in items if pk.startswith("log#"))
    first, second = sorted(items[log])[:2]
    client.store.remove_all([Key(log, first)])
    fresh, base = group.seen_by(client.another()), int(second)
    assert bury(fresh, taken[0]) == {"buried": 1, "failed": []}
    assert bury(fresh, *taken[1:]) == {"buried": 8, "failed": []}
    assert group.totals() == (0, 0, 0, 0)
    assert bodies(moved(reader, 9 - base)) == sent[base:]


def test_a_body_of_bytes_moves_as_bytes(topic: Topic, group: Group, reader: Group, clock: Clock) -> None:
    topic.produce({"body_base64": "3q2+7w=="})
    group.take_one()
    expire(group, clock)
    assert moved(reader)[0]["body_base64"] == "3q2+7w=="


def test_a_time_to_live_and_a_wish_for_a_reply_end_with_the_move(
    topic: Topic, group: Group, reader: Group, clock: Clock
) -> None:
    topic.produce({"body": "hi", "ttl_ms": 5_000})
    group.client.post(f"{topic.path}/requests", body="how much?", wait_ms=0, timeout_ms=5_000)
    group.take(2)
    expire(group, clock)
    clock.sleep(60_000)
    messages = moved(reader, 2)
    assert bodies(messages) == ["hi", "how much?"]
    assert not any("correlation_id" in message for message in messages)


def test_what_moves_twice_keeps_its_first_id_and_counts_on(
    client: Client, topic: Topic, group: Group, graves: Topic, clock: Clock
) -> None:
    last = client.topic("last").group("reader")
    second = graves.group("second", max_attempts=2, invisible_ms=LEASE_MS, dead_letters={"topic": "last"})
    sent_at_ms = clock.now()
    sent = topic.produce("hi", delay_ms=1_000)[0]
    clock.sleep(1_000)
    group.take_one()
    expire(group, clock)
    second.take_one()
    expire(second, clock)
    expire(second, clock)
    properties = moved(last)[0]["properties"]
    assert (properties["sqs:id"], properties["sqs:sent"]) == (sent["message_id"], str(sent_at_ms))
    assert [properties[name] for name in ("sqs:source", "sqs:origin", "sqs:count")] == ["second", "0:0", "3"]


def test_each_consumer_of_a_broadcast_group_moves_its_own(topic: Topic, graves: Topic, reader: Group) -> None:
    group = topic.group("all", mode="broadcast", dead_letters={"topic": "graves"})
    topic.produce("hi")
    for consumer in ("a", "b"):
        bury(group, group.take_one(consumer_id=consumer))
    assert bodies(moved(reader, 2)) == ["hi", "hi"]


def test_an_ordered_queue_goes_on_when_its_first_message_has_moved(
    topic: Topic, graves: Topic, reader: Group, clock: Clock
) -> None:
    group = topic.group(
        "ordered", ordered=True, max_attempts=1, invisible_ms=LEASE_MS, dead_letters={"topic": "graves"}
    )
    topic.produce("a", "b")
    for _ in range(2):
        group.take_one()
        clock.sleep(LEASE_MS)
    assert group.pop()["messages"] == []
    assert bodies(moved(reader, 2)) == ["a", "b"]


def test_a_purge_of_the_topics_group_before_the_move_holds_nothing_back(
    topic: Topic, group: Group, reader: Group, clock: Clock
) -> None:
    topic.produce("hi", {"body": "delayed", "delay_ms": 1_000})
    clock.sleep(5_000)
    group.take(2)
    reader.reset("now")
    expire(group, clock)
    assert bodies(moved(reader, 2)) == ["hi", "delayed"]


# -- the topic is gone ------------------------------------------------------------------------------------------------


def test_while_the_topic_is_gone_messages_are_received_on_and_on(
    client: Client, topic: Topic, group: Group, graves: Topic, clock: Clock
) -> None:
    group.change(backoff_ms=[1_000])
    topic.produce("hi")
    group.take_one()
    graves.delete()
    assert [each["attempt"] for each in expire(group, clock)] == [2]
    [message] = expire(group, clock)
    assert message["attempt"] == 3
    group.nack(message, delay_ms=0, reason="r")
    assert bury(group, group.take_one()) == {"buried": 1, "failed": []}
    clock.sleep(60_000)
    assert group.client.api.service.sweeps.revive().done == 0
    assert group.take_one()["attempt"] == 5
    again = client.topic("graves").group("again")
    assert expire(group, clock) == []
    assert moved(again)[0]["properties"]["sqs:count"] == "5"


def test_what_is_nacked_while_the_topic_is_gone_moves_though_nobody_pops(
    client: Client, topic: Topic, group: Group, graves: Topic, clock: Clock
) -> None:
    topic.produce("hi")
    message = group.take_one(invisible_ms=600_000)
    graves.delete()
    group.nack(message, delay_ms=1_000)
    again = client.topic("graves").group("again")
    for _ in range(2):
        clock.sleep(60_000)
        client.api.service.sweeps.revive()
    assert bodies(moved(again)) == ["hi"]


def test_another_instance_that_knows_the_deleted_topic_moves_nothing(
    client: Client, topic: Topic, group: Group, graves: Topic, clock: Clock
) -> None:
    topic.produce("hi")
    group.take_one()
    client.another().delete(graves.path)
    assert bodies(expire(group, clock)) == ["hi"]
    again = client.another().topic("graves").group("again")
    assert expire(group, clock) == []
    assert bodies(moved(again)) == ["hi"]


def test_a_message_whose_topic_goes_as_it_is_to_move_is_nacked(
    topic: Topic, group: Group, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic.produce("hi")
    message = group.take_one()
    looks = [Mover.target]
    monkeypatch.setattr(Mover, "target", lambda mover, of: looks.pop()(mover, of) if looks else None)
    assert bury(group, message)["failed"] == []
    clock.sleep(HOUR_MS)
    assert [(each["body"], each["attempt"]) for each in group.pop()["messages"]] == [("hi", 2)]


def test_what_has_moved_counts_if_the_topic_is_deleted_just_then(topic: Topic, group: Group, client: Client) -> None:
    topic.produce("hi")
    message = group.take_one()
    together = client.store.write_together

    def meanwhile(writes: Any) -> None:
        client.store.write_together = together  # type: ignore[method-assign]
        together(writes)
        client.store.remove_all([keys.topic("graves")])

    client.store.write_together = meanwhile  # type: ignore[method-assign]
    assert bury(group, message) == {"buried": 1, "failed": []}


# -- the setting ------------------------------------------------------------------------------------------------------


def test_the_setting_is_shown_changed_and_taken_away(topic: Topic, group: Group, clock: Clock) -> None:
    assert about(group)["dead_letters"] == {"topic": "graves"}
    group.change(dead_letters={"topic": "graves", "source": "orders"})
    assert about(group)["dead_letters"] == {"topic": "graves", "source": "orders"}
    group.change(dead_letters=None)
    assert about(group)["dead_letters"] is None
    topic.produce("hi")
    group.take_one()
    expire(group, clock)
    assert about(group)["dead"] == 1


def test_the_source_is_what_the_setting_says(topic: Topic, group: Group, reader: Group) -> None:
    group.change(dead_letters={"topic": "graves", "source": "orders"})
    topic.produce("hi")
    bury(group, group.take_one())
    assert moved(reader)[0]["properties"]["sqs:source"] == "orders"


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"topic": "orders"}, "field 'dead_letters.topic' must be another topic than the group's own, 'orders'"),
        ({"topic": "nowhere"}, "field 'dead_letters.topic' must name an existing topic; it is \"nowhere\""),
        ({"topic": "-"}, "field 'dead_letters.topic' must be a name that matches"),
        ({}, "field 'dead_letters.topic' must be a string; it is null"),
        ({"topic": "graves", "source": ""}, "field 'dead_letters.source' must be a name that matches"),
    ],
)
def test_a_topic_that_cannot_be_meant_is_refused(topic: Topic, graves: Topic, given: Any, text: str) -> None:
    path = f"{topic.path}/groups/other"
    for _ in range(2):
        answer = topic.client.put(path, dead_letters=given)
        assert (answer.status, answer.json["code"]) == (400, "InvalidField")
        assert text in answer.json["detail"]
        topic.client.put(path)
