"""A request is answered alike whichever front hands it over: REST API, HTTP API, function URL, load balancer."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from app import app
from chalicelib import wiring
from chalicelib.doors.functions import ForeignEvent
from chalicelib.doors.http import events as events_of_lambda
from tests.support import events
from tests.support.client import Answer, Client, Group, Topic
from tests.support.events import FRONTS, Json, Sent

each_front = pytest.mark.parametrize("front", FRONTS.values(), ids=FRONTS)
POP = "/topics/orders/groups/billing/pop"
MESSAGES = "/topics/orders/messages"


def answered(client: Client, event: Any, context: Any = None) -> Answer:
    wiring.use(client.api)
    response = app(event, context)
    json.dumps(response)
    lists = response.get("multiValueHeaders") or {}
    headers = {**response.get("headers", {}), **{name: value for name, [value] in lists.items()}}
    assert response["isBase64Encoded"] is False
    return Answer(response["statusCode"], headers, response["body"].encode())


@each_front
def test_messages_come_out_as_they_went_in(client: Client, group: Group, front: Callable[[Sent], Json]) -> None:
    content = bytes(range(256))
    sent = {"messages": [{"body": "grüß"}, {"body_base64": base64.b64encode(content).decode()}]}
    assert answered(client, front(Sent("POST", MESSAGES, json.dumps(sent)))).status == 200
    popped = answered(client, front(Sent("POST", POP, json.dumps({"max_messages": 2})))).json["messages"]
    assert popped[0]["body"] == "grüß"
    assert base64.b64decode(popped[1]["body_base64"]) == content


@each_front
def test_a_body_that_the_front_encoded_is_decoded(client: Client, topic: Topic, front: Callable[[Sent], Json]) -> None:
    body = json.dumps({"messages": [{"body": "a"}]}).encode()
    assert answered(client, front(Sent("POST", MESSAGES, body))).status == 200
    assert topic.read()["messages"][0]["body"] == "a"


@each_front
def test_no_body_is_an_empty_object(client: Client, group: Group, front: Callable[[Sent], Json]) -> None:
    assert answered(client, front(Sent("POST", POP))).json["messages"] == []


@each_front
def test_a_body_that_is_not_text_is_refused(client: Client, topic: Topic, front: Callable[[Sent], Json]) -> None:
    answer = answered(client, front(Sent("POST", MESSAGES, b"\xff\xfe")))
    assert answer.problem == (400, "InvalidJson")


@each_front
def test_headers_are_read_in_any_case(client: Client, topic: Topic, front: Callable[[Sent], Json]) -> None:
    sent = Sent("POST", MESSAGES, '{"messages": [{"body": "a"}]}', PREFER="return=minimal")
    answer = answered(client, front(sent))
    assert (answer.status, answer.raw) == (204, b"")


@each_front
def test_query_parameters_are_decoded_once(client: Client, front: Callable[[Sent], Json]) -> None:
    client.put("/topics/orders", index_keys=True)
    Topic(client, "orders").produce("a", key="50 %+20 ü&=")
    answer = answered(client, front(Sent("GET", MESSAGES, query=[("key", "50 %+20 ü&=")])))
    assert [message["body"] for message in answer.json["messages"]] == ["a"]


@pytest.mark.parametrize("front", [events.url, events.http_api, events.staged_http_api])
def test_a_query_arrives_as_it_was_sent(front: Callable[[Sent], Json]) -> None:
    received = events_of_lambda.received(front(Sent("GET", MESSAGES, query=[("b", "x|y z"), ("a", "")])))
    assert received
    assert received.request.raw_query == "b=x%7Cy+z&a="


@pytest.mark.parametrize("front", [events.rest, events.http_api_1, events.balancer])
def test_a_query_that_a_front_takes_apart_is_not_made_up(front: Callable[[Sent], Json]) -> None:
    received = events_of_lambda.received(front(Sent("GET", MESSAGES, query=[("a", "1")])))
    assert received
    assert received.request.raw_query is None


@pytest.mark.parametrize("front", [front for name, front in FRONTS.items() if name != "balancer"])
def test_a_parameter_given_twice_is_refused(client: Client, topic: Topic, front: Callable[[Sent], Json]) -> None:
    answer = answered(client, front(Sent("GET", MESSAGES, query=[("limit", "1"), ("limit", "2")])))
    assert answer.problem == (400, "InvalidField")
    assert "'limit' must be given once, not 2 times" in answer.json["detail"]


@each_front
def test_an_unknown_path_is_404_and_shows_what_was_asked(client: Client, front: Callable[[Sent], Json]) -> None:
    answer = answered(client, front(Sent("GET", "/topics/orders/")))
    assert answer.problem == (404, "NotFound")
    assert answer.json["detail"] == "there is no path '/topics/orders/'"
    assert answered(client, front(Sent("GET", "/nowhere"))).problem == (404, "NotFound")
    assert answered(client, front(Sent("GET", "/topics//messages"))).problem == (404, "NotFound")


@each_front
def test_a_wrong_method_is_405_with_what_is_allowed(client: Client, front: Callable[[Sent], Json]) -> None:
    answer = answered(client, front(Sent("PATCH", "/topics/orders")))
    assert answer.problem == (405, "MethodNotAllowed")
    assert answer.headers["Allow"] == "DELETE, GET, HEAD, PUT"


@each_front
def test_head_is_answered_without_a_body(client: Client, topic: Topic, front: Callable[[Sent], Json]) -> None:
    for path, status in ((topic.path, 200), ("/topics/none", 404)):
        answer = answered(client, front(Sent("HEAD", path)))
        assert (answer.status, answer.raw) == (status, b"")
        assert answer.headers == answered(client, front(Sent("GET", path))).headers


@each_front
def test_problems_are_the_same_everywhere(client: Client, front: Callable[[Sent], Json]) -> None:
    answer = answered(client, front(Sent("POST", "/topics/none/messages", '{"messages": [{"body": "a"}]}')))
    assert answer.problem == (404, "TopicNotFound")
    assert answered(client, front(Sent("POST", MESSAGES, "{"))).problem == (400, "InvalidJson")


@each_front
def test_encoded_names_are_decoded(client: Client, topic: Topic, front: Callable[[Sent], Json]) -> None:
    assert answered(client, front(Sent("GET", "/topics/%6frders"))).json["topic"] == "orders"
    assert answered(client, front(Sent("GET", "/topics/a%2Fb"))).problem == (400, "InvalidName")


def test_the_base_path_of_a_custom_domain_is_no_part_of_the_path(client: Client, topic: Topic) -> None:
    assert answered(client, events.rest(Sent("GET", "/topics/orders"), base="/mq")).json["topic"] == "orders"
    answer = answered(client, events.rest(Sent("GET", "/topics/orders/"), base="/mq"))
    assert answer.json["detail"] == "there is no path '/topics/orders/'"


def test_a_stage_may_be_called_as_a_path_begins(client: Client, topic: Topic) -> None:
    assert answered(client, events.http_api(Sent("GET", "/topics/orders"), "topics")).json["topic"] == "orders"


def test_a_header_sent_twice_is_one_list(client: Client, topic: Topic) -> None:
    event = events.rest(Sent("POST", MESSAGES, '{"messages": [{"body": "a"}]}'))
    event["multiValueHeaders"]["Prefer"] = ["wait=5", "return=minimal"]
    assert answered(client, event).status == 204


NO_REQUESTS: list[Any] = [
    {},
    [],
    ["a"],
    "text",
    None,
    7,
    {"version": "2.0"},
    {"version": "2.0", "requestContext": {"http": {"method": 7}}, "rawPath": "/topics"},
    {"version": "2.0", "requestContext": {"http": {"method": "GET"}}, "rawPath": None},
    {"requestContext": None},
    {"requestContext": {"httpMethod": "GET"}},
    {"requestContext": {"httpMethod": "GET", "path": 7}},
    {"requestContext": {"elb": {}}, "httpMethod": "GET", "path": "/topics", "headers": [1]},
    {**events.rest(Sent("GET", "/topics")), "headers": {"Prefer": 7}},
    {**events.rest(Sent("GET", "/topics")), "multiValueQueryStringParameters": {"limit": 7}},
    {**events.rest(Sent("GET", "/topics")), "body": {"a": 1}},
    {**events.rest(Sent("POST", "/topics")), "body": "%%%", "isBase64Encoded": True},
    {**events.rest(Sent("GET", "/topics/orders")), "pathParameters": ["orders"]},
]


@pytest.mark.parametrize("event", NO_REQUESTS, ids=lambda event: json.dumps(event)[:60])
def test_what_is_no_http_request_gets_one_clear_problem(client: Client, event: Any) -> None:
    answer = answered(client, event)
    assert answer.problem == (400, "InvalidField")
    assert answer.json["detail"].startswith("the event must be an HTTP request as API Gateway")


@st.composite
def forged(draw: st.DrawFn) -> Json:
    front = draw(st.sampled_from(sorted(FRONTS)))
    sent = Sent("POST", MESSAGES, '{"messages": [{"body": "a"}]}', [("limit", "1")], Prefer="wait=1")
    event: Json = FRONTS[front](sent)
    for _ in range(draw(st.integers(1, 3))):
        event = events.replaced(draw, event)
    return event


@example({**events.balancer(Sent("GET", MESSAGES)), "httpMethod": "\ud800"})
@given(forged())
def test_a_forged_event_is_never_a_defect(event: Any) -> None:
    client = Client()
    client.topic("orders")
    try:
        answer = answered(client, event)
    except ForeignEvent:
        return
    assert answer.status < 500, answer.json


@pytest.mark.parametrize("event", [events.SQS, events.EVENT_BRIDGE])
def test_records_of_a_source_fail_so_that_it_keeps_them(client: Client, event: Any) -> None:
    wiring.use(client.api)
    with pytest.raises(ForeignEvent, match="feed them to the function 'ingest'") as refused:
        app(event, None)
    assert "secret" not in str(refused.value)
