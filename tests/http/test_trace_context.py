"""The trace of a request, from its producer to consumers, repliers and webhooks. `test_hooks` has malformed headers."""

from __future__ import annotations

from typing import Any

import pytest

from chalicelib.core.base.limits import PROPERTIES_BYTES_MAX
from chalicelib.core.base.message import properties_bytes
from tests.support.client import Client, Group, Json, Topic
from tests.support.clock import Clock
from tests.support.consumer import Consumer

PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
OTHER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
TRACE: Json = {
    "traceparent": PARENT,
    "tracestate": "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE",
    "baggage": "userId=Am%C3%A9lie,isProduction=false;secret",
}


def send(topic: Topic, *messages: Json, **headers: Any) -> None:
    assert topic.client.ask("POST", f"{topic.path}/messages", {"messages": [*messages]}, **headers).status == 200


def carried(group: Group) -> Json:
    properties: Json = group.take_one()["properties"]
    return properties


def test_state_and_baggage_come_as_they_are(topic: Topic, group: Group) -> None:
    send(topic, {"body": "a", "properties": {"x": "y"}}, **TRACE)
    assert carried(group) == {"x": "y", **TRACE}


@pytest.mark.parametrize(
    ("own", "expected"),
    [
        ({"traceparent": OTHER}, {"traceparent": OTHER, "baggage": TRACE["baggage"]}),
        ({"baggage": "mine\nand mine"}, {**TRACE, "baggage": "mine\nand mine"}),
        ({"tracestate": "mine"}, {**TRACE, "tracestate": "mine"}),
    ],
)
def test_what_the_producer_has_set_stays(topic: Topic, group: Group, own: Json, expected: Json) -> None:
    send(topic, {"body": "a", "properties": own}, **TRACE)
    assert carried(group) == expected


def test_a_state_without_its_trace_is_ignored(topic: Topic, group: Group) -> None:
    send(topic, {"body": "a"}, tracestate="a=b")
    send(topic, {"body": "a"}, tracestate="a=b", traceparent="00-0-0-00")
    assert [carried(group), carried(group)] == [{}, {}]


def test_baggage_without_room_is_left_behind(topic: Topic, group: Group) -> None:
    others = {name: TRACE[name] for name in ("traceparent", "tracestate")}
    room = PROPERTIES_BYTES_MAX - properties_bytes(others) - len("baggage")
    send(topic, {"body": "a"}, **others, baggage="x" * room)
    send(topic, {"body": "a"}, **others, baggage="x" * (room + 1))
    assert carried(group) == {**others, "baggage": "x" * room}
    assert carried(group) == others


def test_a_message_keeps_its_trace_through_retries_and_the_dead_letters(
    topic: Topic, group: Group, clock: Clock
) -> None:
    send(topic, {"body": "a"}, **TRACE)
    group.change(max_attempts=2)
    group.nack(group.take_one(), delay_ms=10)
    clock.sleep(10)
    again = group.take_one()
    assert (again["attempt"], again["properties"]) == (2, TRACE)
    group.nack(again)
    [dead] = topic.client.get(f"{group.path}/dead").json["messages"]
    assert dead["properties"] == TRACE


def test_a_transaction_keeps_the_trace_of_its_beginning(topic: Topic, group: Group) -> None:
    path = f"{topic.path}/transactions"
    begun = topic.client.ask("POST", path, {"messages": [{"body": "a"}]}, **TRACE).json["transaction_id"]
    topic.client.ask("POST", f"{path}/{begun}/commit", traceparent=OTHER)
    assert carried(group) == TRACE


def test_a_reply_brings_the_trace_of_its_replier(topic: Topic, group: Group) -> None:
    client = topic.client
    asked = client.ask("POST", f"{topic.path}/requests", {"body": "a", "wait_ms": 0}, **TRACE).json["correlation_id"]
    assert carried(group) == TRACE
    path, reply = f"/requests/{asked}/reply", {"body": "b", "properties": {"x": "y"}}
    assert client.ask("POST", path, reply, traceparent=OTHER).status == 201
    assert client.get(f"/requests/{asked}").json["reply"]["properties"] == {"x": "y", "traceparent": OTHER}


def test_a_reply_again_is_the_same_whatever_its_trace(topic: Topic, group: Group) -> None:
    client = topic.client
    asked = client.post(f"{topic.path}/requests", body="a", wait_ms=0).json["correlation_id"]
    path = f"/requests/{asked}/reply"
    assert client.ask("POST", path, {"body": "b"}, traceparent=PARENT).status == 201
    assert client.ask("POST", path, {"body": "b"}, traceparent=OTHER).status == 201
    assert client.ask("POST", path, {"body": "c"}, traceparent=PARENT).problem == (409, "AlreadyReplied")


# -- push -------------------------------------------------------------------------------------------------------------


def pushed(topic: Topic, *properties: Json) -> dict[str, Any]:
    """The headers of the one call that brings messages with these properties."""
    consumer = Consumer()
    client = Client(topic.client.store, topic.client.clock, 2, consumer.outside())
    Topic(client, topic.name).group("pushed", push={"url": "https://shop.example/"})
    topic.produce(*({"body": "a", "properties": own} for own in properties))
    client.api.service.pushing.run(topic.name)
    [call] = consumer.calls
    assert [message["properties"] for message in call.messages] == [*properties]
    return {name: value for name, value in call.headers.items() if name in TRACE}


def test_a_webhook_gets_the_trace_of_its_messages(topic: Topic) -> None:
    assert pushed(topic, TRACE, {"x": "y", **TRACE}) == TRACE


def test_a_batch_of_different_traces_has_none_of_its_own(topic: Topic) -> None:
    assert pushed(topic, TRACE, {**TRACE, "traceparent": OTHER}, {**TRACE, "x": "y"}) == {"baggage": TRACE["baggage"]}


def test_messages_without_a_trace_bring_none(topic: Topic) -> None:
    assert pushed(topic, {}, {}) == {}


def test_a_property_that_is_no_header_stays_a_property(topic: Topic) -> None:
    own = {"traceparent": "mine", "tracestate": "a=b", "baggage": "a=b\r\nx-injected: 1"}
    assert pushed(topic, own) == {}
