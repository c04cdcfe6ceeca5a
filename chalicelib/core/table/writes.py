"""The vocabulary of state changes: a write's guards, its effects, and how it recognizes its own result.

Every state change is one `Write`, or a few in one transaction. A named constructor in the module of the topic, segment,
cursor or dead letter builds it, and a store applies it as one atomic request. The stores interpret only this
vocabulary, so the memory store and DynamoDB behave alike.

A path names a place inside an item: `("leases", token)`, `("next", 0)`. The right-hand side of every effect reads the
item as it was before the write, and no two effects of a write touch the same place, as in DynamoDB.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from chalicelib.core.base.records import record

Item = Mapping[str, Any]
"""One item. Attributes are str, int, bytes, bool, list or dict. Never change one in place: stores share their items."""

Path = tuple[str | int, ...]


class Key(NamedTuple):
    pk: str
    sk: str


def key_of(item: Item) -> Key:
    return Key(item["pk"], item["sk"])


# -- guards -----------------------------------------------------------------------------------------------------------


@record
class Exists:
    path: Path


@record
class Absent:
    path: Path


@record
class Equals:
    path: Path
    value: str | int


@record
class AtMost:
    path: Path
    value: int


@record
class AtLeast:
    path: Path
    value: int


@record
class SizeIs:
    """The list or map exists and has this many elements."""

    path: Path
    size: int


@record
class SizeBelow:
    path: Path
    size: int


@record
class Lacks:
    """No element of the list equals this one. A missing list lacks everything."""

    path: Path
    element: Any


@record
class Either:
    first: Guard
    second: Guard


Guard = Exists | Absent | Equals | AtMost | AtLeast | SizeIs | SizeBelow | Lacks | Either

# -- effects ----------------------------------------------------------------------------------------------------------


@record
class Set:
    path: Path
    value: Any


def sets(values: Mapping[str, Any]) -> tuple[Set, ...]:
    """Sets each of these attributes."""
    return tuple(Set((name,), value) for name, value in values.items())


@record
class Add:
    """Adds to a number; a missing one counts as `start`."""

    path: Path
    amount: int
    start: int = 0


@record
class Append:
    """Sets the path to the list at `onto` (default: the list at the path, or an empty one) plus these elements."""

    path: Path
    elements: list[Any]
    onto: Path | None = None


@record
class Remove:
    path: Path


@record
class RemoveItem:
    """Deletes the whole item; must be the only effect."""


Assignment = Set | Add | Append
Effect = Assignment | Remove | RemoveItem

# -- writes -----------------------------------------------------------------------------------------------------------


def never_landed(_before: Item) -> bool:
    """For writes whose caller inspects the item instead, since any caller may have made the same change."""
    return False


@record
class Write:
    """One conditional request on one item.

    When a guard fails, `landed` checks whether the item already has this write's own effect. A repeat of a request
    whose response was lost has then succeeded. `landed` gets the current item, empty if there is none.
    """

    key: Key
    guards: tuple[Guard, ...]
    effects: tuple[Effect, ...]
    landed: Callable[[Item], bool] = never_landed

    @property
    def is_removal(self) -> bool:
        return isinstance(self.effects[0], RemoveItem)


class Refused(Exception):
    """A guard failed, and the write had not landed before. `before`: the current item, empty if there is none."""

    def __init__(self, before: Item) -> None:
        super().__init__("write refused")
        self.before = before
