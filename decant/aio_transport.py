"""Carries requests over kept connections of asyncio."""

from __future__ import annotations

import asyncio
import time
from typing import Protocol, cast

from decant import http1, tls
from decant.address import Address
from decant.calls import HttpRequest, HttpResponse, NoAnswer, NotSent
from decant.errors import NotDecant
from decant.transport import CONNECT_S, IDLE_S, KEPT_MAX, HttpTransport, Transport, context_for, is_readable, reason


class AsyncTransport(Protocol):
    """Carries requests to the service. Its methods raise as those of `Transport` do."""

    @property
    def address(self) -> str:
        """Where the requests go, for error texts."""

    async def send(self, request: HttpRequest, timeout_s: float) -> HttpResponse:
        """Sends the request once."""

    async def close(self) -> None:
        """Closes what is kept open."""


class InThreads:
    """A transport that blocks, such as the one that invokes functions, with each request in a thread."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    @property
    def address(self) -> str:
        return self._transport.address

    def blocking(self) -> Transport:
        """The same for threads."""
        return self._transport

    async def send(self, request: HttpRequest, timeout_s: float) -> HttpResponse:
        return await asyncio.to_thread(self._transport.send, request, timeout_s)

    async def close(self) -> None:
        self._transport.close()


class AsyncHttpTransport:
    """HTTP/1.1 over a pool of kept connections."""

    def __init__(self, address: Address, context: tls.Context | None = None) -> None:
        self._address = address
        self._context = context or context_for(address)
        self._idle: list[_Connection] = []
        self._is_closed = False

    @property
    def address(self) -> str:
        return self._address.url

    def blocking(self) -> Transport:
        """The same for threads."""
        return HttpTransport(self._address, self._context)

    async def send(self, request: HttpRequest, timeout_s: float) -> HttpResponse:
        deadline = time.monotonic() + timeout_s
        data = http1.encoded(request, self._address.authority, self._address.prefix)
        connection = self._kept() or await self._connected(min(timeout_s, CONNECT_S))
        is_kept = False
        try:
            async with asyncio.timeout(deadline - time.monotonic()):
                response, is_kept = await connection.exchange(data)
        except TimeoutError:
            raise NoAnswer("no answer in time") from None
        except http1.Incomplete as error:
            raise NoAnswer(str(error)) from None
        except OSError as error:
            raise NoAnswer(f"the connection broke: {reason(error)}") from error
        finally:
            if is_kept and not self._is_closed and len(self._idle) < KEPT_MAX:
                self._idle.append(connection)
            else:
                connection.close()
        return response

    async def close(self) -> None:
        self._is_closed = True
        while self._idle:
            self._idle.pop().close()

    def _kept(self) -> _Connection | None:
        """A connection of this loop that the other side has not closed, as far as this side knows."""
        loop = asyncio.get_running_loop()
        while self._idle:
            connection = self._idle.pop()
            if connection.loop is loop and connection.is_idle() and time.monotonic() - connection.since < IDLE_S:
                return connection
            connection.close()
        return None

    async def _connected(self, timeout_s: float) -> _Connection:
        host, port, loop = self._address.host, self._address.port, asyncio.get_running_loop()
        try:
            async with asyncio.timeout(timeout_s):
                _, connection = await loop.create_connection(lambda: _Connection(loop), host, port, ssl=self._context)
        except TimeoutError as error:
            raise NotSent(f"cannot connect to {host}:{port}: timed out") from error
        except (OSError, ValueError) as error:
            if isinstance(error, tls.Error):
                raise tls.refusal(error, host) from error
            raise NotSent(f"cannot connect to {host}:{port}: {reason(error)}") from error
        return connection


class _Connection(asyncio.Protocol):
    """Carries one request at a time."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.is_open = True
        self.since = time.monotonic()
        """When it was last used."""
        self._reader = http1.Reader()
        self._answer: asyncio.Future[HttpResponse] | None = None

    async def exchange(self, data: bytes) -> tuple[HttpResponse, bool]:
        """The response, and whether the connection can be kept."""
        self._reader = http1.Reader()
        self._answer = self.loop.create_future()
        if not self.is_open:
            raise NotSent("the connection was closed")
        self._transport.write(data)
        try:
            response = await self._answer
        finally:
            self._answer = None
        self.since = time.monotonic()
        return response, self.is_open and self._reader.is_kept

    def is_idle(self) -> bool:
        """Whether it is open, also if the loop has not looked for a while."""
        return self.is_open and not is_readable(self._transport.get_extra_info("socket"))

    def close(self) -> None:
        self.is_open = False
        if not self.loop.is_closed():
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if self._answer is None or self._answer.done():  # nobody has asked
            self.is_open = False
            return
        self._feed(data)

    def eof_received(self) -> bool:
        self.is_open = False
        self._feed(b"")
        return False

    def connection_lost(self, error: Exception | None) -> None:
        self.is_open = False
        if self._answer and not self._answer.done():
            self._answer.set_exception(error or http1.Incomplete("the connection ended before the answer did"))

    def _feed(self, data: bytes) -> None:
        if self._answer is None or self._answer.done():
            return
        try:
            response = self._reader.feed(data)
        except (NotDecant, http1.Incomplete) as error:
            self._answer.set_exception(error)
        else:
            if response is not None:
                self._answer.set_result(response)
