from __future__ import annotations

import pytest

from tests.mqhttp.client import Mq
from tests.support.client import Client, Group, Topic
from tests.support.one_instance import client, clock

__all__ = ["client", "clock"]


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
