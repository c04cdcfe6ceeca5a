"""Listens on loopback for HTTP/1.1.

The event loop's thread waits for all connections, reads their requests and executes those that wait for nothing. A
thread of a pool is used only while another request is executed, so clients that send nothing or half a request cost a
socket and delay no one. With a thread for each connection, 3000 connections that closed at once delayed the others by
ten seconds, since all their threads woke together.
"""

from __future__ import annotations

import asyncio
import signal
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from chalicelib.base.limits import REQUEST_BYTES_MAX
from local.connection import HOST, Connection, Find, Office, Pace

BACKLOG = 1_024
"""Connections that may wait to be accepted: the clients of a load test all arrive at once."""

POLLS_MAX = 1_000
"""Requests that wait for messages at once, each in a thread of some 50 KB. Further ones wait for one of these to end:
20 s."""

OTHERS_MAX = 1_000
"""Other requests executed at once. They have threads of their own: a produce must not wait for the polls that wait for
its message."""


class Server:
    """`find`: what a request asks for."""

    def __init__(
        self,
        port: int,
        find: Find,
        *,
        body_bytes_max: int = REQUEST_BYTES_MAX,
        is_logging: bool = False,
    ) -> None:
        """Binds the port; `serve_forever` serves requests. Raises `OSError`."""
        self._listening = socket.create_server((HOST, port), backlog=BACKLOG)
        self.port: int = self._listening.getsockname()[1]
        self._pools = {
            Pace.LONG: ThreadPoolExecutor(POLLS_MAX, "decant-poll"),
            Pace.SOON: ThreadPoolExecutor(OTHERS_MAX, "decant-request"),
        }
        self._office = Office(find, self._pools, body_bytes_max, is_logging, set())
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
        for pool in self._pools.values():
            pool.shutdown(wait=False)

    async def _serve(self) -> None:
        make = partial(Connection, self._loop, self._office)
        accepting = await self._loop.create_server(make, sock=self._listening, backlog=BACKLOG)
        try:
            await self._ending.wait()
        finally:
            accepting.close()
            for connection in self._office.connections:
                connection.end()
