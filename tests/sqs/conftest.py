from __future__ import annotations

import pytest

from tests.sqs.client import Sqs, queue
from tests.sqs.query_client import QuerySqs
from tests.support.client import Client
from tests.support.one_instance import client, clock

__all__ = ["client", "clock"]


@pytest.fixture(params=[Sqs, QuerySqs])
def sqs(client: Client, request: pytest.FixtureRequest) -> Sqs:
    """In both encodings."""
    made: Sqs = request.param(client)
    return made


@pytest.fixture
def url(client: Client) -> str:
    """The URL of a queue."""
    return queue(client)
