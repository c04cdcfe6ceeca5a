"""Bounded caches, shared by the threads of an instance, which forget what was deleted."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable, Iterable
from typing import Any, Generic, TypeVar

V = TypeVar("V")

PLACES_MAX = 10_000
"""Topics, or queues, for which an instance caches something: some 4 KB for a topic that is in use, in all caches."""
FORGOTTEN_TOGETHER = 64
"""So many that were deleted are forgotten at once, since that goes through all that is kept."""


class BoundedCache(Generic[V]):
    """Keeps the most recently used entries, up to `size_max` in all, measured by `size_of` when they are kept."""

    def __init__(self, size_max: int = PLACES_MAX, size_of: Callable[[V], int] = lambda _: 1) -> None:
        self._size_max, self._size_of = size_max, size_of
        self._kept: OrderedDict[Hashable, tuple[V, int]] = OrderedDict()
        """Each with its size, the one used last at the end."""
        self._size = 0
        self._lock = threading.Lock()

    def get(self, key: Hashable) -> V | None:
        with self._lock:
            found = self._kept.get(key)
            if found is None:
                return None
            self._kept.move_to_end(key)
            return found[0]

    def keep(self, key: Hashable, value: V) -> None:
        """A value that is too large for the cache is not kept; an earlier one of this key then stays."""
        size = self._size_of(value)
        if size > self._size_max:
            return
        with self._lock:
            self._drop(key)
            self._kept[key] = (value, size)
            self._size += size
            while self._size > self._size_max:
                self._drop(next(iter(self._kept)))

    def forget(self, key: Hashable) -> None:
        with self._lock:
            self._drop(key)

    def entries(self) -> list[tuple[Hashable, V]]:
        with self._lock:
            return [(key, value) for key, (value, _) in self._kept.items()]

    def _drop(self, key: Hashable) -> None:
        if dropped := self._kept.pop(key, None):
            self._size -= dropped[1]


class Caches:
    """All caches of an instance whose entries belong to topics and groups. What is kept is a first guess, so to forget
    too much costs a read or a write, and nothing else."""

    def __init__(self) -> None:
        self._made: list[tuple[BoundedCache[Any], Callable[[Any, Any], Iterable[str]]]] = []
        self._gone: set[str] = set()
        self._lock = threading.Lock()

    def bounded(
        self,
        owners_of: Callable[[Any, V], Iterable[str]],
        size_max: int = PLACES_MAX,
        size_of: Callable[[V], int] = lambda _: 1,
    ) -> BoundedCache[V]:
        """`owners_of`: whose an entry is, given its key and value. A topic is named by its id, or by its name where the
        entry does not tell that, and a group by its partition."""
        cache = BoundedCache(size_max, size_of)
        self._made.append((cache, owners_of))
        return cache

    def forget(self, *owners: str) -> None:
        """These are deleted. They are forgotten once `FORGOTTEN_TOGETHER` are."""
        with self._lock:
            self._gone.update(owners)
            if len(self._gone) < FORGOTTEN_TOGETHER:
                return
            gone, self._gone = self._gone, set()
        for cache, owners_of in [*self._made]:
            _forget(cache, owners_of, gone)


def _forget(cache: BoundedCache[V], owners_of: Callable[[Any, V], Iterable[str]], gone: Collection[str]) -> None:
    for key, value in cache.entries():
        if any(owner in gone for owner in owners_of(key, value)):
            cache.forget(key)
