"""Kept HTTP/1.1 connections to one endpoint whose responses are JSON of a stated length.

It sends a request in one system call and reads three headers of the response, with a sixth of the CPU of `http.client`.
Each request that is under way has a connection of its own.
"""

from __future__ import annotations

import select
import socket
import ssl
import threading
import weakref
from binascii import crc32
from collections import deque
from collections.abc import Callable
from typing import NamedTuple
from urllib.parse import urlsplit

from chalicelib.core.base.limits import CONNECT_TIMEOUT_MS, KIB, MIB, QUEUES_MAX, SECOND_MS
from chalicelib.core.store.dynamodb.requests import KeptConnectionClosed, NeverSent, NoAnswer, Trying

UNDER_WAY_MAX = 512
"""Requests that one process has under way, each with a connection. Together with kept connections, they leave a third
of the 1,024 files that a process can open on Lambda and most systems. Further requests are retried in a moment."""
KEPT_MAX = QUEUES_MAX
"""Connections that wait for a request. A call sends at most one request for each queue side by side, and some more."""
HEAD_BYTES_MAX = 64 * KIB
BODY_BYTES_MAX = 32 * MIB
"""An answer of DynamoDB has at most 16 MiB, and its bytes take a third more in base64."""
_RECEIVED_BYTES = 256 * KIB

_HTTPS_PORT, _HTTP_PORT = 443, 80
_REQUEST = b"POST / HTTP/1.1\r\n%bcontent-length:%d\r\n\r\n%b"


class WireAnswer(NamedTuple):
    status: int
    body: bytes


class Connections:
    """`uptime`: as in `Runtime`. `trust`: certificates of authorities, as a file; by default those of the system."""

    def __init__(self, url: str, uptime: Callable[[], int], trust: str | None = None) -> None:
        parts = urlsplit(url)
        is_safe = parts.scheme == "https"
        self.host = parts.netloc.rpartition("@")[2]
        self._address = (parts.hostname or "", parts.port or (_HTTPS_PORT if is_safe else _HTTP_PORT))
        self._tls = _trusting(trust) if is_safe else None
        self._session: ssl.SSLSession | None = None
        self._uptime = uptime
        self._idle: deque[socket.socket] = deque()
        self._places = threading.Semaphore(UNDER_WAY_MAX)
        weakref.finalize(self, _close_all, self._idle)

    def ask(self, headers: str, body: bytes, timeout_ms: int) -> Trying[WireAnswer]:
        """Sends `POST /` and reads the response, within this time except for resolving the host and trying its
        addresses. It reads a response that has arrived even after that time, since other requests of the call may have
        used it up. Raises NeverSent, NoAnswer. A caller that gives up early closes the connection."""
        if not self._places.acquire(blocking=False):
            raise NeverSent(f"{UNDER_WAY_MAX} requests to {self.host} are under way")
        try:
            return (yield from self._asked(headers, body, timeout_ms))
        finally:
            self._places.release()

    def _asked(self, headers: str, body: bytes, timeout_ms: int) -> Trying[WireAnswer]:
        until_ms = self._uptime() + timeout_ms
        kept = self._taken()
        connection = kept or self._opened(min(timeout_ms, CONNECT_TIMEOUT_MS))
        answer = _Incoming(connection, until_ms, self._uptime)
        try:
            connection.settimeout(max(1, until_ms - self._uptime()) / SECOND_MS)
            connection.sendall(_REQUEST % (headers.encode(), len(body), body))
            yield 0
            read = answer.read()
        except BaseException as error:
            connection.close()
            if not isinstance(error, OSError | ValueError):
                raise
            if kept and not answer.has_begun and isinstance(error, ConnectionError):
                _close_all(self._idle)  # the server has most likely closed these too
                raise KeptConnectionClosed(_reason(error)) from error
            raise NoAnswer(_reason(error)) from error
        self._keep(connection, answer.is_last)
        return read

    def _taken(self) -> socket.socket | None:
        """The most recently used connection that the server has not closed."""
        while True:
            try:
                connection = self._idle.pop()
            except IndexError:
                return None
            waiting = select.poll()
            waiting.register(connection, select.POLLIN)
            if not waiting.poll(0):
                return connection
            connection.close()

    def _opened(self, timeout_ms: int) -> socket.socket:
        connection = None
        try:
            connection = socket.create_connection(self._address, timeout_ms / SECOND_MS)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._tls is None:
                return connection
            return self._tls.wrap_socket(connection, server_hostname=self._address[0], session=self._session)
        except (OSError, ValueError) as error:
            if connection:
                connection.close()
            raise NeverSent(f"no connection to {self.host}: {_reason(error)}") from error

    def _keep(self, connection: socket.socket, is_last: bool) -> None:
        if is_last or len(self._idle) >= KEPT_MAX:
            connection.close()
            return
        if isinstance(connection, ssl.SSLSocket):
            self._session = connection.session
        self._idle.append(connection)


class _Incoming:
    """One answer as it arrives."""

    def __init__(self, connection: socket.socket, until_ms: int, uptime: Callable[[], int]) -> None:
        self._connection = connection
        self._until_ms = until_ms
        self._uptime = uptime
        self._data = bytearray()
        self.is_last = True
        """Whether the connection cannot take another request."""

    @property
    def has_begun(self) -> bool:
        return bool(self._data)

    def read(self) -> WireAnswer:
        """Raises OSError, and ValueError if this is no response of DynamoDB."""
        data = self._data
        while (end := data.find(b"\r\n\r\n")) < 0:
            if len(data) > HEAD_BYTES_MAX:
                raise ValueError("an answer without an end of its headers")
            self._receive()
        head = bytes(data[: end + 2]).lower()
        full = end + 4 + _length(head)
        while len(data) < full:
            self._receive()
        body = bytes(data[end + 4 : full])
        checksum = _header(head, b"x-amz-crc32")
        if checksum is not None and int(checksum) != crc32(body):
            raise ValueError(f"an answer whose checksum is {crc32(body)}, not {checksum.decode(errors='replace')}")
        self.is_last = _header(head, b"connection") == b"close" or len(data) > full
        return WireAnswer(_status(head), body)

    def _receive(self) -> None:
        self._connection.settimeout(max(0, self._until_ms - self._uptime()) / SECOND_MS)
        try:
            received = self._connection.recv(_RECEIVED_BYTES)
        except (BlockingIOError, ssl.SSLWantReadError):
            raise TimeoutError("timed out") from None
        if not received:
            raise ConnectionError("the server closed the connection")
        self._data += received


def _trusting(trust: str | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=trust)
    except OSError as error:
        raise ValueError(f"the certificates that AWS_CA_BUNDLE names cannot be read: {trust!r}: {error}") from error


def _status(head: bytes) -> int:
    if not head.startswith(b"http/1."):
        raise ValueError("an answer that is not HTTP/1.1")
    return int(head[9:12])


def _length(head: bytes) -> int:
    length = _header(head, b"content-length")
    if length is None or not length.isdigit():
        raise ValueError("an answer without a length")
    if int(length) > BODY_BYTES_MAX:
        raise ValueError(f"an answer of {int(length)} bytes; DynamoDB's have at most {BODY_BYTES_MAX}")
    return int(length)


def _header(head: bytes, name: bytes) -> bytes | None:
    at = head.find(b"\r\n%b:" % name)
    return None if at < 0 else head[at + len(name) + 3 : head.index(b"\r\n", at + 2)].strip()


def _reason(error: Exception) -> str:
    return str(error) or type(error).__name__


def _close_all(connections: deque[socket.socket]) -> None:
    while connections:
        connections.pop().close()
