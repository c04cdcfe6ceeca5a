"""A bounded cache, shared by the threads of an instance."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from cachetools import LRUCache

V = TypeVar("V")


class BoundedCache(Generic[V]):
    """Keeps what was used last, up to `size_max` in all, as `size_of` counts."""

    def __init__(self, size_max: int, size_of: Callable[[V], int]) -> None:
        self._kept: LRUCache[Hashable, V] = LRUCache(size_max, getsizeof=size_of)
        self._lock = threading.Lock()

    def get(self, key: Hashable) -> V | None:
        with self._lock:
            return self._kept.get(key)

    def keep(self, key: Hashable, value: V) -> None:
        with self._lock:
            if self._kept.getsizeof(value) <= self._kept.maxsize:
                self._kept[key] = value
