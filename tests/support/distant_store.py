"""A memory store behind a network, in virtual time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import TypeVar

from chalicelib.core.store import Outcome, Read
from chalicelib.core.table.writes import Item, Key, Write
from local.memory.store import MemoryStore
from tests.support.scheduler import Scheduler

T = TypeVar("T")

ANSWER_MS = 6


class DistantStore:
    """A memory store some virtual milliseconds away. It applies each request on the way, in random order."""

    keeps_blobs = is_full = False

    def __init__(self, inner: MemoryStore, scheduler: Scheduler, chance: Random, jitter_ms: int) -> None:
        self._inner = inner
        self._scheduler = scheduler
        self._chance = chance
        self._jitter_ms = jitter_ms

    def read(self, reads: Sequence[Read]) -> list[list[Item]]:
        return self._far(lambda: self._inner.read(reads))

    def write(self, write: Write) -> Item:
        return self._far(lambda: self._inner.write(write))

    def write_each(self, writes: Sequence[Write]) -> list[Outcome]:
        return self._far(lambda: self._inner.write_each(writes))

    def write_together(self, writes: Sequence[Write]) -> None:
        self._far(lambda: self._inner.write_together(writes))

    def put_all(self, items: Sequence[Item]) -> None:
        self._far(lambda: self._inner.put_all(items))

    def remove_all(self, keys: Sequence[Key]) -> None:
        self._far(lambda: self._inner.remove_all(keys))

    def put_blob(self, name: str, data: bytes) -> None:
        raise AssertionError("no blobs here")

    def get_blob(self, name: str) -> bytes:
        raise AssertionError("no blobs here")

    def remove_blobs(self, names: Sequence[str]) -> None:
        assert not names

    def _far(self, apply: Callable[[], T]) -> T:
        travel_ms = ANSWER_MS + self._chance.randint(-self._jitter_ms, self._jitter_ms)
        self._scheduler.sleep(travel_ms // 2)
        try:
            return apply()
        finally:
            self._scheduler.sleep(travel_ms - travel_ms // 2)
