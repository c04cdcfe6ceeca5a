"""Callers that stop after one of their requests to the store: they die there, or continue when others have worked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from copy import copy
from random import Random
from typing import Self, TypeVar

from greenlet import getcurrent, greenlet

from chalicelib.core.base.errors import DecantError
from chalicelib.core.base.runtime import Runtime
from chalicelib.core.store import Outcome, Read
from chalicelib.core.table.writes import Item, Key, Write
from chalicelib.service import Service
from local.memory.store import MemoryStore
from tests.support.instances import SIGNING_KEY
from tests.support.scheduler import Killed

T = TypeVar("T")

Work = Callable[[Callable[[], None]], object]
"""The work of a caller. Its argument is what `StoppingStore` calls after each request."""


class StoppingStore:
    """The store as one caller sees it. After each applied request it calls `stop`, which may never return."""

    keeps_blobs = is_full = False

    def __init__(self, inner: MemoryStore, stop: Callable[[], None]) -> None:
        self._inner = inner
        self._stop = stop

    def read(self, reads: Sequence[Read]) -> list[list[Item]]:
        return self._stopped(self._inner.read(reads))

    def write(self, write: Write) -> Item:
        try:
            return self._inner.write(write)
        finally:
            self._stop()

    def write_each(self, writes: Sequence[Write]) -> list[Outcome]:
        """A caller may die when some of the writes have been applied."""
        return [self._stopped(self._inner.write_each([write])[0]) for write in writes]

    def write_together(self, writes: Sequence[Write]) -> None:
        try:
            self._inner.write_together(writes)
        finally:
            self._stop()

    def put_all(self, items: Sequence[Item]) -> None:
        self._inner.put_all(items)
        self._stop()

    def remove_all(self, keys: Sequence[Key]) -> None:
        self._inner.remove_all(keys)
        self._stop()

    def put_blob(self, name: str, data: bytes) -> None:
        raise NotImplementedError

    def get_blob(self, name: str) -> bytes:
        raise NotImplementedError

    def remove_blobs(self, names: Sequence[str]) -> None:
        assert not names

    def _stopped(self, answer: T) -> T:
        self._stop()
        return answer


class Quiet(MemoryStore):
    """Bills nothing, and can be copied."""

    is_metered = False

    @classmethod
    def copy_of(cls, store: MemoryStore) -> Quiet:
        other = cls()
        other._items = {pk: dict(items) for pk, items in store._items.items()}
        return other


class Stage:
    """A store that can be copied, a clock that only sleeping moves, and seeded chance, for callers that stop."""

    def __init__(self) -> None:
        self.store: MemoryStore = Quiet()
        self.now = 1_000_000
        self.random = Random(1)

    def copy(self) -> Self:
        """An instance with chance of its own, so that it does not make earlier ids again."""
        other = copy(self)
        other.store, other.random = Quiet.copy_of(self.store), Random(2)
        return other

    def instance(self, stop: Callable[[], None] = lambda: None) -> Service:
        """A fresh process. `stop` is called after each of its requests to the store."""
        return Service(StoppingStore(self.store, stop), self.runtime(), SIGNING_KEY)

    def runtime(self) -> Runtime:
        return Runtime(lambda: self.now, self._sleep, self.random.randbytes, lambda: self.now - 900_000)

    def noise(self, chars: int) -> str:
        """Text that compresses to no less than half of its size."""
        return self.random.randbytes(chars // 2).hex()

    def _sleep(self, ms: int) -> None:
        self.now += ms


def requests_of(work: Work) -> int:
    """The number of requests that the work makes if nothing interrupts it."""
    made = [0]

    def count() -> None:
        made[0] += 1

    work(count)
    return made[0]


def die_after(work: Work, request: int) -> None:
    """The caller dies after this request, if it makes that many."""
    with suppress(Killed, DecantError):
        work(_once_after(request, _die))


def stop_after(work: Work, request: int) -> greenlet:
    """The caller stops after this request, if it makes that many; then call `finish`."""

    def worked() -> None:
        with suppress(DecantError):
            work(_once_after(request, hub.switch))

    hub, running = getcurrent(), greenlet(worked)
    running.switch()
    return running


def finish(running: greenlet, goes_on: bool) -> None:
    """The stopped caller continues, or dies."""
    if running.dead:
        return
    if goes_on:
        running.switch()
    else:
        running.throw(Killed)


def _once_after(request: int, act: Callable[[], object]) -> Callable[[], None]:
    left = [request]

    def stop() -> None:
        left[0] -= 1
        if left[0] == 0:
            act()

    return stop


def _die() -> None:
    raise Killed
