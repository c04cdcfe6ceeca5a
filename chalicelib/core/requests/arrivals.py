"""The calls of this instance that wait for replies. One call looks for the replies of all that would look soon, and a
reply stored through this instance wakes its caller at once."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from chalicelib.core.base.records import mutable
from chalicelib.core.base.runtime import Bell, Runtime
from chalicelib.core.table.writes import Item, Key

PAUSE_MS_MIN = 5
PAUSE_MS_MAX = 200
PAUSE_PART = 10
"""A call looks again after a tenth of the time since the request was sent, within these bounds. A reply thus arrives at
most a tenth later, and a slow one costs few reads."""
CROWD_PART = 2
"""With many waiting calls, the pauses last at least half a millisecond for each, so that the reads leave time for the
replies."""
TOGETHER_MAX = 100
"""Replies looked for at once: DynamoDB reads so many items in one request."""


@mutable
class Arrival:
    """The reply that one call waits for. `asked_ms`, `look_at_ms`: when the request was asked, and when to look next,
    by `Runtime.uptime`. `item`: the reply, once it is known."""

    key: Key
    bell: Bell
    asked_ms: int
    look_at_ms: int
    item: Item | None = None

    def pause_ms(self, now: int) -> int:
        """The pause between a look now and the next."""
        return min(max((now - self.asked_ms) // PAUSE_PART, PAUSE_MS_MIN), PAUSE_MS_MAX)


class Arrivals:
    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._lock = threading.Lock()
        self._expected: dict[Key, list[Arrival]] = {}

    @contextmanager
    def expected(self, key: Key, asked_ms: int) -> Iterator[Arrival]:
        """Within this context, the arrival gets the item with this key. Its first look is a pause ahead."""
        now = self._runtime.uptime()
        arrival = Arrival(key, self._runtime.bell(), asked_ms, now)
        arrival.look_at_ms = now + arrival.pause_ms(now)
        with self._lock:
            self._expected.setdefault(key, []).append(arrival)
        try:
            yield arrival
        finally:
            with self._lock:
                self._expected[key].remove(arrival)
                if not self._expected[key]:
                    del self._expected[key]

    def due(self) -> list[Key]:
        """The keys to look for now: those of arrivals that are due, or have less than half of their pause left. Moves
        their next look a pause ahead, so that no other call looks for them meanwhile."""
        now = self._runtime.uptime()
        with self._lock:
            arrivals = [arrival for arrivals in self._expected.values() for arrival in arrivals]
            soon = [arrival for arrival in arrivals if arrival.look_at_ms <= now + arrival.pause_ms(now) // 2]
            looked = sorted(soon, key=lambda arrival: arrival.look_at_ms)[:TOGETHER_MAX]
            for arrival in looked:
                arrival.look_at_ms = now + max(arrival.pause_ms(now), len(arrivals) // CROWD_PART)
        return list(dict.fromkeys(arrival.key for arrival in looked))

    def tell(self, key: Key, item: Item) -> None:
        """Passes a stored item to the call that waits for it."""
        with self._lock:
            arrivals = [*self._expected.get(key, ())]
        for arrival in arrivals:
            arrival.item = item
            arrival.bell.ring()
