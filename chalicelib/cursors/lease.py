"""A lease: the messages of one queue that one pop took, and what has become of each since.

It lives inside its cursor, under its token, as the list `[start, count, deadline, attempt, mark...]`. It covers the
offsets from `start` to `start + count`; it *owes* those that no mark names. A mark is appended and never changed, so
marking needs no compare-and-swap: where two marks name one message, the first in the list counts. A mark is binary: one
letter, then the set of indexes as a little-endian bit mask.

    a   acked through this lease: settled
    m   moved: nacked, extended into another lease, or taken over after the deadline

It is born without marks. One that owes nothing any more is inert: if all was acked it goes at once; if it lost
messages it stays for a while as a *witness*, so that a late receipt hears that it lost, and not that it acked. A lease
whose token begins with `~` is *parked*, after a nack: nobody holds it, and at its deadline it is due again.

The list only ever grows, so its length is the lease's version. When many marks have come together, the next write puts
what they say into two, and leaves the others empty.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple

from chalicelib.base.runtime import Runtime
from chalicelib.table.writes import Path

MARKS_MAX = 8
"""Marks of a lease that the next write merges; otherwise single acks would make the cursor heavy."""

ACKED = b"a"
MOVED = b"m"
CONFIRMED = ACKED
"""A mark that names no message: a second call of an attempt delivers the lease, too."""

TOKEN_CHARS = 8
"""The part of a token that names the pop; what it extends or takes over adds `SPLIT_CHARS` random ones."""
SPLIT_CHARS = 6

_FATES_KEPT_MAX = 4_096
"""What marks say, kept by one instance: most leases have none, or the same as a moment ago."""

PARKED = "~"
"""Begins the token of a parked lease, where no pop's token does."""


def mark(letter: bytes, indexes: Iterable[int]) -> bytes:
    mask = 0
    for index in indexes:
        mask |= 1 << index
    return letter + mask.to_bytes((mask.bit_length() + 7) // 8, "little")


def runs(indexes: Iterable[int]) -> list[range]:
    """The indexes as unbroken ranges: a lease covers neighbours, so what is split off makes one lease per run."""
    found: list[range] = []
    for index in sorted(indexes):
        if found and found[-1].stop == index:
            found[-1] = range(found[-1].start, index + 1)
        else:
            found.append(range(index, index + 1))
    return found


class Fates(NamedTuple):
    """The indexes of a lease's messages, by what has become of them."""

    owed: tuple[int, ...]
    acked: frozenset[int]
    moved: frozenset[int]


@lru_cache(_FATES_KEPT_MAX)
def _fates(count: int, marks: tuple[bytes, ...]) -> Fates:
    """Of two marks that name one message, the first counts."""
    left, acked, moved = (1 << count) - 1, 0, 0
    for each in marks:
        fresh = int.from_bytes(each[1:], "little") & left
        left &= ~fresh
        if each[:1] == ACKED:
            acked |= fresh
        else:
            moved |= fresh
    return Fates(tuple(_indexes(left)), frozenset(_indexes(acked)), frozenset(_indexes(moved)))


def _indexes(mask: int) -> Iterator[int]:
    return (index for index in range(mask.bit_length()) if mask >> index & 1)


@dataclass(frozen=True, slots=True)
class Lease:
    token: str
    start: int
    count: int
    deadline: int
    attempt: int
    marks: tuple[bytes, ...] = ()

    @classmethod
    def of(cls, token: str, listed: list[Any]) -> Lease:
        start, count, deadline, attempt, *marks = listed
        return cls(token, start, count, deadline, attempt, tuple(marks))

    def listed(self) -> list[Any]:
        return [self.start, self.count, self.deadline, self.attempt, *self.marks]

    @property
    def path(self) -> Path:
        return ("leases", self.token)

    @property
    def size(self) -> int:
        """Elements of the list: it grows with every mark, so it is the lease's version."""
        return 4 + len(self.marks)

    @property
    def parked(self) -> bool:
        return self.token.startswith(PARKED)

    @property
    def is_witness(self) -> bool:
        """Whether there are receipts for messages that it has lost."""
        return bool(self.moved) and not self.parked

    @property
    def is_confirmed(self) -> bool:
        return CONFIRMED in self.marks

    @property
    def is_scribbled(self) -> bool:
        """Whether it has more marks than two would need."""
        return sum(len(each) > 1 for each in self.marks) >= MARKS_MAX

    def tidied(self) -> Lease:
        """The same, and as long, with all that its marks say in the first two."""
        told = (mark(ACKED, self.acked), mark(MOVED, self.moved))
        return replace(self, marks=(*told, *[mark(ACKED, ())] * (len(self.marks) - len(told))))

    @property
    def acked(self) -> frozenset[int]:
        return _fates(self.count, self.marks).acked

    @property
    def moved(self) -> frozenset[int]:
        return _fates(self.count, self.marks).moved

    @property
    def owed(self) -> tuple[int, ...]:
        """The indexes that are not settled, in order."""
        return _fates(self.count, self.marks).owed

    @property
    def owed_offsets(self) -> list[int]:
        return [self.start + index for index in self.owed]

    def owes(self, offset: int) -> bool:
        return (offset - self.start) in self.owed

    def is_due(self, now: int) -> bool:
        """Whether its messages may be delivered again."""
        return self.deadline <= now and bool(self.owed)


def parked(runtime: Runtime, offsets: range, due: int, attempt: int) -> Lease:
    """`attempt`: the deliveries so far. The token is one that was never used."""
    token = PARKED + runtime.name(TOKEN_CHARS + SPLIT_CHARS - 1)
    return Lease(token, offsets.start, len(offsets), due, attempt)
