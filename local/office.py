"""What the connections of a server share: who carries out their requests, and how much they may hold together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple, Protocol

from chalicelib.core.base.limits import MIB
from local.beginnings import Beginnings
from local.request import Answer, Head

BODIES_BYTES_MAX = 256 * MIB
"""Of all large bodies that are received or carried out: eight of the largest, or sixty of a whole batch."""

HasHungUp = Callable[[], bool]


class Pace(Enum):
    AT_ONCE = "waits for nothing"
    SOON = "may wait for a store"
    LONG = "may wait for messages"


class Task(NamedTuple):
    """What a request asks for. `run`: in the event loop's thread if its `pace` is `AT_ONCE`, which saves handing it
    over; else in a thread of a pool."""

    pace: Pace
    run: Callable[[HasHungUp], Answer]


Find = Callable[[Head, bytes | None], Task]
Judge = Callable[[Head], Answer | None]
"""The answer to a request that its head alone has refused; None: its body is needed."""


class Member(Protocol):
    def finish(self) -> None:
        """Answers the request under way, if there is one, and takes no other."""

    def end(self) -> None: ...


@dataclass
class Office:
    """`find`: what a request asks for. `judge`: of a request whose large body is still to come, in a thread of a pool.
    `connections`: those that are open, at most `connections_max`. `waiting`: those of them that wait for their client,
    for a request, the rest of one, or to read an answer; the longest wait first. `held_bytes`: of large bodies that the
    connections hold. `when_empty`: is called when an office that is to finish has no connection left."""

    find: Find
    judge: Judge
    pools: Mapping[Pace, Executor]
    body_bytes_max: int
    connections_max: int
    is_logging: bool
    when_empty: Callable[[], None]
    beginnings: Beginnings
    is_finishing: bool = False
    connections: set[Member] = field(default_factory=set)
    waiting: dict[Member, None] = field(default_factory=dict)
    held_bytes: int = 0

    def make_room(self) -> bool:
        """For one more connection: ends the one that has waited longest for its client. False: all are busy, or the
        office is to finish."""
        if self.is_finishing:
            return False
        if len(self.connections) < self.connections_max:
            return True
        longest = next(iter(self.waiting), None)
        if longest:
            longest.end()
        return longest is not None

    def leave(self, member: Member) -> None:
        self.connections.discard(member)
        self.waiting.pop(member, None)
        self._look_whether_empty()

    def finish(self) -> None:
        """Answers what is under way, and nothing else."""
        self.is_finishing = True
        for member in [*self.connections]:
            member.finish()
        self._look_whether_empty()

    def _look_whether_empty(self) -> None:
        if self.is_finishing and not self.connections:
            self.when_empty()
