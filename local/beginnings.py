"""Has requests that may wait begin a few at a time.

Until it waits, such a request competes with the event loop for the interpreter. Of a thousand that all began at once,
the loop got a thousandth of the time each, and a produce waited for seconds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

AT_ONCE_MAX = 8
"""A look into the store in memory takes a millisecond or two, and the first wait ten: so the loop keeps most of the
time, and hundreds begin in a second."""


class Beginnings:
    """Is used in the event loop's thread alone. `call_soon`: has the loop call something after what it does now."""

    def __init__(self, call_soon: Callable[[Callable[[], object]], object]) -> None:
        self._call_soon = call_soon
        self._free = AT_ONCE_MAX
        self._waiting: deque[Callable[[], object]] = deque()

    def enter(self, go_on: Callable[[], object]) -> bool:
        """Whether one more may begin now; if not, `go_on` is called when it may."""
        if self._free:
            self._free -= 1
            return True
        self._waiting.append(go_on)
        return False

    def leave(self) -> None:
        """One that has entered waits, or has ended."""
        if self._waiting:
            self._call_soon(self._waiting.popleft())
        else:
            self._free += 1
