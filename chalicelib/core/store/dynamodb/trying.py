"""Requests in progress, and a loop that runs them side by side, as one round trip, in the thread of their call.

A request in progress is a generator. It yields 0 once it is sent, so that the other requests of the call are sent
before the first answer is read, and the ms to wait before it is sent again. The loop does the waiting."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, Generic, TypeVar

from chalicelib.core.base.limits import QUEUES_MAX
from chalicelib.core.base.records import mutable
from chalicelib.core.base.runtime import Runtime

TypedItem = Mapping[str, Any]


class Trouble(Exception):
    """The root. Its text is the reason, for people."""


class Failed(Trouble):
    """The response is an error. `code`: of DynamoDB or S3, such as "ThrottlingException". `item`: the item that a
    conditional write met, in typed JSON. `reasons`: why a transaction was cancelled, one for each of its writes."""

    def __init__(
        self,
        code: str,
        message: str = "",
        status: int = 400,
        item: TypedItem | None = None,
        reasons: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        super().__init__(f"{code}: {message}" if message else code)
        self.code = code
        self.status = status
        self.item = item
        self.reasons = reasons


class NeverSent(Trouble):
    """There is no connection, so the request was not applied."""


class NoAnswer(Trouble):
    """The request was sent and may have been applied, but no readable response arrived in time."""


class KeptConnectionClosed(NoAnswer):
    """The server closed a kept connection without a response. This is common; a new connection works at once."""


class Unusable(Trouble):
    """No request succeeds until an operator changes the settings. The text says how."""


T = TypeVar("T")

SIDE_BY_SIDE_MAX = 2 * QUEUES_MAX
"""Requests of one call that are under way: a pop sends one for each queue, and one more if the topic has delayed
messages. A sweep may have thousands, which then take several round trips."""

Trying = Generator[int, None, T]


def at_once(request: Callable[[], T]) -> Trying[T]:
    """A request that blocks until its response arrives."""
    yield 0
    return request()


@mutable
class _Request(Generic[T]):
    trying: Trying[T]
    next_at_ms: int = 0
    answers: tuple[T, ...] = ()
    """None as long as it is in progress, then one."""


def run(tryings: Sequence[Trying[T]], runtime: Runtime) -> list[T]:
    """The answers, in order. Raises the first error; the other requests then end without an answer."""
    requests = [_Request(trying) for trying in tryings]
    try:
        while left := [request for request in requests if not request.answers]:
            _go_on(left[:SIDE_BY_SIDE_MAX], runtime)
    finally:
        for request in requests:
            request.trying.close()
    return [answer for request in requests for answer in request.answers]


def _go_on(left: Sequence[_Request[T]], runtime: Runtime) -> None:
    """Sleeps until a request can continue, then resumes each that can."""
    next_at_ms = min(request.next_at_ms for request in left)
    if next_at_ms and (wait_ms := next_at_ms - runtime.uptime()) > 0:
        runtime.sleep(wait_ms)
    now = max(next_at_ms, runtime.uptime())
    for request in left:
        if request.next_at_ms <= now:
            try:
                wait_ms = next(request.trying)
                request.next_at_ms = runtime.uptime() + wait_ms if wait_ms else 0
            except StopIteration as done:
                request.answers = (done.value,)
