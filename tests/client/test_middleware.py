"""Middleware around handlers of both kinds."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from decant import Message, Retry
from decant.middleware import Recent, TimeLimitExceeded, logged, remember, time_limit
from decant.testing import Server
from tests.client.support.crews import Crew


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as server:
        server.client.api.put_topic("orders", queues=1)
        server.client.api.put_group("orders", "billing", backoff_ms=[0], max_attempts=3)
        yield server


@pytest.fixture(params=["threads", "asyncio"])
def crew(request: pytest.FixtureRequest, server: Server) -> Crew:
    return Crew(server, request.param)


def test_the_first_of_the_middleware_is_the_outermost(server: Server) -> None:
    steps: list[str] = []

    def named(name: str) -> Any:
        def middleware(call_next: Any) -> Any:
            def handle(message: Any) -> Any:
                steps.append(f"{name} {message.text}")
                result = call_next(message)
                steps.append(f"{name} done")
                return result

            return handle

        return middleware

    crew = Crew(server, "threads")
    crew.consumer(steps.append, middleware=[named("a"), named("b")])
    server.client.send("orders", "4711")
    crew.work()
    assert steps == ["a 4711", "b 4711", "4711", "b done", "a done"]


def test_a_call_is_logged_with_its_end(server: Server, crew: Crew, caplog: pytest.LogCaptureFixture) -> None:
    def bill(value: str) -> None:
        if value == "retry":
            raise Retry(100)

    caplog.set_level(logging.INFO, "decant.handled")
    crew.consumer(bill, middleware=[logged()])
    ids = [server.client.send("orders", value).id for value in ("well", "retry")]
    crew.work()
    lines = [record.getMessage() for record in caplog.records if record.name == "decant.handled"]
    assert lines[0].startswith(f"orders {ids[0]} attempt=1 done in ")
    assert lines[1].startswith(f"orders {ids[1]} attempt=1 retry in ")


def test_a_message_is_handled_once(server: Server, crew: Crew) -> None:
    """Though its ack was not sent the first time."""
    store, seen = Recent(), list[str]()
    crew.consumer(seen.append, middleware=[remember(store)])
    sent = server.client.send("orders", "4711")
    crew.work()
    assert sent.id in store
    server.client.api.reset_group("orders", "billing", to="earliest")
    assert crew.work() == 1
    assert seen == ["4711"]


def test_a_message_that_fails_is_not_remembered(server: Server, crew: Crew) -> None:
    attempts: list[int] = []

    def bill(_value: str, message: Message[str]) -> Any:
        attempts.append(message.attempt)
        return Retry(0) if len(attempts) < 3 else None

    crew.consumer(bill, middleware=[remember(set())])
    server.client.send("orders", "4711")
    crew.work()
    assert attempts == [1, 2, 3]


def test_of_a_batch_what_is_done_is_left_out(server: Server, crew: Crew) -> None:
    store: set[str] = set()
    seen: list[list[str]] = []

    def bill(messages: list[Message[str]]) -> list[Any]:
        seen.append([message.text for message in messages])
        return [Retry(0) if message.text == "b" and len(seen) == 1 else None for message in messages]

    crew.consumer(bill, batch=10, middleware=[remember(store)])
    server.client.send_all("orders", list("abc"))
    crew.work()
    server.client.api.reset_group("orders", "billing", to="earliest")
    crew.work()
    assert seen == [["a", "b", "c"], ["b"]]
    assert len(store) == 3


def test_recent_forgets_the_oldest() -> None:
    store = Recent(2)
    for id_ in "abc":
        store.add(id_)
    assert ["a" in store, "b" in store, "c" in store] == [False, True, True]


def test_a_handler_that_takes_too_long_is_interrupted(server: Server) -> None:
    def spin(_value: str) -> None:
        try:
            while True:
                time.sleep(0.001)
        except Exception:  # noqa: BLE001 - handlers do such things
            pytest.fail("the limit must pass this")

    crew = Crew(server, "threads")
    crew.consumer(spin, middleware=[time_limit(0.05)])
    server.client.api.put_group("orders", "billing", max_attempts=1)
    server.client.send("orders", "4711")
    crew.work()
    [dead] = server.client.api.list_dead("orders", "billing")["messages"]
    assert dead["reason"] == "TimeLimitExceeded: longer than 0.05 s"


def test_a_task_that_takes_too_long_is_cancelled(server: Server) -> None:
    crew = Crew(server, "asyncio")
    server.client.api.put_group("orders", "billing", max_attempts=1)
    crew.consumer(lambda _value: time.sleep(0.2), middleware=[time_limit(0.05)])
    server.client.send("orders", "4711")
    crew.work()
    [dead] = server.client.api.list_dead("orders", "billing")["messages"]
    assert dead["reason"] == "TimeLimitExceeded: longer than 0.05 s"


def test_a_limit_that_is_over_before_the_handler_begins_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    class AtOnce(threading.Timer):
        def start(self) -> None:
            ringing = threading.Thread(target=self.function)
            ringing.start()
            ringing.join()

    monkeypatch.setattr("decant.middleware.threading.Timer", AtOnce)
    with pytest.raises(TimeLimitExceeded):
        time_limit(1)(lambda _message: None)(None)


def test_a_limit_that_is_just_reached_interrupts_nothing_else() -> None:
    """Whichever comes first, the end or the limit: the exception never reaches code behind the handler."""
    handle = time_limit(0.005)(lambda _message: time.sleep(0.00495))
    for _ in range(100):
        try:
            handle(None)
        except TimeLimitExceeded:
            pass
        time.sleep(0.0001)
