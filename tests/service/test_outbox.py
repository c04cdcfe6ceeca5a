"""A message in a caller's own transaction: delivered once if that commits, and never if it does not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from botocore.exceptions import ClientError

from chalicelib import wiring
from chalicelib.api import Api
from chalicelib.base.errors import InvalidField, TopicNotFound
from chalicelib.base.runtime import system
from chalicelib.service import Service
from chalicelib.store.dynamodb.store import DynamoStore
from tests.store.conftest import TABLE, dynoxide_store, embedded_store

__all__ = ["dynoxide_store", "embedded_store"]


@pytest.fixture(params=["embedded", "dynoxide"])
def client(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, topic: str) -> Iterator[Any]:
    """The caller's own client of the table; the service is wired to it, with a topic."""
    store: DynamoStore = request.getfixturevalue(f"{request.param}_store")
    monkeypatch.setenv("DECANT_TABLE", TABLE)
    api = Api(Service(store, system()))
    api.put_topic(topic, {"queues": 1})
    api.put_group(topic, "g", {})
    wiring.use(api)
    yield store._client
    wiring.use(None)


def popped(topic: str) -> list[str]:
    return [each["body"] for each in wiring.api().pop(topic, "g", {"wait_ms": 300, "max_messages": 256})["messages"]]


@pytest.mark.parametrize("body", ["small", "large" * 1_000])
def test_a_transaction_that_commits_delivers_its_message_once(client: Any, topic: str, body: str) -> None:
    items = [wiring.outbox_item(topic, {"body": body}), order(topic)]
    assert popped(topic) == []
    client.transact_write_items(TransactItems=items)
    assert popped(topic) == [body]
    assert popped(topic) == []


def test_a_transaction_that_is_cancelled_delivers_nothing(client: Any, topic: str) -> None:
    client.transact_write_items(TransactItems=[order(topic)])
    with pytest.raises(ClientError):
        client.transact_write_items(TransactItems=[wiring.outbox_item(topic, {"body": "a"}), order(topic)])
    assert popped(topic) == []


@pytest.mark.usefixtures("client")
def test_a_wrong_message_is_refused_before_anything_is_stored(topic: str) -> None:
    with pytest.raises(InvalidField, match=r"message\.tag"):
        wiring.outbox_item(topic, {"body": "a", "tag": "|"})
    with pytest.raises(TopicNotFound):
        wiring.outbox_item(f"{topic}x", {"body": "a"})


def order(topic: str) -> dict[str, Any]:
    """The caller's own item, which must be new."""
    key = {"pk": {"S": f"my-orders-{topic}"}, "sk": {"S": "4711"}}
    return {"Put": {"TableName": TABLE, "Item": key, "ConditionExpression": "attribute_not_exists(pk)"}}
