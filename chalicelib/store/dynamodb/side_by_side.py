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
class _Going(Generic[T]):
    """One request in progress, and its result."""

    trying: Trying[T]
    next_at_ms: int = 0
    answers: tuple[T, ...] = ()
    """Waits for one and returns it."""


class SideBySide:
    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    def run(self, tryings: Sequence[Trying[T]]) -> list[T]:
        """The responses, in order. Raises the first error; other requests may then continue for one try."""
        going = [_Going(each) for each in tryings]
        while left := [each for each in going if not each.answers]:
            next_at_ms = min(each.next_at_ms for each in left)
            if (wait_ms := next_at_ms - self._runtime.uptime()) > 0:
                self._runtime.sleep(wait_ms)
            now = max(next_at_ms, self._runtime.uptime())
            self._each([each for each in left if each.next_at_ms <= now])
        return [answer for each in going for answer in each.answers]

    def _each(self, going: Sequence[_Going[T]]) -> None:
        """Sends one try of each of these."""
        first, *others = going
        futures = [self._pool.submit(copy_context().run, self._try, each) for each in others]
        try:
            self._try(first)
            for each, future in zip(others, futures, strict=True):
                if future.cancel():
                    self._try(each)
                else:
                    future.result()
        finally:
            for future in futures:
                future.cancel()

    def _try(self, going: _Going[T]) -> None:
        try:
            going.next_at_ms = next(going.trying) + self._runtime.uptime()
        except StopIteration as done:
            going.answers = (done.value,)

    @cached_property
    def _pool(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(_SHARED_THREADS_MAX, thread_name_prefix="decant-store")
