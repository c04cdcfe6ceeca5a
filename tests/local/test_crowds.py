"""Many clients, slow ones and silent ones: none of them keeps the others waiting."""

from __future__ import annotations

import resource
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pytest

from local import asyncio_server, workload
from local import connection as connection_module
from local.asyncio_server import Server
from local.http1 import Head, RawResponse
from local.workload import HasHungUp, Pace, Task
from tests.local.serving import Running, running

CROWD = 3_000
"""More connections than `select` could watch."""
THREADS_OF_A_CROWD_MAX = 200
"""Far more than a server has that is asked by one client at a time, far fewer than a crowd."""

PATIENCE_SECONDS = 5
"""With a thread for each connection, a crowd that went away kept the others waiting for 9 s; now 0.2 s."""

GET = b"GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.fixture
def many_files() -> Iterator[None]:
    """As many open files as a crowd needs, here and in the server that is started with it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 2 * CROWD:
        pytest.skip(f"a process may open only {hard} files here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2 * CROWD), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@contextmanager
def crowd(port: int, says: bytes) -> Iterator[None]:
    with ExitStack() as stack:
        for _ in range(CROWD):
            connection = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
            connection.sendall(says)
        yield


def threads_of(running: Running) -> int:
    tasks = Path(f"/proc/{running.process.pid}/task")
    if not tasks.exists():
        pytest.skip("only Linux tells how many threads a process has")
    return len(list(tasks.iterdir()))


@pytest.mark.parametrize(
    "says", [b"", b"GET /he", b"PUT /topics/a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{"]
)
def test_a_crowd_of_partial_requests_takes_no_threads_and_goes_unnoticed(many_files: None, says: bytes) -> None:
    with running() as server:
        with crowd(server.port, says):
            assert server.ask("GET", "/health")[0] == 200
            assert threads_of(server) < THREADS_OF_A_CROWD_MAX
        went_at = time.monotonic()
        assert server.ask("GET", "/health")[0] == 200
        assert time.monotonic() - went_at < PATIENCE_SECONDS


# -- a server of its own, whose requests are carried out when the test says so ----------------------------------------


class Handlers:
    """Carries out requests: `/held` ones wait until `doors` is open."""

    def __init__(self) -> None:
        self.carried_out: list[tuple[str, str]] = []
        self.doors = threading.Event()
        self.held = threading.Semaphore(0)
        self.begun, self.waits = threading.Semaphore(0), threading.Semaphore(CROWD)
        """Polls that have begun, and that may go on to wait: all, unless a test says how many."""
        self._ends = ExitStack()

    def serve(self) -> int:
        """Opens the handlers. The port."""
        server = Server(0, self.find)
        serving = threading.Thread(target=server.serve_forever, name="decant-server", daemon=True)
        serving.start()
        for end in (server.server_close, serving.join, server.shutdown):
            self._ends.callback(end)
        return server.port

    def close(self) -> None:
        self.doors.set()
        self._ends.close()

    def find(self, head: Head, _body: bytes | None) -> Task:
        return Task(pace(head), lambda is_over: self.carry_out(head, is_over))

    def carry_out(self, head: Head, is_over: HasHungUp) -> RawResponse:
        self.carried_out.append((head.target, threading.current_thread().name))
        if head.target == "/held/poll":
            self.begun.release()
            assert self.waits.acquire(timeout=20)
            is_over()
        if head.target.startswith("/held"):
            self.held.release()
            assert self.doors.wait(20)
        return RawResponse(200, {}, head.target.encode())


def pace(head: Head) -> Pace:
    if head.target.endswith("/at-once"):
        return Pace.AT_ONCE
    return Pace.LONG if head.target == "/held/poll" else Pace.SOON


@pytest.fixture
def handlers() -> Iterator[Handlers]:
    handlers = Handlers()
    yield handlers
    handlers.close()


def answer(connection: socket.socket) -> bytes:
    return connection.recv(65_536).partition(b"\r\n\r\n")[2]


def asked(port: int, target: bytes) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port), timeout=20)
    connection.sendall(GET % target)
    return connection


def test_polls_that_wait_keep_no_other_request_waiting(handlers: Handlers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asyncio_server, "POLLS_MAX", 2)
    port = handlers.serve()
    with ExitStack() as stack:
        polls = [stack.enter_context(closing(asked(port, b"/held/poll"))) for _ in range(5)]
        for _ in range(2):
            assert handlers.held.acquire(timeout=20)
        with asked(port, b"/other") as other:
            assert answer(other) == b"/other"
        assert not handlers.held.acquire(blocking=False)  # the others wait for a thread
        handlers.doors.set()
        assert [answer(poll) for poll in polls] == [b"/held/poll"] * 5


def test_of_many_polls_few_begin_before_the_others_wait(handlers: Handlers) -> None:
    port, few = handlers.serve(), workload.STARTS_AT_ONCE_MAX
    handlers.waits = threading.Semaphore(0)
    with ExitStack() as stack:
        polls = [stack.enter_context(closing(asked(port, b"/held/poll"))) for _ in range(2 * few)]
        for _ in range(few):
            assert handlers.begun.acquire(timeout=20)
        with asked(port, b"/other") as other:
            assert answer(other) == b"/other"
        assert not handlers.begun.acquire(blocking=False)
        polls.pop().close()  # a client that leaves before its turn takes no place
        for waiting in range(1, few):
            handlers.waits.release()
            assert handlers.begun.acquire(timeout=20), waiting
        handlers.waits.release(2 * few)
        handlers.doors.set()
        assert [answer(poll) for poll in polls] == [b"/held/poll"] * len(polls)


def test_a_request_that_waits_for_nothing_is_not_handed_over(handlers: Handlers) -> None:
    port = handlers.serve()
    for target, threads in ((b"/at-once", "decant-server"), (b"/other", "decant-request")):
        with asked(port, target) as connection:
            assert answer(connection) == target
        assert handlers.carried_out[-1][1].startswith(threads)


def test_requests_sent_ahead_let_other_connections_have_their_turn(handlers: Handlers) -> None:
    port = handlers.serve()
    with asked(port, b"/held/at-once") as ahead:
        assert handlers.held.acquire(timeout=20)
        ahead.sendall(GET % b"/at-once" * 100)
        with asked(port, b"/other/at-once") as other:
            handlers.doors.set()
            assert answer(other) == b"/other/at-once"
    assert ("/other/at-once", "decant-server") in handlers.carried_out[:20]


def test_a_body_that_does_not_come_holds_no_thread(handlers: Handlers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asyncio_server, "OTHERS_MAX", 1)
    port = handlers.serve()
    with asked(port, b"/slow HTTP/1.1\r\nContent-Length: 2\r\nX:") as slow, asked(port, b"/other") as other:
        assert answer(other) == b"/other"
        slow.sendall(b"{}")
        assert answer(slow) == b"/slow"


@pytest.mark.parametrize(
    ("limit", "says"),
    [
        ("IDLE_SECONDS", b""),
        ("HEAD_SECONDS", b"GET /health"),
        ("BODY_SECONDS", b"PUT / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{"),
    ],
)
def test_a_connection_that_stops_in_its_request_is_closed_in_time(
    handlers: Handlers, monkeypatch: pytest.MonkeyPatch, limit: str, says: bytes
) -> None:
    monkeypatch.setattr(connection_module, limit, 0.05)
    with socket.create_connection(("127.0.0.1", handlers.serve()), timeout=20) as connection:
        connection.sendall(says)
        assert connection.recv(1) == b""


def test_a_client_that_does_not_read_its_answers_is_given_up(
    handlers: Handlers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_module, "ANSWER_SECONDS", 0.05)
    request = GET % (b"/" + b"a" * 60_000)
    connection = socket.create_connection(("127.0.0.1", handlers.serve()), timeout=20)
    with connection, pytest.raises(ConnectionError):
        connection.sendall(request * 1_000)


def test_a_defect_costs_its_own_connection_only(handlers: Handlers, caplog: pytest.LogCaptureFixture) -> None:
    port = handlers.serve()
    handlers.held = None  # type: ignore[assignment]
    with asked(port, b"/held") as broken, asked(port, b"/other") as other:
        assert broken.recv(1) == b""
        assert answer(other) == b"/other"
    assert caplog.messages == ["a connection failed"]
