"""A bounded cache, shared by the threads of an instance."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

V = TypeVar("V")

PLACES_MAX = 10_000
"""Topics, or queues, for which an instance caches something: some 4 KB for a topic that is in use, in all caches."""


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

    def _drop(self, key: Hashable) -> None:
        if dropped := self._kept.pop(key, None):
            self._size -= dropped[1]
