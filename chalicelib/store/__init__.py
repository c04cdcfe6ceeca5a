"""The storage port: what the core asks of a store. `memory` and `dynamodb` implement it; one contract suite runs both.

Each verb is one round trip. Any of them may raise `StoreUnavailable` (with `outcome="unknown"` when a write may have
landed nevertheless); a write may also land late, after its caller has given up. An item that would come to more than
`ITEM_BYTES_MAX` stays as it was: `StoreUnavailable`, for want of room. What a write has changed is noted in `call`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from chalicelib.base.errors import StoreUnavailable
from chalicelib.table.writes import Item, Key, Refused, Write


@dataclass(frozen=True, slots=True)
class Keys:
    """Read these items by key. What is not there is left out; the order is that of the keys."""

    keys: Sequence[Key]
    strong: bool = False


@dataclass(frozen=True, slots=True)
class Range:
    """Read a partition from sort key `low` to `high`, both included, at most `limit` items (None: all)."""

    pk: str
    low: str
    high: str
    limit: int | None = None
    descending: bool = False
    strong: bool = False


Read = Keys | Range
Outcome = Item | Refused | StoreUnavailable


class Store(Protocol):
    def read(self, reads: Sequence[Read]) -> list[list[Item]]:
        """Answers each read, all at once: one round trip however many. A read that is not strong may be stale."""

    def write(self, write: Write) -> Item:
        """Applies one write atomically and returns the item after it (empty after a removal).

        Raises `Refused` when a guard does not hold, unless the write recognises that it has already landed: then it
        returns the item found."""

    def write_each(self, writes: Sequence[Write]) -> list[Outcome]:
        """Applies writes to different items side by side, each for itself; one round trip."""

    def write_together(self, writes: Sequence[Write]) -> None:
        """Applies writes to different items in one transaction: all or none. Costs double, so never on a hot path.

        Raises `Refused` with the item of the first write whose guard does not hold, unless that recognises that it has
        already landed. A repeat that arrives late does nothing: a transaction is known by a token for ten minutes."""

    def put_all(self, items: Sequence[Item]) -> None:
        """Stores items that are written once under a fresh random key and never change: no guard, no order."""

    def remove_all(self, keys: Sequence[Key]) -> None:
        """Removes items that nobody can reach any more."""

    @property
    def keeps_blobs(self) -> bool:
        """Whether there is a place for payloads that are too big for items."""

    def put_blob(self, name: str, data: bytes) -> None:
        """Stores an object that is written once under a fresh random name and never changes."""

    def get_blob(self, name: str) -> bytes | None:
        """Returns an object stored by `put_blob`; None when it was removed."""

    def remove_blobs(self, names: Sequence[str]) -> None:
        """Removes objects that nobody can reach any more."""


def found_items(outcomes: Sequence[Outcome]) -> list[Item | None]:
    """The item that each write left, or found when it was refused. Raises StoreUnavailable."""
    raise_trouble(outcomes)
    known = [outcome for outcome in outcomes if not isinstance(outcome, StoreUnavailable)]
    return [outcome.before if isinstance(outcome, Refused) else outcome for outcome in known]


def raise_trouble(outcomes: Sequence[Outcome]) -> None:
    """The worst first: what may have landed."""
    troubles = [outcome for outcome in outcomes if isinstance(outcome, StoreUnavailable)]
    if troubles:
        raise max(troubles, key=lambda trouble: trouble.outcome_unknown)
