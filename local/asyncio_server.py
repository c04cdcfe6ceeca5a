"""Listens for HTTP/1.1, on loopback unless told otherwise.

The event loop's thread waits for all connections, reads their requests and executes those that wait for nothing. A
thread of a pool is used only while another request is executed, so clients that send nothing or half a request cost a
socket and delay no one. With a thread for each connection, 3000 connections that closed at once delayed the others by
ten seconds, since all their threads woke together.
"""

from __future__ import annotations

import asyncio
import resource
import signal
import socket
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from errno import EMFILE, ENFILE, ENOBUFS, ENOMEM
from functools import partial
from typing import Any

from chalicelib.core.base.limits import REQUEST_BYTES_MAX
from local.connection import HOST, Connection
from local.workload import Find, Judge, Pace, StartLimit, Workload

CONNECTIONS_MAX = 10_000
"""Each may hold a head and data sent ahead, some 200 KB in all."""

DESCRIPTORS_KEPT = 128
"""File descriptors that connections to this server leave free: for files of the store, connections to DynamoDB,
webhooks, the other server of the process, and connections accepted while others are being closed."""

ACCEPTED_AT_ONCE = 8
"""New connections accepted in one turn of the loop; those that make room for them are closed after it."""

COMPLAINT_SECONDS = 60
"""How often the server says that it cannot accept connections."""

_EXHAUSTED = (EMFILE, ENFILE, ENOBUFS, ENOMEM)

BACKLOG = 1_024
"""Connections that may wait to be accepted: the clients of a load test all arrive at once."""

POLLS_MAX = 1_000
"""Requests that may wait for messages at the same time, each in a thread of some 50 KB. Further ones wait up to 20 s
for one of these to end."""

GRACE_SECONDS = 5
"""How long requests under way may take to finish once the server is to end. Waits end within 1.5 s of it; container
runtimes kill after 10 s."""

OTHERS_MAX = 1_000
"""Other requests executed at the same time. They have threads of their own: a produce must not wait for polls that wait
for its message."""


class Server:
    """`find`: returns the work of a request. `judge`: rejects a request by its head alone."""

    def __init__(
        self,
        port: int,
        find: Find,
        *,
        host: str = HOST,
        judge: Judge = lambda _head: None,
        body_bytes_max: int = REQUEST_BYTES_MAX,
        connections_max: int = CONNECTIONS_MAX,
        is_logging: bool = False,
    ) -> None:
        """Binds the port; `serve_forever` serves requests. Raises `OSError`."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        both = host == "::" and socket.has_dualstack_ipv6()
        self._listening = socket.create_server((host, port), family=family, backlog=BACKLOG, dualstack_ipv6=both)
        self.port: int = self._listening.getsockname()[1]
        self._pools = {
            Pace.LONG: ThreadPoolExecutor(POLLS_MAX, "decant-poll"),
            Pace.SOON: ThreadPoolExecutor(OTHERS_MAX, "decant-request"),
        }
        connections_max = min(connections_max, _descriptors_left())
        self._finishing, self._ending = asyncio.Event(), asyncio.Event()
        self._silent_until = 0.0
        self._loop = asyncio.new_event_loop()
        self._workload = Workload(
            find,
            judge,
            self._pools,
            body_bytes_max,
            connections_max,
            is_logging,
            when_empty=self._ending.set,
            starts=StartLimit(self._loop.call_soon),
        )
        self._serving = threading.Lock()

    def serve_forever(self) -> None:
        """Serves until `finish`, `shutdown`, or an interrupt."""
        with self._serving, asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    def end_at(self, *signals: signal.Signals) -> None:
        """Ends `serve_forever` on these signals, as `finish` does; a second one ends it at once. Call it from the main
        thread. A handler unknown to the loop would run only at the next request if the signal came just before the loop
        went to sleep."""
        for ending in signals:
            self._loop.add_signal_handler(ending, self._on_signal)

    def finish(self) -> None:
        """Accepts no more connections, answers waiting requests with the messages there are, and ends `serve_forever`
        when all requests under way are answered, or after `GRACE_SECONDS`. Call it from another thread."""
        self._loop.call_soon_threadsafe(self._finishing.set)

    def shutdown(self) -> None:
        """Ends `serve_forever` and all connections, answered or not. Call it from another thread."""
        self._loop.call_soon_threadsafe(self._end_at_once)

    def server_close(self) -> None:
        """Releases the port, and the threads once they have finished their requests. Call it after `shutdown`: it waits
        until `serve_forever` has ended, which still needs the socket."""
        with self._serving:
            self._listening.close()
        for pool in self._pools.values():
            pool.shutdown(wait=False)

    async def _serve(self) -> None:
        make = partial(Connection, self._loop, self._workload)
        self._loop.set_exception_handler(self._complain)
        accepting = await self._loop.create_server(make, sock=self._listening, backlog=ACCEPTED_AT_ONCE)
        self._listening.listen(BACKLOG)  # asyncio takes one number for both
        try:
            await self._finishing.wait()
            accepting.close()
            self._workload.finish()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._ending.wait(), GRACE_SECONDS)
        finally:
            accepting.close()
            for connection in [*self._workload.connections]:
                connection.end()

    def _on_signal(self) -> None:
        if self._finishing.is_set():
            self._ending.set()
        self._finishing.set()

    def _end_at_once(self) -> None:
        self._ending.set()
        self._finishing.set()

    def _complain(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if not (isinstance(error, OSError) and error.errno in _EXHAUSTED):
            loop.default_exception_handler(context)
        elif loop.time() >= self._silent_until:
            self._silent_until = loop.time() + COMPLAINT_SECONDS
            sys.stderr.write(f"decant: no connection can be accepted: {error.strerror}\n")


def _descriptors_left() -> int:
    """How many connections the process can keep open; with a low limit of files, half of these."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return CONNECTIONS_MAX if limit == resource.RLIM_INFINITY else max(limit - DESCRIPTORS_KEPT, limit // 2)
