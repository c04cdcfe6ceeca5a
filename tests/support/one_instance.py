"""Fixtures of tests that need a client of one instance, and no store of their own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from chalicelib import wiring
from tests.support.client import Client
from tests.support.clock import Clock


@pytest.fixture
def client() -> Iterator[Client]:
    yield Client()
    wiring.use(None)


@pytest.fixture
def clock(client: Client) -> Clock:
    return client.clock
