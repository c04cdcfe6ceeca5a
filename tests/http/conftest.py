from __future__ import annotations

from collections.abc import Iterator

import pytest

from chalicelib import wiring
from tests.support.client import Client, Group, Topic
from tests.support.clock import Clock
from tests.support.troubled_store import TroubledStore


@pytest.fixture
def store() -> TroubledStore:
    """Without any trouble, until a test makes some."""
    return TroubledStore()


@pytest.fixture
def client(store: TroubledStore) -> Iterator[Client]:
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
