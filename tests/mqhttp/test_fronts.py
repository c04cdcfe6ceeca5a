"""The door for MQ over HTTP is reached through every front."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from app import app
from chalicelib import wiring
from tests.mqhttp.client import elements_of, message, receipt_handles, root_of
from tests.support.client import Answer, Client, Group
from tests.support.events import FRONTS, Json, Sent

each_front = pytest.mark.parametrize("front", FRONTS.values(), ids=FRONTS)
PATH = "/topics/orders/messages"
CONSUMER = ("consumer", "billing")

Front = Callable[[Sent], Json]


def answered(client: Client, event: Any) -> Answer:
    wiring.use(client.api)
    response = app(event, None)
    lists = response.get("multiValueHeaders") or {}
    headers = {**response.get("headers", {}), **{name: value for name, [value] in lists.items()}}
    return Answer(response["statusCode"], headers, response["body"].encode())


def sent(method: str, raw: bytes | None = None, *query: tuple[str, str]) -> Sent:
    request = Sent(method, PATH, raw, [*query], **{"X-MQ-Version": "2015-06-06"})
    request.headers["Content-Type"] = "text/xml;charset=UTF-8"
    return request


@each_front
def test_a_message_is_published_consumed_and_acked(client: Client, group: Group, front: Front) -> None:
    assert answered(client, front(sent("POST", message("grüß", "a b")))).status == 201
    answer = answered(client, front(sent("GET", None, CONSUMER, ("tag", "a b||c"))))
    assert answer.headers["x-mq-request-id"]
    [taken] = map(elements_of, root_of(answer, "Messages"))
    assert taken["MessageBody"] == "grüß"
    acked = answered(client, front(sent("DELETE", receipt_handles(taken["ReceiptHandle"]), CONSUMER)))
    assert (acked.status, acked.raw) == (204, b"")
    assert group.totals() == (0, 0, 0, 0)


@each_front
def test_errors_are_documents_too(client: Client, group: Group, front: Front) -> None:
    answer = answered(client, front(sent("GET", None, CONSUMER)))
    assert answer.status == 404
    assert elements_of(root_of(answer, "Error"))["HostId"] == "http://example.org"


def test_who_may_invoke_one_function_reaches_nothing_else_through_it(client: Client, group: Group) -> None:
    from app import pop

    wiring.use(client.api)
    response = pop(FRONTS["url"](sent("POST", message("a"))), None)
    assert response["statusCode"] == 404
    assert group.totals() == (0, 0, 0, 0)
