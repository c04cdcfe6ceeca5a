"""Runs the requests of one call in parallel, as one round trip.

Shared threads only ever send a single try each. The caller's own thread sends the first request, and any that no shared
thread has started when it comes to it; only this thread waits between tries. No call therefore waits for the requests
of another, however slow or throttled those are.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass
from functools import cached_property
from typing import Generic, TypeVar

from chalicelib.base.runtime import Runtime
from chalicelib.store.dynamodb.requests import Trying

T = TypeVar("T")

_SHARED_THREADS_MAX = 16
"""Requests in progress at once when calls send several, in addition to one for each call."""


@dataclass(slots=True)
class _Request(Generic[T]):
    """One request in progress, and its result."""

    trying: Trying[T]
    next_at_ms: int = 0
    answers: tuple[T, ...] = ()
    """None as long as it is in progress, then one."""


class SideBySide:
    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    def run(self, tryings: Sequence[Trying[T]]) -> list[T]:
        """The responses, in order. Raises the first error; other requests may then continue for one try."""
        requests = [_Request(trying) for trying in tryings]
        while left := [request for request in requests if not request.answers]:
            next_at_ms = min(request.next_at_ms for request in left)
            if (wait_ms := next_at_ms - self._runtime.uptime()) > 0:
                self._runtime.sleep(wait_ms)
            now = max(next_at_ms, self._runtime.uptime())
            self._try_all([request for request in left if request.next_at_ms <= now])
        return [answer for request in requests for answer in request.answers]

    def _try_all(self, requests: Sequence[_Request[T]]) -> None:
        """Sends one try of each of these."""
        first, *others = requests
        futures = [self._pool.submit(copy_context().run, self._try, request) for request in others]
        try:
            self._try(first)
            for request, future in zip(others, futures, strict=True):
                if future.cancel():
                    self._try(request)
                else:
                    future.result()
        finally:
            for future in futures:
                future.cancel()

    def _try(self, request: _Request[T]) -> None:
        try:
            request.next_at_ms = next(request.trying) + self._runtime.uptime()
        except StopIteration as done:
            request.answers = (done.value,)

    @cached_property
    def _pool(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(_SHARED_THREADS_MAX, thread_name_prefix="decant-store")
