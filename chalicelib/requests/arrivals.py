"""Replies that are stored through this instance, for the calls that wait for them in it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from chalicelib.base.runtime import Runtime
from chalicelib.table.writes import Item, Key


class Arrival:
    """What one call waits for. `item`: the reply, once the bell has rung."""

    def __init__(self, runtime: Runtime) -> None:
        self.bell = runtime.bell()
        self.item: Item | None = None


class Arrivals:
    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._lock = threading.Lock()
        self._expected: dict[Key, list[Arrival]] = {}

    @contextmanager
    def expected(self, key: Key) -> Iterator[Arrival]:
        """Meanwhile, the arrival learns of the item with this key."""
        arrival = Arrival(self._runtime)
        with self._lock:
            self._expected.setdefault(key, []).append(arrival)
        try:
            yield arrival
        finally:
            with self._lock:
                self._expected[key].remove(arrival)
                if not self._expected[key]:
                    del self._expected[key]

    def tell(self, key: Key, item: Item) -> None:
        """The item was stored."""
        with self._lock:
            arrivals = [*self._expected.get(key, ())]
        for arrival in arrivals:
            arrival.item = item
            arrival.bell.ring()
