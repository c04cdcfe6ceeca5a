from __future__ import annotations

from collections.abc import Iterator

import pytest

from chalicelib import wiring
from tests.sqs.client import Sqs, queue
from tests.sqs.query_client import QuerySqs
from tests.support.client import Client
from tests.support.clock import Clock


@pytest.fixture
def client() -> Iterator[Client]:
    yield Client()
    wiring.use(None)


@pytest.fixture
def clock(client: Client) -> Clock:
    return client.clock


@pytest.fixture(params=[Sqs, QuerySqs])
def sqs(client: Client, request: pytest.FixtureRequest) -> Sqs:
    """In both encodings."""
    made: Sqs = request.param(client)
    return made


@pytest.fixture
def url(client: Client) -> str:
    """Of a queue."""
    return queue(client)
