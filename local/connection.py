"""One connection that speaks HTTP/1.1: reads each whole request, passes it on, writes the response."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import time
from asyncio import AbstractEventLoop, Transport
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from math import inf
from typing import TypeVar

from chalicelib.core.base.errors import DecantError, StoreUnavailable
from chalicelib.core.base.limits import KIB
from local.http1 import (
    HEAD_BYTES_MAX,
    Head,
    RawResponse,
    ReceiveBuffer,
    Steps,
    WaitFor,
    parse_head,
    read_body,
    refusal,
    render,
)
from local.workload import BODIES_BYTES_MAX, Pace, Task, Workload

T = TypeVar("T")

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

SMALL_BODY_BYTES_MAX = 16 * KIB
"""A body up to this size costs less than a head may. The server reads it before it checks whether the caller may send
it, since for most requests that check takes as long as the request itself; and does not count it."""

AHEAD_BYTES_MAX = 2 * HEAD_BYTES_MAX
"""How many bytes of further requests it receives while one is executed."""

_log = logging.getLogger("decant")

_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


class _TurnedAway(Exception):
    """The head alone has the request refused."""

    def __init__(self, line: str, answer: RawResponse) -> None:
        self.line, self.answer = line, answer


class Connection(asyncio.Protocol):
    """`_talk` serves the requests one after the other, and yields wherever it has to wait. The events of the connection
    go on with it. A connection that waits in vain is closed at `_until`."""

    def __init__(self, loop: AbstractEventLoop, workload: Workload) -> None:
        self._loop, self._workload = loop, workload
        self._incoming = ReceiveBuffer()
        self._talk = self._talking()
        self._waits_for = WaitFor.INPUT
        self._is_full = self._is_lost = self._is_counting = self._is_idle = self._is_starting = False
        self._held_bytes = 0
        self._until = inf

    # -- events of the loop ---------------------------------------------------------------------------------------

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        transport.set_write_buffer_limits(0)  # `_is_full` until the client has read everything
        self._transport = transport
        self._timer = self._loop.call_later(IDLE_SECONDS, self._look_at_time)
        if self._workload.make_room():
            self._workload.connections.add(self)
            self._go_on()
        else:
            self.end()

    def data_received(self, data: bytes) -> None:
        self._incoming.add(data)
        if self._is_counting:
            self._hold(len(data))
        if self._waits_for is WaitFor.INPUT:
            self._go_on()
        elif len(self._incoming) > AHEAD_BYTES_MAX:
            self._transport.pause_reading()

    def eof_received(self) -> bool:
        self._incoming.has_ended = True
        if self._waits_for is WaitFor.INPUT:
            self._go_on()
        return True  # the client may still read

    def pause_writing(self) -> None:
        self._is_full = True

    def resume_writing(self) -> None:
        self._is_full = False
        if self._waits_for is WaitFor.OUTPUT:
            self._go_on()

    def connection_lost(self, _error: Exception | None) -> None:
        self._is_lost = self._incoming.has_ended = True
        self._timer.cancel()
        self._workload.leave(self)
        if self._waits_for is not WaitFor.RESPONSE:
            self._talk.close()

    def finish(self) -> None:
        if self._is_idle:
            self.end()

    def end(self) -> None:
        self._transport.abort()
        self._workload.leave(self)

    def _go_on(self) -> None:
        if self._is_lost:
            self._talk.close()
            return
        try:
            self._waits_for = self._talk.throw(refused) if (refused := self._too_much()) else next(self._talk)
        except (StopIteration, EOFError, OSError):
            self.end()
        except Exception:  # noqa: BLE001 - a defect ends this connection and no other
            _log.exception("a connection failed")
            self.end()
        else:
            self._await()

    def _await(self) -> None:
        if self._waits_for is WaitFor.TURN:
            self._loop.call_soon(self._go_on)
        elif self._waits_for is WaitFor.INPUT:
            self._transport.resume_reading()
        if self._until < self._timer.when():
            self._look_at_time()

    def _look_at_time(self) -> None:
        """Most limits are never reached: the timer is set again only after it has fired too early, or if it would fire
        too late."""
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
                yield WaitFor.TURN

    def _exchange(self) -> Steps[bool]:
        """Answers one request. Returns whether another may follow."""
        self._workload.waiting[self] = None
        try:
            head, body = yield from self._read()
            self._workload.waiting.pop(self, None)
            answer = yield from self._carried_out(head, body)
        except _TurnedAway as refused:
            yield from self._refuse(refused.answer, refused.line)
            return False
        except DecantError as error:
            yield from self._refuse(refusal(error))
            return False
        finally:
            self._release()
        self._workload.waiting[self] = None
        self._log(head.line, answer)
        is_last = self._workload.is_finishing or not head.keeps
        yield from self._send(render(answer, is_last, has_body=head.method != "HEAD"))
        return not (is_last or self._workload.is_finishing)

    def _read(self) -> Steps[tuple[Head, bytes | None]]:
        self._limit(IDLE_SECONDS)
        self._is_idle = True
        while not self._incoming:
            yield from self._incoming.more()
        self._is_idle = False
        self._limit(HEAD_SECONDS)
        head = parse_head((yield from self._incoming.head()))
        self._limit(BODY_SECONDS)

        def go_on(size: int | None) -> Steps[None]:
            if size is None or size > SMALL_BODY_BYTES_MAX:
                yield from self._expect_large(head)
            if head.waits_to_send:
                yield from self._send(_CONTINUE)
                self._limit(BODY_SECONDS)

        body = yield from read_body(head.headers, self._incoming, self._workload.body_bytes_max, go_on)
        return head, body

    def _expect_large(self, head: Head) -> Steps[None]:
        """Raises `_TurnedAway`, StoreUnavailable."""
        if answer := (yield from self._elsewhere(Pace.SOON, lambda: self._workload.judge(head))):
            raise _TurnedAway(head.line, answer)
        self._limit(BODY_SECONDS)
        self._is_counting = True
        self._hold(len(self._incoming))

    def _hold(self, size: int) -> None:
        """Counts these further bytes of a body."""
        self._held_bytes += size
        self._workload.held_bytes += size

    def _too_much(self) -> StoreUnavailable | None:
        """The error for a large body that is received while the server holds too much."""
        if not self._is_counting or self._workload.held_bytes <= BODIES_BYTES_MAX:
            return None
        return StoreUnavailable(f"the server holds {BODIES_BYTES_MAX} bytes of large bodies: send this request again")

    def _release(self) -> None:
        self._workload.held_bytes -= self._held_bytes
        self._held_bytes, self._is_counting = 0, False

    def _carried_out(self, head: Head, body: bytes | None) -> Steps[RawResponse]:
        self._is_counting = False  # bytes from now on belong to the next request
        task = self._workload.find(head, body)
        if task.pace is Pace.AT_ONCE:
            return task.run(self._is_over)
        if task.pace is Pace.LONG:
            return (yield from self._begun(task))
        return (yield from self._elsewhere(task.pace, lambda: task.run(self._is_over)))

    def _begun(self, task: Task) -> Steps[RawResponse]:
        """Runs a request that may wait. Once it waits it asks `is_over`, and so makes room for another to start."""

        def is_over() -> bool:
            if self._is_starting:
                self._call_soon(self._release_start)
            return self._is_over()

        self._until, self._is_starting = inf, True
        try:
            if not self._workload.starts.acquire(self._go_on):
                yield WaitFor.RESPONSE
            return (yield from self._elsewhere(task.pace, lambda: task.run(is_over)))
        finally:
            self._release_start()

    def _release_start(self) -> None:
        if self._is_starting:
            self._is_starting = False
            self._workload.starts.release()

    def _elsewhere(self, pace: Pace, run: Callable[[], T]) -> Steps[T]:
        executed = self._workload.pools[pace].submit(run)
        executed.add_done_callback(self._wake)
        self._until = inf
        yield WaitFor.RESPONSE
        return executed.result()

    def _wake(self, _executed: Future[T]) -> None:
        self._call_soon(self._go_on)

    def _call_soon(self, call: Callable[[], None]) -> None:
        """In the loop's thread."""
        with suppress(RuntimeError):  # the server has ended
            self._loop.call_soon_threadsafe(call)

    def _is_over(self) -> bool:
        """Whether no client is left to hear the answer of a request that waits, or the server is to end."""
        return self._workload.is_finishing or self._is_lost or (self._incoming.has_ended and not self._incoming)

    def _send(self, data: bytes) -> Steps[None]:
        self._transport.write(data)
        self._limit(ANSWER_SECONDS)
        while self._is_full:
            yield WaitFor.OUTPUT

    def _refuse(self, answer: RawResponse, line: str = "") -> Steps[None]:
        """Answers before the request was read to its end, after which the connection cannot be used again. Keeps
        reading for a moment: closing at once would reset the connection and lose the response."""
        self._release()
        self._log(line, answer)
        yield from self._send(render(answer, is_last=True))
        self._transport.write_eof()
        self._limit(LINGER_SECONDS)
        while True:
            self._incoming.clear()
            yield from self._incoming.more()

    def _limit(self, seconds: float) -> None:
        self._until = self._loop.time() + seconds

    def _log(self, line: str, answer: RawResponse) -> None:
        if self._workload.is_logging:
            at = time.strftime("%d/%b/%Y %H:%M:%S")
            peer = self._transport.get_extra_info("peername", (HOST,))[0]
            sys.stderr.write(f"{peer} - - [{at}] {json.dumps(line)} {answer.status} {len(answer.body)}\n")
