from __future__ import annotations

from collections.abc import Iterator

import pytest

from chalicelib import wiring
from tests.mqhttp.client import Mq
from tests.support.client import Client, Group, Topic
from tests.support.clock import Clock


@pytest.fixture
def client() -> Iterator[Client]:
    yield Client()
    wiring.use(None)


@pytest.fixture
def clock(client: Client) -> Clock:
    return client.clock


@pytest.fixture
def topic(client: Client) -> Topic:
    return client.topic("orders")


@pytest.fixture
def group(topic: Topic) -> Group:
    return topic.group("billing")


@pytest.fixture
def mq(client: Client, group: Group) -> Mq:
    """A client of the topic `orders`, which has the group `billing`."""
    return Mq(client)
