"""A client that hangs up while its pop waits gets no message, so that another one does, at its first attempt."""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from chalicelib import wiring
from chalicelib.api import Api
from chalicelib.core.base.runtime import system
from chalicelib.service import Service
from local.asyncio_server import Server
from local.http1 import Head, RawResponse
from local.memory.store import MemoryStore
from local.server import find
from local.workload import HasHungUp, Pace, Task
from tests.local.serving import Running

POP = "/topics/%s/groups/billing/pop"
WAITING = b'{"wait_ms": 20000}'

ANSWER_SECONDS = 15
"""Less than a pop waits here, and far more than an answer takes."""

RESET = struct.pack("ii", 1, 0)
"""Has `close` reset the connection at once."""

looked = threading.Semaphore(0)
"""Released each time a pop has looked, and begins to wait."""


ended = threading.Semaphore(0)
"""Released whenever a pop has ended, even if no client waits for its answer."""


def watched(head: Head, body: bytes | None) -> Task:
    task = find(head, body)

    def run(has_hung_up: HasHungUp) -> RawResponse:
        answer = task.run(has_hung_up)
        if task.pace is Pace.LONG:
            ended.release()
        return answer

    return Task(task.pace, run)


class WatchedBell:
    def __init__(self) -> None:
        self._rung = threading.Event()
        self.ring = self._rung.set

    def wait(self, ms: int) -> None:
        looked.release()
        self._rung.wait(ms / 1_000)


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    wiring.use(Api(Service(MemoryStore(), replace(system(), make_bell=WatchedBell))))
    listening = Server(0, watched)
    serving = threading.Thread(target=listening.serve_forever, daemon=True)
    serving.start()
    yield Running(None, f"http://127.0.0.1:{listening.port}")  # type: ignore[arg-type]
    listening.shutdown()
    serving.join()
    listening.server_close()
    wiring.use(None)


def prepared(server: Running, topic: str) -> None:
    server.ask("PUT", f"/topics/{topic}", '{"queues": 1}')
    server.ask("PUT", f"/topics/{topic}/groups/billing")


def polling(server: Running, topic: str, more: bytes = b"") -> socket.socket:
    """A connection whose pop has looked once, and waits."""
    head = f"POST {POP % topic} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(WAITING)}\r\n\r\n"
    for signal in (looked, ended):
        while signal.acquire(blocking=False):
            pass
    connection = socket.create_connection(("127.0.0.1", server.port), timeout=ANSWER_SECONDS)
    connection.sendall(head.encode() + WAITING + more)
    assert looked.acquire(timeout=ANSWER_SECONDS)
    return connection


def produce(server: Running, topic: str) -> None:
    assert server.ask("POST", f"/topics/{topic}/messages", '{"messages": [{"body": "hello"}]}')[0] == 200


def popped(answer: bytes) -> list[Any]:
    found: list[Any] = json.loads(answer)["messages"]
    return found


def test_a_message_that_comes_after_its_client_closed_goes_to_another(server: Running) -> None:
    prepared(server, "closed")
    polling(server, "closed").close()
    produce(server, "closed")
    assert ended.acquire(timeout=ANSWER_SECONDS)
    (message,) = popped(server.ask("POST", POP % "closed", WAITING)[2])
    assert (message["body"], message["attempt"]) == ("hello", 1)


def test_a_client_whose_connection_was_reset_has_hung_up_too(server: Running) -> None:
    prepared(server, "reset")
    connection = polling(server, "reset")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    connection.close()
    produce(server, "reset")
    assert ended.acquire(timeout=ANSWER_SECONDS)
    (message,) = popped(server.ask("POST", POP % "reset", WAITING)[2])
    assert message["attempt"] == 1


def test_a_client_that_has_sent_its_next_request_still_waits_for_this_one(server: Running) -> None:
    prepared(server, "pipelined")
    with contextlib.closing(polling(server, "pipelined", b"GET /health HTTP/1.0\r\n\r\n")) as connection:
        produce(server, "pipelined")
        answers = b"".join(iter(lambda: connection.recv(65_536), b""))
    assert answers.count(b'"hello"') == 1
    assert answers.count(b"HTTP/1.1 200") == 2


def test_a_client_that_shuts_its_sending_side_gets_its_answer_at_once(server: Running) -> None:
    prepared(server, "half")
    with contextlib.closing(polling(server, "half")) as connection:
        connection.shutdown(socket.SHUT_WR)
        answer = b"".join(iter(lambda: connection.recv(65_536), b""))
    assert popped(answer.partition(b"\r\n\r\n")[2]) == []
