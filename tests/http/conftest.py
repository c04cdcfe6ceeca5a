from __future__ import annotations

from collections.abc import Iterator

import pytest

from chalicelib import wiring
from tests.http.client import Client, Clock, Group, Topic


@pytest.fixture
def client() -> Iterator[Client]:
    yield Client()
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
