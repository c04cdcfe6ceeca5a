"""The calls of consumers, of both faces: each takes a round trip, and a deployed service bills it."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from decant.testing import Server
from tests.client.support.crews import Crew, until

MESSAGES = 100


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as server:
        server.client.api.put_topic("orders", queues=2)
        server.client.api.put_group("orders", "billing")
        yield server


@pytest.fixture(params=["threads", "asyncio"])
def crew(request: pytest.FixtureRequest, server: Server) -> Crew:
    return Crew(server, request.param)


def calls(crew: Crew) -> Counter[str]:
    return Counter(request.operation for request in crew.wire.requests)


def leased(server: Server) -> int:
    return int(server.client.api.get_group("orders", "billing")["in_flight"])


def consumed(server: Server, crew: Crew, pops: int, **how: Any) -> None:
    """Has a consumer handle all messages, and acknowledge them. The first handlers wait until their pop has come."""
    go, handled = threading.Event(), list[Any]()

    def handle(given: Any) -> None:
        assert go.wait(30)
        handled.extend(given if isinstance(given, list) else [given])

    crew.consumer(handle, **how)
    server.client.send_all("orders", [str(number) for number in range(MESSAGES)])
    with crew.running():
        until(lambda: leased(server))
        go.set()
        until(lambda: len(handled) == MESSAGES and len(crew.wire.named("pop")) >= pops)
        until(lambda: leased(server) == 0, server.clock, 0.05)


def test_single_messages_take_a_pop_each_and_no_ack(server: Server, crew: Crew) -> None:
    consumed(server, crew, MESSAGES + 1)
    assert calls(crew) == {"get_group": 1, "pop": MESSAGES + 1}


def test_batches_take_a_pop_each_and_no_ack(server: Server, crew: Crew) -> None:
    consumed(server, crew, 11, batch=10)
    assert calls(crew) == {"get_group": 1, "pop": 11}


def test_a_hundred_prefetched_messages_take_two_pops(server: Server, crew: Crew) -> None:
    """The second pop carries acks; those of messages that are handled while it waits follow in one call."""
    consumed(server, crew, 2, prefetch=MESSAGES)
    made = calls(crew)
    assert made.pop("ack", 0) <= 1
    assert made == {"get_group": 1, "pop": 2}
