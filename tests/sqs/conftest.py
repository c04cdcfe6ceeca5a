from __future__ import annotations

from collections.abc import Iterator

import pytest

from chalicelib import wiring
from tests.sqs.client import Sqs, queue
from tests.support.client import Client
from tests.support.clock import Clock


@pytest.fixture
def client() -> Iterator[Client]:
    yield Client()
    wiring.use(None)


@pytest.fixture
def clock(client: Client) -> Clock:
    return client.clock


@pytest.fixture
def sqs(client: Client) -> Sqs:
    return Sqs(client)


@pytest.fixture
def url(client: Client) -> str:
    """Of a queue."""
    return queue(client)
