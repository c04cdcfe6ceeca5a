"""No log line holds what clients send: every operation is called with marked secrets."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from chalicelib.api import OPERATIONS
from chalicelib.api.operation import Operation
from chalicelib.core.base.fields import declarations
from tests.support.client import Client, Group, Json, Topic
from tests.support.consumer import Consumer
from tests.support.troubled_store import broken

SECRET = "s3cr3t"
_MESSAGE = {"body": SECRET, "key": SECRET, "tag": SECRET, "properties": {SECRET: SECRET}}
_GIVEN = {
    "messages": [{**_MESSAGE, "dedup_id": SECRET}],
    "receipts": [SECRET],
    "ack": [SECRET],
    "properties": {SECRET: SECRET},
    "message_ids": [SECRET],
    "filter": {"tags": [SECRET]},
    "push": {"url": f"https://{SECRET}.example/{SECRET}"},
    "zones": {SECRET: [0]},
}


def request_of(operation: Operation) -> Json:
    """A request with a secret in each field that can hold text."""
    fields = declarations(operation.request) if operation.request else {}
    texts = {name: SECRET for name, declared in fields.items() if "string" in str(getattr(declared, "schema", ""))}
    return {name: _GIVEN.get(name, texts.get(name)) for name in fields if name in _GIVEN or name in texts}


def ask(client: Client, operation: Operation) -> None:
    """Sends everything that can be a secret: the path has the topic and the group alone as they are."""
    named = {"topic": "orders", "group": "billing"}
    path = operation.path
    for name in operation.path_names:
        path = path.replace(f"{{{name}}}", named.get(name, SECRET))
    headers: Json = {"authorization": f"Bearer dct_1_{SECRET}", "cookie": SECRET}
    for request in (
        request_of(operation),
        {name: value for name, value in request_of(operation).items() if name == "messages"},
    ):
        given: dict[str, Any] = {"query": request} if operation.method == "GET" else {"body": request}
        client.ask(operation.method, path, **given, **headers)


@pytest.fixture
def lines(client: Client, group: Group) -> list[str]:
    written: list[str] = []
    client.api.service.telemetry.log_to(written.append, "decant-dev")
    return written


def test_no_line_of_any_operation_holds_a_secret(client: Client, lines: list[str]) -> None:
    for operation in OPERATIONS.values():
        if operation.method != "DELETE":
            ask(client, operation)
    for operation in reversed(OPERATIONS.values()):
        ask(client, operation)
    told = {name for name in OPERATIONS for line in lines if f'"operation":"{name}"' in line}
    assert told == set(OPERATIONS)
    assert [line for line in lines if SECRET in line] == []


def test_no_line_of_messages_on_their_way_holds_a_secret(topic: Topic, group: Group, lines: list[str]) -> None:
    topic.produce(_MESSAGE, _MESSAGE, _MESSAGE, key=None)
    taken = group.take(3)
    group.ack(taken[0])
    group.nack(taken[1], reason=SECRET, delay_ms=0)
    topic.client.post(f"{group.path}/bury", receipts=[taken[2]["receipt"]], reason=SECRET)
    topic.client.get(f"{group.path}/dead")
    topic.read()
    asked = topic.client.post("/topics/orders/requests", body=SECRET, wait_ms=0).json["correlation_id"]
    topic.client.post(f"/requests/{asked}/reply", body=SECRET)
    hidden = [SECRET, asked, *(message["receipt"] for message in taken), *(message["message_id"] for message in taken)]
    assert len(lines) == 9
    assert [line for line in lines if any(secret in line for secret in hidden)] == []


def test_no_line_of_a_push_holds_a_secret(topic: Topic, caplog: pytest.LogCaptureFixture) -> None:
    consumer, lines = Consumer(), list[str]()
    pushing = Client(topic.client.store, topic.client.clock, 2, consumer.outside())
    pushing.api.service.telemetry.log_to(lines.append, "decant-dev")
    pushed = Topic(pushing, topic.name).group("pushed", push={"url": f"https://example.org/{SECRET}"})
    made = pushing.post(f"{pushed.path}/push/secrets").json["secret"]
    topic.produce(_MESSAGE)
    with caplog.at_level(logging.DEBUG, logger="decant"):
        pushing.api.service.pushing.run(topic.name)
    assert consumer.bodies == [[SECRET]]
    assert '"operation":"push","topic":"orders"' in lines[-1]
    assert [line for line in (*lines, *caplog.messages) if SECRET in line or made in line] == []


def test_no_line_of_a_defect_holds_a_secret(topic: Topic, store: Any, lines: list[str]) -> None:
    store.before = broken(SECRET)
    assert topic.client.get(topic.path).status == 500
    assert SECRET not in lines[-1]
