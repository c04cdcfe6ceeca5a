"""A server that may open few files: it closes connections that ask for nothing, and goes on."""

from __future__ import annotations

import resource
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from local.asyncio_server import Server
from local.http1 import Head, RawResponse
from local.workload import Pace, Task
from tests.local.serving import running
from tests.support.emulators import ROOT

FILES_MAX = 256
CROWD = 400
STDERR_CHARS_MAX = 1_000
LARGE = 20_000_000
"""Bytes of an answer that no socket takes at once."""
GET = b"GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n"


@contextmanager
def few_files() -> Iterator[None]:
    """For what is started here."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (FILES_MAX, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


@pytest.mark.parametrize(
    "says", [b"", b"GET /he", b"PUT /topics/a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{"]
)
def test_a_crowd_larger_than_the_files_that_may_be_open_goes_unnoticed(says: bytes) -> None:
    with ExitStack() as stack:
        with few_files():
            server = stack.enter_context(running())
        for _ in range(CROWD):
            connection = stack.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=20))
            connection.sendall(says)
        for _ in range(3):
            assert server.ask("GET", "/health")[0] == 200
        exit_code, errors = server.end(signal.SIGTERM)
        assert (exit_code, len(errors) <= STDERR_CHARS_MAX) == (0, True), errors[:STDERR_CHARS_MAX]


EXHAUSTED = """
import resource, socket, sys, threading
from local import asyncio_server
from local.workload import Pace, Task
from local.http1 import RawResponse

asyncio_server.DESCRIPTORS_KEPT = 0
server = asyncio_server.Server(0, lambda head, body: Task(Pace.SOON, lambda has_hung_up: RawResponse(200, {}, b"")))
threading.Thread(target=server.serve_forever, daemon=True).start()
with socket.create_connection(("127.0.0.1", server.port)) as connection:
    connection.sendall(b"GET / HTTP/1.0\\r\\n\\r\\n")
    connection.recv(1_000)
resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))
held = []
try:
    while True:
        held.append(open("/dev/null"))
except OSError:
    print(server.port, flush=True)
sys.stdin.readline()
held.clear()
sys.stdin.readline()
"""
"""A server that has no file left to accept a connection with, until a line arrives on stdin."""


def test_a_server_out_of_files_says_so_once_and_recovers() -> None:
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", EXHAUSTED]
    with ExitStack() as stack:
        process = subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
        stack.enter_context(process)
        stack.callback(process.kill)
        assert process.stdin
        assert process.stdout
        assert process.stderr
        port = int(process.stdout.readline())
        waiting = [stack.enter_context(asked(port, b"/")) for _ in range(20)]
        said = process.stderr.readline()
        process.stdin.write("\n")
        process.stdin.flush()
        assert [connection.recv(1_000)[:12] for connection in waiting] == [b"HTTP/1.1 200"] * 20
        _, further = process.communicate("\n", timeout=20)
    assert said == "decant: no connection can be accepted: Too many open files\n"
    assert further == ""


# -- who makes room ---------------------------------------------------------------------------------------------------


class Held:
    """Carries out requests to `/held` when the test says so."""

    def __init__(self) -> None:
        self.began, self.ends = threading.Semaphore(0), threading.Event()

    def find(self, head: Head, _body: bytes | None) -> Task:
        def run(_has_hung_up: object) -> RawResponse:
            if head.target == "/held":
                self.began.release()
                assert self.ends.wait(20)
            return RawResponse(200, {}, bytes(LARGE if head.target == "/large" else 0))

        return Task(Pace.SOON, run)


@pytest.fixture
def held() -> Iterator[Held]:
    held = Held()
    yield held
    held.ends.set()


@contextmanager
def serving(held: Held, connections_max: int) -> Iterator[int]:
    server = Server(0, held.find, connections_max=connections_max)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server.port
    finally:
        held.ends.set()
        server.shutdown()
        thread.join()
        server.server_close()


def asked(port: int, target: bytes) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port), timeout=20)
    connection.sendall(GET % target)
    return connection


def is_closed(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == b""
    except ConnectionError:
        return True


def test_the_connection_that_was_idle_longest_makes_room_for_a_new_one(held: Held) -> None:
    with serving(held, 2) as port, asked(port, b"/a") as first:
        assert first.recv(1_000)
        with asked(port, b"/b") as second:
            assert second.recv(1_000)
            first.sendall(GET % b"/again")
            assert first.recv(1_000)  # now the second is idle for longer
            with asked(port, b"/c") as third:
                assert third.recv(1_000)
                assert is_closed(second)
                first.sendall(GET % b"/once-more")
                assert first.recv(1_000)


def test_a_client_that_does_not_read_its_answer_makes_room_too(held: Held) -> None:
    with serving(held, 1) as port, asked(port, b"/large") as silent:
        assert silent.recv(1)
        with asked(port, b"/a") as other:
            assert other.recv(1_000).startswith(b"HTTP/1.1 200")


def test_a_request_under_way_makes_no_room_for_another(held: Held) -> None:
    with serving(held, 1) as port, asked(port, b"/held") as busy:
        assert held.began.acquire(timeout=20)
        refused = socket.create_connection(("127.0.0.1", port), timeout=20)
        with refused:
            assert is_closed(refused)
        held.ends.set()
        assert busy.recv(1_000).startswith(b"HTTP/1.1 200")
