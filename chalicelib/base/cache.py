"""A bounded cache, shared by the threads of an instance."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from cachetools import LRUCache

V = TypeVar("V")

PLACES_MAX = 10_000
"""Topics, or queues, for which an instance caches something: some 4 KB for a topic that is in use, in all caches."""


class BoundedCache(Generic[V]):
    """Keeps the most recently used entries, up to `size_max` in all, measured by `size_of`."""

    def __init__(self, size_max: int = PLACES_MAX, size_of: Callable[[V], int] = lambda _: 1) -> None:
        self._kept: LRUCache[Hashable, V] = LRUCache(size_max, getsizeof=size_of)
        self._lock = threading.Lock()

    def get(self, key: Hashable) -> V | None:
        with self._lock:
            return self._kept.get(key)

    def keep(self, key: Hashable, value: V) -> None:
        with self._lock:
            if self._kept.getsizeof(value) <= self._kept.maxsize:
                self._kept[key] = value

    def forget(self, key: Hashable) -> None:
        with self._lock:
            self._kept.pop(key, None)
