"""Listens on loopback and speaks HTTP/1.1: reads each whole request, executes it, writes the response.

The event loop's thread waits for all connections. A thread of a pool is used only while a request is executed, so
clients that send nothing or half a request cost a socket and delay no one. With a thread for each connection, 3000
connections that closed at once delayed the others by ten seconds, since all their threads woke together.
"""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import sys
import threading
import time
import traceback
from asyncio import StreamReader, StreamWriter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from chalicelib.base.errors import DecantError
from chalicelib.base.limits import REQUEST_BYTES_MAX
from local.body import read_body
from local.request import HEAD_BYTES_MAX, Answer, Head, read_head, refusal, rendered, understood

HOST = "127.0.0.1"

BACKLOG = 1_024
"""Connections that may wait to be accepted: the clients of a load test all arrive at once."""

IDLE_SECONDS = 120
"""How long a kept connection may be idle."""

HEAD_SECONDS = 10
"""How long the head of a request may take from its first byte: clients send it in one piece."""

BODY_SECONDS = 60
"""How long the body may take. On loopback the largest takes a fraction of a second; a tunnel may be slower."""

ANSWER_SECONDS = 60
"""How long a client may take to read a response."""

LINGER_SECONDS = 2
"""How long a client that is still sending may take to read its rejection."""

POLLS_MAX = 1_000
"""Long polls waiting at once, each in a thread of some 50 KB. Further ones wait for one of these to end: 20 s."""

OTHERS_MAX = 1_000
"""Other requests executed at once. They have threads of their own: a produce must not wait for the polls that wait for
its message."""

_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_DISCARDED_BYTES = 64 * 1024

HasHungUp = Callable[[], bool]
CarryOut = Callable[[Head, bytes | None, HasHungUp], Answer]


class Server:
    """`carry_out` runs in a thread of its own for each request. `is_poll` selects requests that may wait long."""

    def __init__(
        self,
        port: int,
        carry_out: CarryOut,
        *,
        is_poll: Callable[[Head], bool] = lambda _: False,
        body_bytes_max: int = REQUEST_BYTES_MAX,
        is_logging: bool = False,
    ) -> None:
        """Binds the port; `serve_forever` serves requests. Raises `OSError`."""
        self._listening = socket.create_server((HOST, port), backlog=BACKLOG)
        self.port: int = self._listening.getsockname()[1]
        self._carry_out = carry_out
        self._is_poll = is_poll
        self._body_bytes_max = body_bytes_max
        self._is_logging = is_logging
        self._polls = ThreadPoolExecutor(POLLS_MAX, "decant-poll")
        self._others = ThreadPoolExecutor(OTHERS_MAX, "decant-request")
        self._talks: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._ending = asyncio.Event()
        self._serving = threading.Lock()

    def serve_forever(self) -> None:
        """Answers until `shutdown`, or until it is interrupted."""
        with self._serving, asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    def end_at(self, *signals: signal.Signals) -> None:
        """Ends `serve_forever` on these signals. Call it from the main thread. A handler unknown to the loop would run
        only at the next request if the signal came just before the loop went to sleep."""
        for ending in signals:
            self._loop.add_signal_handler(ending, self._ending.set)

    def shutdown(self) -> None:
        """Ends `serve_forever` and all connections. Call it from another thread."""
        self._loop.call_soon_threadsafe(self._ending.set)

    def server_close(self) -> None:
        """Releases the port, and the threads once they have finished their requests. Call it after `shutdown`: it waits
        until `serve_forever` has ended, which still needs the socket."""
        with self._serving:
            self._listening.close()
        for pool in (self._polls, self._others):
            pool.shutdown(wait=False)

    async def _serve(self) -> None:
        accepting = await asyncio.start_server(self._begin, sock=self._listening, backlog=BACKLOG, limit=HEAD_BYTES_MAX)
        try:
            await self._ending.wait()
        finally:
            accepting.close()

    def _begin(self, reader: StreamReader, writer: StreamWriter) -> None:
        talk = asyncio.ensure_future(self._talk(reader, writer))
        self._talks.add(talk)  # the loop itself keeps no reference to it
        talk.add_done_callback(self._talks.discard)

    async def _talk(self, reader: StreamReader, writer: StreamWriter) -> None:
        """Serves the requests of a connection one after the other, and closes it."""
        writer.transport.set_write_buffer_limits(0)  # `drain` waits until the client has read everything
        try:
            while await self._exchange(reader, writer):
                pass
        except (OSError, EOFError):
            pass  # the client has disconnected or is too slow
        except Exception:  # noqa: BLE001 - a defect ends this connection and no other
            sys.stderr.write(f"decant: a connection failed\n{traceback.format_exc()}")
        finally:
            writer.transport.abort()

    async def _exchange(self, reader: StreamReader, writer: StreamWriter) -> bool:
        """Answers one request. Returns whether another may follow."""
        try:
            head, body = await self._read(reader, writer)
        except DecantError as error:
            await self._refuse(reader, writer, error)
            return False

        def has_hung_up() -> bool:
            return reader.at_eof() or writer.is_closing()

        pool = self._polls if self._is_poll(head) else self._others
        answer = await asyncio.get_running_loop().run_in_executor(pool, self._carry_out, head, body, has_hung_up)
        self._log(head.line, answer)
        await _send(writer, rendered(answer, is_last=not head.keeps, has_body=head.method != "HEAD"))
        return head.keeps

    async def _read(self, reader: StreamReader, writer: StreamWriter) -> tuple[Head, bytes | None]:
        async with asyncio.timeout(IDLE_SECONDS):
            begun = await reader.readexactly(1)
        async with asyncio.timeout(HEAD_SECONDS):
            head = understood(await read_head(reader, begun))

        async def go_on() -> None:
            if head.waits_to_send:
                await _send(writer, _CONTINUE)

        async with asyncio.timeout(BODY_SECONDS):
            return head, await read_body(head.headers, reader, self._body_bytes_max, go_on)

    async def _refuse(self, reader: StreamReader, writer: StreamWriter, error: DecantError) -> None:
        """Answers before the request was read to its end; the connection cannot be used again."""
        answer = refusal(error)
        self._log("", answer)
        await _send(writer, rendered(answer, is_last=True))
        await _discard(reader, writer)

    def _log(self, line: str, answer: Answer) -> None:
        if self._is_logging:
            at = time.strftime("%d/%b/%Y %H:%M:%S")
            sys.stderr.write(f"{HOST} - - [{at}] {json.dumps(line)} {answer.status} {len(answer.body)}\n")


async def _send(writer: StreamWriter, data: bytes) -> None:
    writer.write(data)
    async with asyncio.timeout(ANSWER_SECONDS):
        await writer.drain()


async def _discard(reader: StreamReader, writer: StreamWriter) -> None:
    """Keeps reading for a moment: closing at once would reset the connection and lose the response."""
    with suppress(OSError):
        writer.write_eof()
        async with asyncio.timeout(LINGER_SECONDS):
            while await reader.read(_DISCARDED_BYTES):
                pass
