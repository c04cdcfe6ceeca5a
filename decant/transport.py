"""Carries requests over kept connections, from any number of threads."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import time
from typing import TYPE_CHECKING, Protocol

from decant import http1
from decant.address import Address
from decant.calls import HttpRequest, HttpResponse, NoAnswer, NotSent

if TYPE_CHECKING:
    from decant import tls

CONNECT_S = 5.0
"""How long a connection may take to be made, within the time of the call."""
IDLE_S = 20.0
"""How long an unused connection is kept."""
KEPT_MAX = 64
RECEIVE_BYTES = 262_144


class Transport(Protocol):
    """Carries requests to the service. Write one for another HTTP library, or for tests."""

    @property
    def address(self) -> str:
        """Where the requests go, for error texts."""

    def send(self, request: HttpRequest, timeout_s: float) -> HttpResponse:
        """Sends the request once. Raises NotSent if certainly nothing of it was carried out, NoAnswer if no whole
        answer came in time, NotDecant if something else answers."""

    def close(self) -> None:
        """Closes what is kept open."""


class HttpTransport:
    """HTTP/1.1 over a pool of kept connections."""

    def __init__(self, address: Address, context: tls.Context | None = None) -> None:
        self._address = address
        self._context = context or context_for(address)
        self._idle: list[tuple[socket.socket, float]] = []
        self._process = os.getpid()
        self._is_closed = False

    @property
    def address(self) -> str:
        return self._address.url

    def send(self, request: HttpRequest, timeout_s: float) -> HttpResponse:
        deadline = time.monotonic() + timeout_s
        data = http1.encoded(request, self._address.authority, self._address.prefix)
        connection = self._kept() or self._connected(min(timeout_s, CONNECT_S))
        reader = http1.Reader()
        is_kept = False
        try:
            response = _exchanged(connection, data, reader, deadline)
            is_kept = reader.is_kept and not self._is_closed and len(self._idle) < KEPT_MAX
        finally:
            if is_kept:
                self._idle.append((connection, time.monotonic()))
            else:
                connection.close()
        return response

    def close(self) -> None:
        self._is_closed = True
        while connection := self._popped():
            connection[0].close()

    def _kept(self) -> socket.socket | None:
        """A connection that the other side has not closed, as far as this side knows."""
        if self._process != os.getpid():  # a fork: the connections belong to the parent
            self._idle, self._process = [], os.getpid()
        while kept := self._popped():
            connection, since = kept
            if time.monotonic() - since < IDLE_S and not is_readable(connection):
                return connection
            connection.close()
        return None

    def _popped(self) -> tuple[socket.socket, float] | None:
        try:
            return self._idle.pop()
        except IndexError:
            return None

    def _connected(self, timeout_s: float) -> socket.socket:
        host, port = self._address.host, self._address.port
        try:
            connection = socket.create_connection((host, port), timeout_s)
        except (OSError, UnicodeError) as error:
            raise NotSent(f"cannot connect to {host}:{port}: {reason(error)}") from error
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._context is None:
            return connection
        from decant import tls

        return tls.wrapped(self._context, connection, host)


def context_for(address: Address) -> tls.Context | None:
    """None for plain HTTP."""
    if not address.is_tls:
        return None
    from decant import tls

    return tls.context()


def is_readable(connection: socket.socket) -> bool:
    """Whether an idle connection has something to read, which only its end can be."""
    if not hasattr(select, "poll"):
        return bool(select.select([connection], [], [], 0)[0])
    poll = select.poll()
    poll.register(connection, select.POLLIN)
    return bool(poll.poll(0))


def _exchanged(connection: socket.socket, data: bytes, reader: http1.Reader, deadline: float) -> HttpResponse:
    try:
        _limit(connection, deadline)
        with contextlib.suppress(ConnectionError):  # a server that refuses a request may answer before its end
            connection.sendall(data)
        while True:
            _limit(connection, deadline)
            if response := reader.feed(connection.recv(RECEIVE_BYTES)):
                return response
    except TimeoutError:
        raise NoAnswer("no answer in time") from None
    except http1.Incomplete as error:
        raise NoAnswer(str(error)) from None
    except OSError as error:
        raise NoAnswer(f"the connection broke: {reason(error)}") from error


def _limit(connection: socket.socket, deadline: float) -> None:
    left_s = deadline - time.monotonic()
    if left_s <= 0:
        raise TimeoutError
    connection.settimeout(left_s)


def reason(error: Exception) -> str:
    """In a few words."""
    if isinstance(error, TimeoutError):
        return "timed out"
    if isinstance(error, ConnectionError) and error.errno:
        return os.strerror(error.errno)  # asyncio has words of its own
    return str(getattr(error, "strerror", None) or error or type(error).__name__)
