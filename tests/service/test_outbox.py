"""A message in a caller's own transaction: delivered once if that commits, and never if it does not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from chalicelib import wiring
from chalicelib.api import Api
from chalicelib.core.base.errors import InvalidField, TopicNotFound
from chalicelib.core.base.runtime import system
from chalicelib.core.delays.decision import slot_of
from chalicelib.core.store.dynamodb.requests import Failed
from chalicelib.core.store.dynamodb.store import DynamoStore
from chalicelib.hooks import outbox_item
from chalicelib.service import Service
from local.memory.store import MemoryStore
from tests.store.conftest import TABLE, dynoxide_store, moto_store, transact
from tests.support.clock import Clock
from tests.support.instances import instance

__all__ = ["dynoxide_store", "moto_store"]


@pytest.fixture(params=["moto", "dynoxide"])
def store(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, topic: str) -> Iterator[DynamoStore]:
    """The caller's own table; the service is wired to it, with a topic."""
    store: DynamoStore = request.getfixturevalue(f"{request.param}_store")
    monkeypatch.setenv("DECANT_TABLE", TABLE)
    api = Api(Service(store, system()))
    api.put_topic(topic, {"queues": 1})
    api.put_group(topic, "g", {})
    wiring.use(api)
    yield store
    wiring.use(None)


def popped(topic: str) -> list[str]:
    return [each["body"] for each in wiring.api().pop(topic, "g", {"wait_ms": 300, "max_messages": 256})["messages"]]


@pytest.mark.parametrize("body", ["small", "large" * 1_000])
def test_a_transaction_that_commits_delivers_its_message_once(store: DynamoStore, topic: str, body: str) -> None:
    items = [outbox_item(topic, {"body": body}), order(topic)]
    assert popped(topic) == []
    transact(store, items)
    assert popped(topic) == [body]
    assert popped(topic) == []


def test_a_transaction_that_is_cancelled_delivers_nothing(store: DynamoStore, topic: str) -> None:
    transact(store, [order(topic)])
    with pytest.raises(Failed):
        transact(store, [outbox_item(topic, {"body": "a"}), order(topic)])
    assert popped(topic) == []


def test_a_wrong_message_is_refused_before_anything_is_stored() -> None:
    store = MemoryStore()
    api = instance(store, Clock())
    api.put_topic("t", {})
    before = store.meter.write_units
    with pytest.raises(InvalidField, match=r"message\.tag"):
        api.outbox_item("t", {"body": "a", "tag": "|"})
    with pytest.raises(InvalidField, match=r"message\.dedup_id"):
        api.outbox_item("t", {"body": "a", "dedup_id": "d"})
    with pytest.raises(TopicNotFound):
        api.outbox_item("other", {"body": "a"})
    assert store.meter.write_units == before


def test_a_message_without_a_delay_is_due_when_it_is_sent() -> None:
    clock = Clock()
    api = instance(MemoryStore(), clock)
    api.put_topic("t", {})
    assert slot_of(api.outbox_item("t", {"body": "a"})).due_ms == clock.now()


def order(topic: str) -> dict[str, Any]:
    """The caller's own item, which must be new."""
    key = {"pk": {"S": f"my-orders-{topic}"}, "sk": {"S": "4711"}}
    return {"Put": {"TableName": TABLE, "Item": key, "ConditionExpression": "attribute_not_exists(pk)"}}
