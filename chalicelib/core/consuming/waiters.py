"""The pops that wait. Each looks less and less often while there is nothing to take; a call that stores messages
through the same instance wakes one at once."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from chalicelib.core.base import deadline
from chalicelib.core.base.limits import SECOND_MS
from chalicelib.core.base.runtime import Runtime

POLL_MS_MIN = 10
POLL_MS_MAX = 200
"""A waiting pop looks again after this long, growing from the first to the second; earlier, when something is due."""
IDLE_PART = 3
IDLE_POLL_MS_MAX = 3 * SECOND_MS // 2
"""While nothing is there at all, it looks again after a third of the time that it has waited, up to 1.5 s: a consumer
without messages asks the store a quarter as often as with looks every 200 ms, and a message that breaks a long silence
comes that much later."""


class WaitKey(NamedTuple):
    """Whose pops take the same messages. `consumer_id`: in a broadcast group, where each has its own. `zone`: in other
    groups, where each begins with the queues of its own."""

    topic_id: str
    group_name: str
    consumer_id: str | None = None
    zone: str | None = None


class Waiter:
    """One pop, which may wait until `wait_ms` from now, as far as its call has time."""

    def __init__(self, runtime: Runtime, wait_ms: int) -> None:
        self._runtime = runtime
        self._idle_since_ms = runtime.uptime()
        self._until_ms = deadline.wait_until_ms(self._idle_since_ms + wait_ms)
        self._pause_ms = POLL_MS_MIN
        self._bell = runtime.bell()
        self.was_told = self._is_told = False

    def is_over(self) -> bool:
        return self._runtime.uptime() >= self._until_ms

    def listen(self) -> bool:
        """To be called before each look: what is stored from now on ends the next rest. Returns whether something was
        stored since the last look."""
        self._bell = self._runtime.bell()
        is_told, self._is_told = self._is_told, False
        return is_told

    def tell(self) -> None:
        """Ends the rest. The look after it may still miss what is stored, so others follow soon."""
        self.was_told = self._is_told = True
        self._idle_since_ms, self._pause_ms = self._runtime.uptime(), POLL_MS_MIN
        self._bell.ring()

    def rest(self, next_ready_at_ms: int | None, is_held: bool) -> None:
        """Returns when it is time for the next look: not after the next known due time. `is_held`: something is there,
        but cannot be taken for now."""
        now = self._runtime.uptime()
        idle_ms = 0 if is_held else min((now - self._idle_since_ms) // IDLE_PART, IDLE_POLL_MS_MAX)
        pause_ms = min(max(self._pause_ms, idle_ms), self._until_ms - now)
        if next_ready_at_ms is not None:
            pause_ms = min(pause_ms, next_ready_at_ms - self._runtime.now())
        self._pause_ms = min(2 * self._pause_ms, POLL_MS_MAX)
        self._bell.wait(max(1, pause_ms))
        deadline.has_waited(self._runtime.uptime() - now)


class Waiters:
    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._lock = threading.Lock()
        self._waiting: dict[str, dict[WaitKey, list[Waiter]]] = {}

    @contextmanager
    def waiting(self, place: WaitKey, wait_ms: int) -> Iterator[Waiter]:
        waiter = Waiter(self._runtime, wait_ms)
        with self._lock:
            self._waiting.setdefault(place.topic_id, {}).setdefault(place, []).append(waiter)
        try:
            yield waiter
        finally:
            self._leave(place, waiter)

    def stored(self, topic_id: str) -> None:
        """Something may be ready in this topic. Tells one pop in each place: more than one would look in vain for most
        messages. When it leaves, it tells the next."""
        with self._lock:
            first = [waiters[0] for waiters in self._waiting.get(topic_id, {}).values()]
        for waiter in first:
            waiter.tell()

    def freed(self, topic_id: str, group_name: str) -> None:
        """Does the same when messages of one group may be ready."""
        with self._lock:
            places = self._waiting.get(topic_id, {}).items()
            first = [waiters[0] for place, waiters in places if place.group_name == group_name]
        for waiter in first:
            waiter.tell()

    def _leave(self, place: WaitKey, waiter: Waiter) -> None:
        with self._lock:
            places = self._waiting[place.topic_id]
            places[place].remove(waiter)
            others = places[place][:1] if waiter.was_told else []
            if not places[place]:
                del places[place]
            if not places:
                del self._waiting[place.topic_id]
        for other in others:
            other.tell()
