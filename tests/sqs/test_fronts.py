"""The SQS door is reached through every front, and its URLs lead back to it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import pytest
from chalice.config import Config
from chalice.local import LocalGateway

from app import app
from chalicelib import wiring
from chalicelib.doors.http import events as events_of_lambda
from chalicelib.doors.sqs.sigv4 import signed
from tests.sqs.signing import NOW_MS, REGION, SECRET, sign
from tests.support import events
from tests.support.client import Client
from tests.support.events import FRONTS, Json, Sent

PREFIXES = {"rest": "/api", "http_api_1": "/api", "staged_http_api": "/prod"}


def sent(action: str, path: str = "/", **members: Any) -> Sent:
    headers: Json = {"X-Amz-Target": f"AmazonSQS.{action}", "X-Forwarded-Proto": "https"}
    request = Sent("POST", path, json.dumps(members), **headers)
    request.headers["Content-Type"] = "application/x-amz-json-1.0"
    return request


def answered(client: Client, event: Json) -> tuple[int, Any]:
    wiring.use(client.api)
    response = app(event, None)
    return response["statusCode"], json.loads(response["body"] or "null")


@pytest.mark.parametrize("front", FRONTS)
def test_a_queue_is_reached_by_its_own_url(client: Client, front: str) -> None:
    through: Callable[[Sent], Json] = FRONTS[front]
    status, made = answered(client, through(sent("CreateQueue", QueueName="orders")))
    prefix = PREFIXES.get(front, "")
    assert (status, made) == (200, {"QueueUrl": f"https://example.org{prefix}/000000000000/orders"})
    path = urlsplit(made["QueueUrl"]).path.removeprefix(prefix)
    assert answered(client, through(sent("SendMessage", path, MessageBody="grüß", **made)))[0] == 200
    status, received = answered(client, through(sent("ReceiveMessage", path)))
    assert [message["Body"] for message in received["Messages"]] == ["grüß"]


@pytest.mark.parametrize("front", FRONTS)
def test_a_form_comes_through_as_it_was_sent(client: Client, front: str) -> None:
    """Fronts hand over the body of a form in base64, or as text."""
    wiring.use(client.api)
    through: Callable[[Sent], Json] = FRONTS[front]
    form_type: Json = {"Content-Type": "application/x-www-form-urlencoded"}
    path = "/000000000000/orders"
    assert b"QueueUrl" in asked(through(Sent("POST", "/", b"Action=CreateQueue&QueueName=orders", **form_type)))
    for body in (
        b"Action=SendMessage&MessageBody=gr%C3%BC%C3%9F+%26",
        "Action=SendMessage&MessageBody=gr%C3%BC%C3%9F+%26",
    ):
        asked(through(Sent("POST", path, body, **form_type)))
    asked(through(Sent("GET", path, query=[("Action", "SendMessage"), ("MessageBody", "grüß &")])))
    received = asked(through(Sent("GET", path, query=[("Action", "ReceiveMessage"), ("MaxNumberOfMessages", "10")])))
    assert received.decode().count("<Body>grüß &amp;</Body>") == 3


def asked(event: Json) -> bytes:
    response = app(event, None)
    assert response["statusCode"] == 200, response
    content: str = response["body"]
    return content.encode()


def test_the_local_server_of_chalice_knows_the_paths(client: Client) -> None:
    wiring.use(client.api)
    gateway = LocalGateway(app, Config())
    for request in (
        sent("CreateQueue", QueueName="orders"),
        sent("SendMessage", "/000000000000/orders", MessageBody="a"),
    ):
        headers = {name.lower(): value for name, value in request.headers.items()}
        answer = gateway.handle_request("POST", request.path, headers, str(request.body).encode())
        assert answer["statusCode"] == 200


def test_the_base_path_of_a_custom_domain_is_part_of_the_url(client: Client) -> None:
    status, made = answered(client, events.rest(sent("CreateQueue", QueueName="orders"), base="/mq"))
    assert (status, made) == (200, {"QueueUrl": "https://example.org/mq/000000000000/orders"})
    status, _ = answered(client, events.rest(sent("SendMessage", "/000000000000/orders", MessageBody="a"), base="/mq"))
    assert status == 200


def is_proved(event: Json) -> bool:
    received = events_of_lambda.received(event)
    assert received
    return signed(received.request, REGION, NOW_MS).is_proved_by(SECRET)


def as_sent(method: str, called: str, path: str, body: str = "", query: events.Query | None = None) -> Sent:
    """Signed as all SDKs do it, for the URL that is called. `path`: what of it is no part of the way."""
    url = f"https://example.org{called}{path}?{urlencode(query or [], quote_via=quote)}".rstrip("?")
    about: Json = {"amz_sdk_invocation_id": "1-2", "amz_sdk_request": "attempt=1; max=3", "x_amzn_query_mode": "true"}
    kind: Json = {"content_type": "application/x-amz-json-1.0", "x_amz_target": "AmazonSQS.SendMessage"}
    content: Json = {"content_length": str(len(body.encode())), "user_agent": "an SDK"}
    request = sign(method, url, body.encode(), **about, **kind, **content)
    sent = Sent(method, path, body, query)
    sent.headers = {name.title(): value for name, value in request.headers.items()}
    return sent


@pytest.mark.parametrize("front", FRONTS)
def test_a_signature_is_right_behind_every_front(front: str) -> None:
    through: Callable[[Sent], Json] = FRONTS[front]
    called = PREFIXES.get(front, "")
    for path in ("/", "/000000000000/orders.fifo"):
        assert is_proved(through(as_sent("POST", called, path, '{"MessageBody": "grüß"}')))
        assert is_proved(through(as_sent("GET", called, path, query=[("b", "ü +&"), ("a", "")])))
        assert not is_proved(through(as_sent("POST", "/other", path)))


def test_the_path_on_a_custom_domain_is_signed_as_it_is_called(client: Client) -> None:
    with_base = as_sent("POST", "/mq", "/000000000000/orders")
    without_base = as_sent("POST", "", "/000000000000/orders")
    assert is_proved(events.rest(with_base, base="/mq"))
    assert is_proved(events.http_api(without_base, "prod", "example.org"))
    assert is_proved({**events.http_api_1(without_base), "path": without_base.path})
    status, made = answered(client, events.http_api(sent("CreateQueue", QueueName="orders"), "prod", "example.org"))
    assert (status, made) == (200, {"QueueUrl": "https://example.org/000000000000/orders"})


def test_who_may_invoke_one_function_reaches_no_queue_through_it(client: Client) -> None:
    from app import pop

    wiring.use(client.api)
    response = pop(events.url(sent("CreateQueue", QueueName="orders")), None)
    assert response["statusCode"] == 404


@pytest.mark.parametrize("text", ["12345678901", "1234567890123", "abc"])
def test_an_account_has_twelve_digits(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DECANT_ACCOUNT", text)
    with pytest.raises(ValueError, match="DECANT_ACCOUNT must be twelve digits"):
        _ = wiring.settings.account
