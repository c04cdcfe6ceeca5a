"""JSON over HTTP by the lightest of clients, so that the servers decide."""

from __future__ import annotations

import re
import socket
from typing import Any

import orjson

_HOST = "127.0.0.1"
_TIMEOUT_SECONDS = 30
_RECEIVED_BYTES = 256 * 1024

_STATUS = re.compile(rb"HTTP/1\.[01] ([0-9]{3})")
_LENGTH = re.compile(rb"\ncontent-length: *([0-9]+)", re.IGNORECASE)
_CLOSES = re.compile(rb"\nconnection: *close", re.IGNORECASE)


class Connection:
    """`is_kept`: one connection for all requests, as long as the server leaves it open."""

    def __init__(self, port: int, is_kept: bool, **headers: str) -> None:
        self._port = port
        self._socket: socket.socket | None = None
        self._headers = {"host": f"{_HOST}:{port}", "content-type": "application/json", **headers}
        if not is_kept:
            self._headers["connection"] = "close"

    def close(self) -> None:
        if self._socket:
            self._socket.close()
            self._socket = None

    def ask(self, method: str, path: str, body: object, headers: dict[str, str] | None = None) -> Any:
        content = orjson.dumps(body)
        fields = {**self._headers, **(headers or {}), "content-length": len(content)}
        lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items()), "", ""]
        status, answer = self._exchanged("\r\n".join(lines).encode() + content)
        if status >= 300:
            raise RuntimeError(f"{method} {path}: {status} {answer[:500]!r}")
        return orjson.loads(answer) if answer else None

    def _exchanged(self, request: bytes) -> tuple[int, bytes]:
        """Status and body of the answer, which must state its length unless it has none."""
        connected = self._socket = self._socket or _connected(self._port)
        connected.sendall(request)
        received = b""
        while (end := received.find(b"\r\n\r\n")) < 0:
            received += _received(connected)
        head, body = received[:end], received[end + 4 :]
        status, length = _STATUS.match(head), _LENGTH.search(head)
        assert status, head
        while length and len(body) < int(length[1]):
            body += _received(connected)
        if _CLOSES.search(head):
            self.close()
        return int(status[1]), body


def _connected(port: int) -> socket.socket:
    connected = socket.create_connection((_HOST, port), _TIMEOUT_SECONDS)
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connected


def _received(connected: socket.socket) -> bytes:
    received = connected.recv(_RECEIVED_BYTES)
    if not received:
        raise ConnectionError("the server closed the connection within its answer")
    return received
