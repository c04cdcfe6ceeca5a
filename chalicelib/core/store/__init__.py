"""The storage port. `dynamodb` implements it, and `local.memory` for tests; one contract suite tests both.

Each verb is one round trip. Each may raise `StoreUnavailable` (with `outcome="unknown"` if a write may have landed); a
write may also land late, after its caller has given up. A write that would make an item larger than `ITEM_BYTES_MAX`
leaves it unchanged and raises `StoreUnavailable`. A store reports each change to `base.deadline`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from chalicelib.core.base.errors import StoreUnavailable
from chalicelib.core.base.records import record
from chalicelib.core.table.writes import Item, Key, Refused, Write


@record
class Keys:
    """Read these items by key, in the order of the keys. Missing items are omitted."""

    keys: Sequence[Key]
    strong: bool = False


@record
class Range:
    """Read a partition from sort key `low` to `high`, both included, at most `limit` items (None: all)."""

    pk: str
    low: str
    high: str
    limit: int | None = None
    descending: bool = False
    strong: bool = False


class Throttled(StoreUnavailable):
    """The store throttled a write of a `deadline.hasty` caller. The write was not applied and not retried."""


Read = Keys | Range
Outcome = Item | Refused | StoreUnavailable


class Store(Protocol):
    def read(self, reads: Sequence[Read]) -> list[list[Item]]:
        """Returns the items of each read. All reads are one round trip. A read that is not strong may be stale."""

    def write(self, write: Write) -> Item:
        """Applies one write atomically and returns the item after it (empty after a removal).

        Raises `Refused` if a guard fails, unless the write has already landed: then it returns the current item."""

    def write_each(self, writes: Sequence[Write]) -> list[Outcome]:
        """Applies writes to different items in parallel and independently; one round trip."""

    def write_together(self, writes: Sequence[Write]) -> None:
        """Applies writes to different items in one transaction: all or none. Costs double, so never on a hot path.

        Raises `Refused` with the item of the first write whose guard fails, unless that write has already landed. Late
        repeats do nothing: a token identifies the transaction for ten minutes."""

    def put_all(self, items: Sequence[Item]) -> None:
        """Stores items that are written once under a new random key and never change: no guards, no order."""

    def remove_all(self, keys: Sequence[Key]) -> None:
        """Deletes items that are no longer reachable."""

    @property
    def keeps_blobs(self) -> bool:
        """Whether payloads too large for items can be stored."""

    @property
    def is_full(self) -> bool:
        """Whether the store accepts only writes that free space."""

    def put_blob(self, name: str, data: bytes) -> None:
        """Stores an object that is written once under a new random name and never changes."""

    def get_blob(self, name: str) -> bytes | None:
        """Returns an object stored by `put_blob`, or None if it was deleted."""

    def remove_blobs(self, names: Sequence[str]) -> None:
        """Deletes objects that are no longer reachable."""


def found_items(outcomes: Sequence[Outcome]) -> list[Item]:
    """The item after each write, or the current one if its guard failed (empty: none). Raises StoreUnavailable."""
    raise_trouble(outcomes)
    known = [outcome for outcome in outcomes if not isinstance(outcome, StoreUnavailable)]
    return [outcome.before if isinstance(outcome, Refused) else outcome for outcome in known]


def raise_trouble(outcomes: Sequence[Outcome]) -> None:
    """Raises the most severe error: one of a write that may have landed, if any."""
    troubles = [outcome for outcome in outcomes if isinstance(outcome, StoreUnavailable)]
    if troubles:
        raise max(troubles, key=lambda trouble: trouble.outcome_unknown)
