"""Functions that callers inside AWS invoke directly."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import app as functions
from chalicelib import wiring
from chalicelib.doors.functions import ForeignEvent
from tests.support import events
from tests.support.client import Client, Group, Topic, bodies
from tests.support.events import Json, Sent
from tests.support.troubled_store import TroubledStore, broken, unavailable

NAMES = ("produce", "pop", "ack", "nack", "extend", "bury", "request", "reply")
IN_BILLING = {"topic": "orders", "group": "billing"}


def invoke(client: Client, name: str, event: Any) -> Json:
    wiring.use(client.api)
    result: Json = getattr(functions, name)(event, None)
    json.dumps(result)
    return result


def error(result: Json) -> tuple[int, str, str]:
    assert result.keys() == {"error"}
    problem = result["error"]
    return problem["status"], problem["code"], problem["detail"]


def test_a_message_is_produced_popped_and_acked(client: Client, group: Group) -> None:
    produced = invoke(client, "produce", {"topic": "orders", "messages": [{"body": "a"}]})
    assert produced["messages"][0].keys() == {"message_id", "queue", "offset"}
    popped = invoke(client, "pop", {**IN_BILLING, "max_messages": 5})
    assert bodies(popped["messages"]) == ["a"]
    receipts = [message["receipt"] for message in popped["messages"]]
    assert invoke(client, "ack", {**IN_BILLING, "receipts": receipts}) == {"acked": 1, "failed": []}
    assert group.totals() == (0, 0, 0, 0)


def test_messages_are_extended_nacked_and_buried(topic: Topic, group: Group) -> None:
    topic.produce("a", "b")
    first, second = group.take(2)
    extended = invoke(topic.client, "extend", {**IN_BILLING, "receipts": [first["receipt"]], "invisible_ms": 60_000})
    receipt = extended["extended"][0]["new_receipt"]
    assert invoke(topic.client, "nack", {**IN_BILLING, "receipts": [receipt], "delay_ms": 5})["nacked"] == 1
    assert invoke(topic.client, "bury", {**IN_BILLING, "receipts": [second["receipt"]]})["buried"] == 1
    assert group.totals() == (0, 0, 1, 1)


def test_a_request_is_replied_to(client: Client, group: Group) -> None:
    asked = invoke(client, "request", {"topic": "orders", "body": "how much?", "wait_ms": 0})
    assert asked.keys() == {"correlation_id"}
    replied = invoke(client, "reply", {"correlation_id": asked["correlation_id"], "body": "5"})
    assert replied == {}
    assert client.get(f"/requests/{asked['correlation_id']}").json["reply"]["body"] == "5"


def test_a_message_that_is_not_stored_has_its_error(client: Client, store: TroubledStore, topic: Topic) -> None:
    store.before = unavailable("write")
    result = invoke(client, "produce", {"topic": "orders", "messages": [{"body": "a"}]})
    assert error(result)[:2] == (503, "StoreUnavailable")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("event", [None, [], "text", 7, True])
def test_an_event_that_is_no_object_is_refused(client: Client, name: str, event: Any) -> None:
    status, code, detail = error(invoke(client, name, event))
    assert (status, code) == (400, "InvalidJson")
    assert detail == f"the event must be a JSON object, not {json.dumps(event)}"


@pytest.mark.parametrize("value", [None, 7, True, [], {}, 1.5])
@pytest.mark.parametrize("field", ["topic", "group"])
def test_a_name_that_is_no_string_is_named(client: Client, field: str, value: Any) -> None:
    assert error(invoke(client, "pop", {**IN_BILLING, field: value})) == (
        400,
        "InvalidField",
        f"field '{field}' must be a string; it is {json.dumps(value)}",
    )


def test_names_and_fields_are_checked_as_in_a_request(client: Client, group: Group) -> None:
    assert error(invoke(client, "pop", {**IN_BILLING, "topic": "a/b"}))[:2] == (400, "InvalidName")
    assert error(invoke(client, "pop", {**IN_BILLING, "group": "none"}))[:2] == (404, "GroupNotFound")
    assert error(invoke(client, "pop", {**IN_BILLING, "limt": 1}))[:2] == (400, "UnknownField")
    assert error(invoke(client, "pop", {**IN_BILLING, "max_messages": "5"}))[:2] == (400, "InvalidField")
    assert error(invoke(client, "produce", {**IN_BILLING, "messages": []}))[:2] == (400, "UnknownField")
    assert error(invoke(client, "reply", {"topic": "orders", "body": "a"}))[:2] == (400, "InvalidField")
    assert error(invoke(client, "pop", {**IN_BILLING, "token": 7}))[:2] == (400, "InvalidField")


def test_a_defect_shows_nothing_of_the_inside(client: Client, store: TroubledStore, group: Group) -> None:
    store.before = broken("the inside")
    status, code, detail = error(invoke(client, "pop", IN_BILLING))
    assert (status, code) == (500, "Internal")
    assert "inside" not in detail


VALID: dict[str, Json] = {
    "produce": {"topic": "orders", "messages": [{"body": "a", "key": "k", "properties": {"a": "b"}, "delay_ms": 1}]},
    "pop": {**IN_BILLING, "max_messages": 1, "invisible_ms": 1, "ack": ["x"], "attempt_id": "a"},
    "ack": {**IN_BILLING, "receipts": ["x"]},
    "nack": {**IN_BILLING, "receipts": ["x"], "reason": "r", "delay_ms": 1},
    "extend": {**IN_BILLING, "receipts": ["x"], "invisible_ms": 1},
    "bury": {**IN_BILLING, "receipts": ["x"], "reason": "r"},
    "request": {"topic": "orders", "body": "a", "wait_ms": 0, "timeout_ms": 10},
    "reply": {"correlation_id": "x", "body": "a", "receipt": "x"},
    "sweep": {"sweep": "check"},
    "push": {"topic": "orders", "is_staying": False},
}


@st.composite
def forged(draw: st.DrawFn) -> tuple[str, Any]:
    name = draw(st.sampled_from(sorted(VALID)))
    event: Any = VALID[name]
    for _ in range(draw(st.integers(1, 3))):
        event = events.replaced(draw, event)
    return name, event


@given(forged())
def test_a_forged_event_is_never_a_defect(forged: tuple[str, Any]) -> None:
    client = Client()
    client.topic("orders").group("billing")
    result = invoke(client, *forged)
    assert result.get("error", {}).get("code") != "Internal"


@pytest.mark.parametrize("name", [*NAMES, "sweep", "push"])
def test_records_of_a_source_fail_so_that_it_keeps_them(client: Client, name: str) -> None:
    with pytest.raises(ForeignEvent):
        invoke(client, name, events.SQS)


def test_pop_takes_http_requests_to_pop_and_no_others(client: Client, topic: Topic, group: Group) -> None:
    topic.produce("a")
    answer = invoke(client, "pop", events.rest(Sent("POST", f"{group.path}/pop", "{}")))
    assert (answer["statusCode"], len(json.loads(answer["body"])["messages"])) == (200, 1)
    for sent in (Sent("DELETE", "/topics/orders"), Sent("POST", f"{group.path}/ack", "{}")):
        answer = invoke(client, "pop", events.rest(sent))
        assert (answer["statusCode"], json.loads(answer["body"])["code"]) == (404, "NotFound")
    assert client.get("/topics/orders").status == 200


@pytest.mark.parametrize("front", [events.rest, events.url])
def test_the_path_of_pop_has_its_404_and_405_there_too(client: Client, front: Any) -> None:
    """API Gateway sends any method, and a path with an extra slash, to the function of the path."""
    path = "/topics/orders/groups/billing/pop"
    answer = invoke(client, "pop", front(Sent("PATCH", path)))
    assert (answer["statusCode"], answer["headers"]["Allow"]) == (405, "POST")
    assert invoke(client, "pop", front(Sent("POST", f"{path}/")))["statusCode"] == 404


def test_request_takes_the_http_requests_that_wait_for_replies(client: Client, topic: Topic) -> None:
    body = '{"body": "how much?", "wait_ms": 0}'
    asked = invoke(client, "request", events.http_api(Sent("POST", "/topics/orders/requests", body)))
    assert asked["statusCode"] == 202
    path = f"/requests/{json.loads(asked['body'])['correlation_id']}"
    assert invoke(client, "request", events.url(Sent("GET", path)))["statusCode"] == 202
    assert invoke(client, "request", events.url(Sent("POST", f"{path}/reply", body)))["statusCode"] == 404


@pytest.mark.parametrize("name", ["revive", "forward", "expire", "check", "push_all", "move"])
def test_a_sweep_runs_when_it_is_asked_for(client: Client, topic: Topic, name: str) -> None:
    assert "seen" in invoke(client, "sweep", {"sweep": name})


def test_a_sweep_brings_back_what_a_lost_consumer_took(client: Client, topic: Topic) -> None:
    group = topic.group("once", max_attempts=1)
    topic.produce("a")
    group.take_one(invisible_ms=1_000)
    client.clock.sleep(2_000)
    invoke(client, "sweep", {"sweep": "revive"})
    assert group.totals() == (0, 0, 0, 1)


@pytest.mark.parametrize("event", [{}, None, [], {"sweep": "nothing"}, {"sweep": 7}, {"sweep": "check", "more": 1}])
def test_an_unknown_sweep_is_refused(client: Client, event: Any) -> None:
    assert error(invoke(client, "sweep", event))[0] == 400


def test_an_export_says_that_it_has_no_bucket(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DECANT_EXPORT_BUCKET", raising=False)
    assert invoke(client, "sweep", {"sweep": "export"})["exports"] == []
