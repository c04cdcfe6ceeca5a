"""A server that is told to end answers what is under way, within a grace time; told again, it ends at once."""

from __future__ import annotations

import http.client
import json
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing

import pytest

from local import asyncio_server
from local.http1 import RawResponse
from local.workload import Pace, Task
from tests.local.serving import ANSWER_SECONDS, END_SECONDS, Running, running

POP = "/topics/orders/groups/billing/pop"
WAITING = b'{"wait_ms": 20000}'
SOON_SECONDS = asyncio_server.GRACE_SECONDS / 2

PRODUCE = b'{"messages": [{"body": "hello"}]}'


@pytest.fixture
def server() -> Iterator[Running]:
    with running() as server:
        server.ask("PUT", "/topics/orders", '{"queues": 1}')
        server.ask("PUT", "/topics/orders/groups/billing")
        yield server


def begun(server: Running, method: str, path: str, body: bytes, sent: int | None = None) -> socket.socket:
    """A connection that has sent a request, or so many bytes of its body."""
    head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
    connection = socket.create_connection(("127.0.0.1", server.port), timeout=ANSWER_SECONDS)
    connection.sendall(head.encode() + body[:sent])
    return connection


def is_refusing(server: Running) -> bool:
    try:
        socket.create_connection(("127.0.0.1", server.port), timeout=ANSWER_SECONDS).close()
    except ConnectionError:
        return True
    return False


def told_to_end(server: Running) -> None:
    server.process.send_signal(signal.SIGTERM)
    until = time.monotonic() + ANSWER_SECONDS
    while not is_refusing(server):
        assert time.monotonic() < until
        time.sleep(0.01)


def answered(connection: socket.socket) -> tuple[int, dict[str, object]]:
    """Returns the last answer on the connection, which says that the server closes it, and then does."""
    with closing(connection), closing(http.client.HTTPResponse(connection)) as response:
        response.begin()
        assert response.headers["connection"] == "close"
        body = json.loads(response.read())
        assert connection.recv(1) == b""
        return response.status, body


def exit_code(server: Running) -> tuple[int, str]:
    _, errors = server.process.communicate(timeout=END_SECONDS)
    return server.process.returncode, errors


def under_way(server: Running, path: str) -> socket.socket:
    """A request whose wait has begun: a later one on another connection has been answered."""
    connection = begun(server, "POST", path, WAITING if path == POP else b'{"body": "2 + 2?", "timeout_ms": 20000}')
    assert server.ask("GET", "/health")[0] == 200
    return connection


def test_what_waits_is_answered_with_what_there_is_when_it_ends(server: Running) -> None:
    poll = under_way(server, POP)
    server.ask("PUT", "/topics/questions")
    question = under_way(server, "/topics/questions/requests")
    told_to_end(server)
    status, body = answered(poll)
    assert (status, body["messages"]) == (200, [])
    status, body = answered(question)
    assert (status, [*body]) == (202, ["correlation_id"])
    assert exit_code(server) == (0, "")


def test_a_produce_that_is_being_sent_is_answered_before_it_ends(server: Running) -> None:
    produce = begun(server, "POST", "/topics/orders/messages", PRODUCE, sent=10)
    assert server.ask("GET", "/health")[0] == 200
    told_to_end(server)
    produce.sendall(PRODUCE[10:])
    status, body = answered(produce)
    assert (status, len(body["messages"])) == (200, 1)  # type: ignore[arg-type]
    assert exit_code(server) == (0, "")


def test_a_connection_without_a_request_does_not_delay_the_end(server: Running) -> None:
    kept = http.client.HTTPConnection("127.0.0.1", server.port, timeout=ANSWER_SECONDS)
    kept.request("GET", "/health")
    kept.getresponse().read()
    with socket.create_connection(("127.0.0.1", server.port), timeout=ANSWER_SECONDS) as silent:
        began_at = time.monotonic()
        assert server.end(signal.SIGTERM) == (0, "")
        assert time.monotonic() - began_at < SOON_SECONDS
        assert silent.recv(1) == b""
    kept.close()


def test_a_second_signal_ends_it_at_once(server: Running) -> None:
    with begun(server, "POST", "/topics/orders/messages", PRODUCE, sent=10) as half:
        assert server.ask("GET", "/health")[0] == 200
        told_to_end(server)
        began_at = time.monotonic()
        assert server.end(signal.SIGTERM) == (0, "")
        assert time.monotonic() - began_at < SOON_SECONDS
        half.close()


def test_a_request_that_never_comes_whole_ends_with_the_grace_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asyncio_server, "GRACE_SECONDS", 0.05)
    task = Task(Pace.AT_ONCE, lambda _is_over: RawResponse(204, {}, b""))
    listening = asyncio_server.Server(0, lambda _head, _body: task)
    serving = threading.Thread(target=listening.serve_forever)
    serving.start()
    with socket.create_connection(("127.0.0.1", listening.port), timeout=ANSWER_SECONDS) as half:
        half.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\nGET /hea")
        assert half.recv(65_536).startswith(b"HTTP/1.1 204")
        listening.finish()
        assert half.recv(1) == b""
    serving.join(ANSWER_SECONDS)
    assert not serving.is_alive()
    listening.server_close()
