"""Small servers of raw sockets that answer as a test says: well, badly, late or not at all."""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple


class Received(NamedTuple):
    """A request as it arrived. `connection`: the number of its connection."""

    connection: int
    method: str
    target: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


Turn = Callable[[socket.socket, Received], None]
"""Answers one request, or does not. Raises `Ended` to close the connection."""


class Ended(Exception):
    """The connection is closed."""


def answer(status: int, value: Any = None, **headers: str) -> Turn:
    """A whole answer as JSON."""
    body = b"" if value is None else json.dumps(value).encode()
    return raw(head(status, {"content-type": "application/json", "content-length": str(len(body)), **headers}) + body)


def problem(status: int, code: str, detail: str = "it is so", **members: Any) -> Turn:
    return answer(status, {"status": status, "code": code, "detail": detail, **members})


def head(status: int, headers: dict[str, str]) -> bytes:
    lines = [f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items()]
    return f"HTTP/1.1 {status} So\r\n{''.join(lines)}\r\n".encode()


def raw(data: bytes, *, then_close: bool = False) -> Turn:
    """These bytes."""

    def turn(connection: socket.socket, _request: Received) -> None:
        connection.sendall(data)
        if then_close:
            raise Ended

    return turn


def closes(_connection: socket.socket, _request: Received) -> None:
    """Reads the request, and closes without an answer."""
    raise Ended


def resets(connection: socket.socket, _request: Received) -> None:
    """Reads the request, and resets the connection."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    raise Ended


@dataclass
class Server:
    """Does one turn after another, the last one again and again."""

    port: int
    turns: list[Turn]
    requests: list[Received] = field(default_factory=list)
    over: threading.Event = field(default_factory=threading.Event)
    connections: list[socket.socket] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def hangs(self, _connection: socket.socket, _request: Received) -> None:
        """Answers nothing, until the test ends."""
        self.over.wait(30)
        raise Ended

    def drips(self, connection: socket.socket, _request: Received) -> None:
        """Answers a byte at a time, without an end."""
        connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n")
        while not self.over.wait(0.02):
            connection.sendall(b" ")
        raise Ended

    def serve(self, connection: socket.socket, number: int) -> None:
        with connection, contextlib.suppress(OSError, Ended):
            file = connection.makefile("rb")
            while request := _received(connection, file, number):
                self.requests.append(request)
                turn = self.turns.pop(0) if len(self.turns) > 1 else self.turns[0]
                turn(connection, request)


def _received(connection: socket.socket, file: Any, number: int) -> Received | None:
    line = file.readline()
    if not line:
        return None
    if not line.endswith(b" HTTP/1.1\r\n"):
        connection.sendall(b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\n\r\n")
        return None
    method, target, _ = line.decode().split(" ", 2)
    headers = {}
    while (field_ := file.readline().decode().rstrip()) != "":
        name, _, value = field_.partition(": ")
        headers[name.lower()] = value
    return Received(number, method, target, headers, file.read(int(headers.get("content-length", 0))))


@contextlib.contextmanager
def serving(*turns: Turn | str) -> Iterator[Server]:
    """A server on a free port. A turn may be the name of one of `Server`'s own."""
    listener = socket.create_server(("127.0.0.1", 0))
    server = Server(listener.getsockname()[1], [])
    server.turns = [getattr(server, turn) if isinstance(turn, str) else turn for turn in turns]

    def accept() -> None:
        with contextlib.suppress(OSError):
            for number in range(1_000):
                connection, _ = listener.accept()
                server.connections.append(connection)
                threading.Thread(target=server.serve, args=(connection, number), daemon=True).start()

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.over.set()
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(5)
        for connection in server.connections:
            with contextlib.suppress(OSError):
                connection.close()


def free_port() -> int:
    """A port where nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])
