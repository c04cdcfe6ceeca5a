"""The shared state of a server's connections: the threads that run requests, and limits on what they hold."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple, Protocol

from chalicelib.core.base.limits import MIB
from local.http1 import Head, RawResponse

BODIES_BYTES_MAX = 256 * MIB
"""All large bodies together, from the first byte to the answer: eight of the largest, or sixty of a whole batch."""

STARTS_AT_ONCE_MAX = 8
"""A look into the memory store takes a millisecond or two, and a pop first waits ten: so the loop keeps most of the
time, and hundreds begin in a second."""


HasHungUp = Callable[[], bool]


class Pace(Enum):
    AT_ONCE = "waits for nothing"
    SOON = "may wait for a store"
    LONG = "may wait for messages"


class Task(NamedTuple):
    """The work of a request. `run` belongs in the event loop's thread if `pace` is `AT_ONCE`, which saves a hand-over;
    else in a thread of a pool."""

    pace: Pace
    run: Callable[[HasHungUp], RawResponse]


Find = Callable[[Head, bytes | None], Task]
Judge = Callable[[Head], RawResponse | None]
"""The answer to a request that its head alone has refused; None: its body is needed."""


class OpenConnection(Protocol):
    def finish(self) -> None:
        """Answers the request under way, if there is one, and takes no other."""

    def end(self) -> None: ...


class StartLimit:
    """Lets requests that may wait begin a few at a time. Until it waits, such a request competes with the event loop
    for the interpreter: when a thousand began at once, the loop got a thousandth of the time, and a produce waited for
    seconds. Use it in the event loop's thread alone. `call_soon`: calls a function after the loop's current task."""

    def __init__(self, call_soon: Callable[[Callable[[], object]], object]) -> None:
        self._call_soon = call_soon
        self._free = STARTS_AT_ONCE_MAX
        self._waiting: deque[Callable[[], object]] = deque()

    def acquire(self, go_on: Callable[[], object]) -> bool:
        """Returns whether one more may begin now; if not, calls `go_on` when it may."""
        if self._free:
            self._free -= 1
            return True
        self._waiting.append(go_on)
        return False

    def release(self) -> None:
        """A request that has begun waits now, or has ended."""
        if self._waiting:
            self._call_soon(self._waiting.popleft())
        else:
            self._free += 1


@dataclass
class Workload:
    """`find`: returns the work of a request. `judge`: rejects a request by its head, in a thread of a pool, while its
    large body is still to come. `connections`: the open ones, at most `connections_max`. `waiting`: those that wait for
    their client, for a request, the rest of one, or to read an answer; the longest wait first. `held_bytes`: of large
    bodies that the connections hold. `when_empty`: is called when the last connection is gone after `finish`."""

    find: Find
    judge: Judge
    pools: Mapping[Pace, Executor]
    body_bytes_max: int
    connections_max: int
    is_logging: bool
    when_empty: Callable[[], None]
    starts: StartLimit
    is_finishing: bool = False
    connections: set[OpenConnection] = field(default_factory=set)
    waiting: dict[OpenConnection, None] = field(default_factory=dict)
    held_bytes: int = 0

    def make_room(self) -> bool:
        """Makes room for one more connection: ends the one that has waited longest for its client. False: all are busy,
        or `finish` was called."""
        if self.is_finishing:
            return False
        if len(self.connections) < self.connections_max:
            return True
        longest = next(iter(self.waiting), None)
        if longest:
            longest.end()
        return longest is not None

    def leave(self, connection: OpenConnection) -> None:
        self.connections.discard(connection)
        self.waiting.pop(connection, None)
        self._end_if_empty()

    def finish(self) -> None:
        """Answers what is under way, and nothing else."""
        self.is_finishing = True
        for connection in [*self.connections]:
            connection.finish()
        self._end_if_empty()

    def _end_if_empty(self) -> None:
        if self.is_finishing and not self.connections:
            self.when_empty()
