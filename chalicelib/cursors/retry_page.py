"""A retry page: parked leases that would make their cursor heavy, in an item of their own until the first is due.

The cursor notes each page under its id in `pages`, as `[due, count, low]`. A page is written and noted in one
transaction, and removed in another that puts its leases back into the cursor; in between it never changes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from chalicelib.cursors.lease import Lease
from chalicelib.table.writes import Item, Key, Path, RemoveItem, Set, Write


@dataclass(frozen=True, slots=True)
class RetryPage:
    """`due`: when the first of its messages is. `count`: of messages. `low`: the lowest offset."""

    id: str
    due: int
    count: int
    low: int

    @classmethod
    def of(cls, page_id: str, noted: list[int]) -> RetryPage:
        due, count, low = noted
        return cls(page_id, due, count, low)

    @classmethod
    def holding(cls, page_id: str, leases: Iterable[Lease]) -> RetryPage:
        held = list(leases)
        due = min(lease.deadline for lease in held)
        return cls(page_id, due, sum(lease.count for lease in held), min(lease.start for lease in held))

    def noted(self) -> list[int]:
        return [self.due, self.count, self.low]

    @property
    def path(self) -> Path:
        return ("pages", self.id)


@dataclass(frozen=True, slots=True)
class Retry:
    """A lease in a page: offsets that come again at `due`, and how often they were delivered."""

    offsets: range
    due: int
    attempt: int


def put(key: Key, leases: Iterable[Lease]) -> Write:
    """The key has a random part that was never used."""
    listed: list[Any] = [[lease.start, lease.count, lease.deadline, lease.attempt] for lease in leases]
    return Write(key, (), (Set(("retries",), listed),))


def retries_of(item: Item) -> list[Retry]:
    return [Retry(range(start, start + count), due, attempt) for start, count, due, attempt in item["retries"]]


def remove(key: Key) -> Write:
    return Write(key, (), (RemoveItem(),))
