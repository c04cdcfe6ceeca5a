"""Sends requests over kept connections, from any number of threads."""

from __future__ import annotations

import os
import select
import socket
import ssl
import time
from typing import Protocol

from decant import http1
from decant.address import Address
from decant.calls import HttpRequest, HttpResponse, NoAnswer, NotSent
from decant.errors import NotDecant

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
        """Sends the request once. Raises NotSent if certainly nothing of it was sent, NoAnswer if no whole answer came
        in time, NotDecant if something else answers."""

    def close(self) -> None:
        """Closes what is kept open."""


class HttpTransport:
    """HTTP/1.1 over a pool of kept connections."""

    def __init__(self, address: Address, tls: ssl.SSLContext | None = None) -> None:
        self._address = address
        self._tls = tls or (ssl.create_default_context() if address.is_tls else None)
        self._idle: list[tuple[socket.socket, float]] = []
        self._process = os.getpid()

    @property
    def address(self) -> str:
        return self._address.url

    def send(self, request: HttpRequest, timeout_s: float) -> HttpResponse:
        deadline = time.monotonic() + timeout_s
        data = http1.encoded(request, self._address.authority, self._address.prefix)
        connection = self._kept() or self._connected(min(timeout_s, CONNECT_S))
        reader = http1.Reader()
        response = None
        try:
            response = _exchanged(connection, data, reader, deadline)
        finally:
            if response is not None and reader.is_kept and len(self._idle) < KEPT_MAX:
                self._idle.append((connection, time.monotonic()))
            else:
                connection.close()
        return response

    def close(self) -> None:
        while self._idle:
            self._idle.pop()[0].close()

    def _kept(self) -> socket.socket | None:
        """A connection that is open, as far as can be known."""
        if self._process != os.getpid():  # a fork: the connections belong to the parent
            self._idle, self._process = [], os.getpid()
        while self._idle:
            try:
                connection, since = self._idle.pop()
            except IndexError:  # another thread took the last one
                return None
            if time.monotonic() - since < IDLE_S and not _is_readable(connection):
                return connection
            connection.close()
        return None

    def _connected(self, timeout_s: float) -> socket.socket:
        host, port = self._address.host, self._address.port
        try:
            connection = socket.create_connection((host, port), timeout_s)
        except OSError as error:
            raise NotSent(f"cannot connect to {host}:{port}: {reason(error)}") from error
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._tls is None:
            return connection
        try:
            return self._tls.wrap_socket(connection, server_hostname=host)
        except ssl.SSLError as error:
            connection.close()
            raise NotDecant(f"{self.address} has no TLS that can be trusted: {tls_reason(error)}") from error
        except OSError as error:
            connection.close()
            raise NotSent(f"{host}:{port} ended the TLS handshake: {reason(error)}") from error


def _is_readable(connection: socket.socket) -> bool:
    """An idle connection has something to read only at its end."""
    poll = select.poll()
    poll.register(connection, select.POLLIN)
    return bool(poll.poll(0))


def _exchanged(connection: socket.socket, data: bytes, reader: http1.Reader, deadline: float) -> HttpResponse:
    try:
        _limit(connection, deadline)
        connection.sendall(data)
        while True:
            _limit(connection, deadline)
            response = reader.feed(connection.recv(RECEIVE_BYTES))
            if response is not None:
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


def reason(error: OSError) -> str:
    """In a few words."""
    return "timed out" if isinstance(error, TimeoutError) else str(error.strerror or error or type(error).__name__)


def tls_reason(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return error.verify_message
    is_plain = error.reason in ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE")
    return "it speaks no TLS: the address must begin with http://" if is_plain else str(error.reason or error)
