"""A connected socket for `http.client` on which no step outlives a deadline."""

from __future__ import annotations

import io
from collections.abc import Callable
from socket import socket
from typing import Any

from chalicelib.push.outside import ANSWER_BYTES_MAX

WIRE_BYTES_MAX = 8 * ANSWER_BYTES_MAX
"""How many bytes of a response are received. In chunks of one byte, a response is six times as long as its content."""


LeftS = Callable[[], float]
"""Returns the seconds left of a call, before each step that waits. Raises TimeoutError if none are."""


class Wire(io.RawIOBase):
    """Its creator closes the socket."""

    def __init__(self, connected: socket, left_s: LeftS) -> None:
        self._socket, self._left_s, self._received = connected, left_s, 0

    def sendall(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            self._socket.settimeout(self._left_s())
            rest = rest[self._socket.send(rest) :]

    def makefile(self, _mode: str) -> io.BufferedReader:
        return io.BufferedReader(self)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if self._received > WIRE_BYTES_MAX:
            raise OSError(f"the answer has more than {WIRE_BYTES_MAX} bytes")
        self._socket.settimeout(self._left_s())
        count = self._socket.recv_into(buffer)
        self._received += count
        return count

    def close(self) -> None: ...
