"""Bounded caches, shared by the threads of an instance, that drop the entries of deleted topics and groups."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable, Iterable
from typing import Any, Generic, TypeVar

V = TypeVar("V")

PLACES_MAX = 10_000
"""The most topics, or queues, with cached entries: all caches together hold some 4 KB for a topic in use."""
FORGOTTEN_TOGETHER = 64
"""The number of deleted owners that are dropped together, since each pass scans all entries."""


class BoundedCache(Generic[V]):
    """Keeps the most recently used entries, up to `size_max` in total, measured by `size_of` when they are added."""

    def __init__(self, size_max: int = PLACES_MAX, size_of: Callable[[V], int] | None = None) -> None:
        """`size_of`: by default each entry counts as one."""
        self._size_max, self._size_of = size_max, size_of
        self._kept: OrderedDict[Hashable, tuple[V, int]] = OrderedDict()
        """Values with their sizes, the most recently used last."""
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
        """Ignores a value that is too large for the cache; the previous value of this key then stays."""
        size = self._size_of(value) if self._size_of else 1
        if size > self._size_max:
            return
        with self._lock:
            _, size_before = self._kept.pop(key, (None, 0))
            self._kept[key] = (value, size)
            self._size += size - size_before
            while self._size > self._size_max:
                _, (_, dropped) = self._kept.popitem(last=False)
                self._size -= dropped

    def forget(self, key: Hashable) -> None:
        with self._lock:
            _, size = self._kept.pop(key, (None, 0))
            self._size -= size

    def entries(self) -> list[tuple[Hashable, V]]:
        with self._lock:
            return [(key, value) for key, (value, _) in self._kept.items()]


class Caches:
    """All caches of an instance whose entries belong to topics and groups. A cached value is only a first guess, so
    dropping too many costs no more than a read or a write."""

    def __init__(self) -> None:
        self._made: list[tuple[BoundedCache[Any], Callable[[Any, Any], Iterable[str]]]] = []
        self._gone: set[str] = set()
        self._lock = threading.Lock()

    def bounded(
        self,
        owners_of: Callable[[Any, V], Iterable[str]],
        size_max: int = PLACES_MAX,
        size_of: Callable[[V], int] | None = None,
    ) -> BoundedCache[V]:
        """`owners_of`: the owners of an entry, from its key and value. A topic is identified by its id, or by its name
        if the entry lacks the id; a group by its partition."""
        cache = BoundedCache(size_max, size_of)
        self._made.append((cache, owners_of))
        return cache

    def forget(self, *owners: str) -> None:
        """Notes that these owners are deleted. Drops their entries once there are `FORGOTTEN_TOGETHER` such owners."""
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
