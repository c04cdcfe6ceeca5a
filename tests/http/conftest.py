from __future__ import annotations

from collections.abc import Iterator

import pytest

from chalicelib import wiring
from chalicelib.store.memory import MemoryStore
from tests.support.client import Client, Group, Topic
from tests.support.clock import Clock


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def client(store: MemoryStore) -> Iterator[Client]:
    yield Client(store)
    wiring.use(None)


@pytest.fixture
def clock(client: Client) -> Clock:
    return client.clock


@pytest.fixture
def topic(client: Client) -> Topic:
    """A topic of one queue."""
    return client.topic("orders")


@pytest.fixture
def group(topic: Topic) -> Group:
    return topic.group("billing")
