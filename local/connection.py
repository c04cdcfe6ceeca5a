"""One connection that speaks HTTP/1.1: reads each whole request, has it executed, writes the response."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import time
from asyncio import AbstractEventLoop, Transport
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future
from contextlib import suppress
from enum import Enum
from math import inf
from typing import NamedTuple

from chalicelib.base.errors import DecantError
from local.body import read_body
from local.incoming import HEAD_BYTES_MAX, Incoming, Pause, Steps
from local.request import Answer, Head, refusal, rendered, understood

HOST = "127.0.0.1"

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

AHEAD_BYTES_MAX = 2 * HEAD_BYTES_MAX
"""How much of further requests is received while one is executed."""

_log = logging.getLogger("decant")

_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"

HasHungUp = Callable[[], bool]


class Pace(Enum):
    AT_ONCE = "waits for nothing"
    SOON = "may wait for a store"
    LONG = "may wait for messages"


class Task(NamedTuple):
    """What a request asks for. `run`: in the event loop's thread if its `pace` is `AT_ONCE`, which saves handing it
    over; else in a thread of a pool."""

    pace: Pace
    run: Callable[[HasHungUp], Answer]


Find = Callable[[Head, bytes | None], Task]


class Office(NamedTuple):
    """What the connections of a server share. `find`: what a request asks for. `connections`: those that are open."""

    find: Find
    pools: Mapping[Pace, Executor]
    body_bytes_max: int
    is_logging: bool
    connections: set[Connection]


class Connection(asyncio.Protocol):
    """`_talk` serves the requests one after the other, and yields wherever it has to wait. The events of the connection
    go on with it. A connection that waits in vain is closed at `_until`."""

    def __init__(self, loop: AbstractEventLoop, office: Office) -> None:
        self._loop, self._office = loop, office
        self._incoming = Incoming()
        self._talk = self._talking()
        self._pause = Pause.INPUT
        self._is_full = self._is_lost = False
        self._until = inf

    # -- events of the loop ---------------------------------------------------------------------------------------

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        transport.set_write_buffer_limits(0)  # `_is_full` until the client has read everything
        self._transport = transport
        self._office.connections.add(self)
        self._timer = self._loop.call_later(IDLE_SECONDS, self._look_at_time)
        self._go_on()

    def data_received(self, data: bytes) -> None:
        self._incoming.add(data)
        if self._pause is Pause.INPUT:
            self._go_on()
        elif len(self._incoming) > AHEAD_BYTES_MAX:
            self._transport.pause_reading()

    def eof_received(self) -> bool:
        self._incoming.has_ended = True
        if self._pause is Pause.INPUT:
            self._go_on()
        return True  # the client may still read

    def pause_writing(self) -> None:
        self._is_full = True

    def resume_writing(self) -> None:
        self._is_full = False
        if self._pause is Pause.OUTPUT:
            self._go_on()

    def connection_lost(self, _error: Exception | None) -> None:
        self._is_lost = self._incoming.has_ended = True
        self._timer.cancel()
        self._office.connections.discard(self)
        if self._pause is not Pause.ANSWER:
            self._talk.close()

    def end(self) -> None:
        self._transport.abort()

    def _go_on(self) -> None:
        if self._is_lost:
            return
        try:
            self._pause = next(self._talk)
        except (StopIteration, EOFError, OSError):
            self.end()
        except Exception:  # noqa: BLE001 - a defect ends this connection and no other
            _log.exception("a connection failed")
            self.end()
        else:
            self._await()

    def _await(self) -> None:
        if self._pause is Pause.TURN:
            self._loop.call_soon(self._go_on)
        elif self._pause is Pause.INPUT:
            self._transport.resume_reading()
        if self._until < self._timer.when():
            self._look_at_time()

    def _look_at_time(self) -> None:
        """Most limits are never reached: the timer is set anew when it has gone off too early, or would too late."""
        self._timer.cancel()
        now = self._loop.time()
        if now >= self._until:
            self.end()
        else:
            self._timer = self._loop.call_at(min(self._until, now + IDLE_SECONDS), self._look_at_time)

    # -- the talk -------------------------------------------------------------------------------------------------

    def _talking(self) -> Steps[None]:
        while (yield from self._exchange()):
            if self._incoming:
                yield Pause.TURN

    def _exchange(self) -> Steps[bool]:
        """Answers one request. Returns whether another may follow."""
        try:
            head, body = yield from self._read()
        except DecantError as error:
            yield from self._refuse(error)
            return False
        answer = yield from self._carried_out(head, body)
        self._log(head.line, answer)
        yield from self._send(rendered(answer, is_last=not head.keeps, has_body=head.method != "HEAD"))
        return head.keeps

    def _read(self) -> Steps[tuple[Head, bytes | None]]:
        self._limit(IDLE_SECONDS)
        while not self._incoming:
            yield from self._incoming.more()
        self._limit(HEAD_SECONDS)
        head = understood((yield from self._incoming.head()))
        self._limit(BODY_SECONDS)

        def go_on() -> Steps[None]:
            if head.waits_to_send:
                yield from self._send(_CONTINUE)
                self._limit(BODY_SECONDS)

        body = yield from read_body(head.headers, self._incoming, self._office.body_bytes_max, go_on)
        return head, body

    def _carried_out(self, head: Head, body: bytes | None) -> Steps[Answer]:
        task = self._office.find(head, body)
        if task.pace is Pace.AT_ONCE:
            return task.run(self._has_hung_up)
        executed = self._office.pools[task.pace].submit(task.run, self._has_hung_up)
        executed.add_done_callback(self._wake)
        self._until = inf
        yield Pause.ANSWER
        return executed.result()

    def _wake(self, _executed: Future[Answer]) -> None:
        with suppress(RuntimeError):  # the server has ended
            self._loop.call_soon_threadsafe(self._go_on)

    def _has_hung_up(self) -> bool:
        return self._is_lost or (self._incoming.has_ended and not self._incoming)

    def _send(self, data: bytes) -> Steps[None]:
        self._transport.write(data)
        self._limit(ANSWER_SECONDS)
        while self._is_full:
            yield Pause.OUTPUT

    def _refuse(self, error: DecantError) -> Steps[None]:
        """Answers before the request was read to its end, after which the connection cannot be used again. Keeps
        reading for a moment: closing at once would reset the connection and lose the response."""
        answer = refusal(error)
        self._log("", answer)
        yield from self._send(rendered(answer, is_last=True))
        self._transport.write_eof()
        self._limit(LINGER_SECONDS)
        while True:
            self._incoming.clear()
            yield from self._incoming.more()

    def _limit(self, seconds: float) -> None:
        self._until = self._loop.time() + seconds

    def _log(self, line: str, answer: Answer) -> None:
        if self._office.is_logging:
            at = time.strftime("%d/%b/%Y %H:%M:%S")
            sys.stderr.write(f"{HOST} - - [{at}] {json.dumps(line)} {answer.status} {len(answer.body)}\n")
