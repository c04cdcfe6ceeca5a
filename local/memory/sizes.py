"""DynamoDB's accounting: the size of an item in bytes, and the units that reading and writing it costs.

Source: Amazon DynamoDB Developer Guide, "DynamoDB item sizes and formats" and "Capacity unit consumption". A number's
size is documented as approximate; ours is the documented formula.
"""

from __future__ import annotations

from typing import Any

from chalicelib.core.base.limits import KIB
from chalicelib.core.table import writes
from chalicelib.core.table.writes import Item, Write
from local.memory.evaluate import NOTHING, find

_CONTAINER_BYTES, _ELEMENT_BYTES = 3, 1


class Sized(dict[str, Any]):
    """An item with its size, computed once: counting a full segment takes longer than writing it."""

    __slots__ = ("bytes",)
    bytes: int


def bytes_of(item: Item | None) -> int:
    if not isinstance(item, Sized):
        return item_bytes(item or {})
    try:
        return item.bytes
    except AttributeError:
        item.bytes = item_bytes(item)
        return item.bytes


def sized(before: Item | None, write: Write, item: Item) -> Sized:
    """The item after the write. Its size is the item's earlier size plus the changes of the effects."""
    made = item if isinstance(item, Sized) else Sized(item)
    if before:
        made.bytes = bytes_of(before) + sum(_growth(effect, before, item) for effect in write.effects)
    return made


def item_bytes(item: Item) -> int:
    return sum(len(name.encode()) + value_bytes(value) for name, value in item.items())


def value_bytes(value: Any) -> int:
    if isinstance(value, str):
        return len(value.encode())
    if isinstance(value, bytes):
        return len(value)
    if isinstance(value, bool) or value is None:
        return 1
    if isinstance(value, int):
        return _number_bytes(value)
    if isinstance(value, list):
        return _CONTAINER_BYTES + sum(_ELEMENT_BYTES + value_bytes(element) for element in value)
    return _CONTAINER_BYTES + sum(
        _ELEMENT_BYTES + len(name.encode()) + value_bytes(element) for name, element in value.items()
    )


def _growth(effect: writes.Effect, before: Item, item: Item) -> int:
    if isinstance(effect, writes.RemoveItem):
        return 0
    if isinstance(effect, writes.Append) and effect.onto is None and find(before, effect.path) is not NOTHING:
        return sum(_ELEMENT_BYTES + value_bytes(element) for element in effect.elements)
    return _bytes_at(item, effect.path) - _bytes_at(before, effect.path)


def _bytes_at(item: Item, path: writes.Path) -> int:
    value, name = find(item, path), path[-1]
    if value is NOTHING:
        return 0
    own = len(name.encode()) if isinstance(name, str) else 0
    return own + value_bytes(value) + (_ELEMENT_BYTES if len(path) > 1 else 0)


def _number_bytes(value: int) -> int:
    digits = str(abs(value)).rstrip("0")
    return 1 + (len(digits) + 1) // 2 + (value < 0)


def write_units(before: Item | None, after: Item | None) -> int:
    """One per started KB of the item before or after, whichever is larger."""
    size = max(bytes_of(before), bytes_of(after))
    return max(1, -(-size // KIB))


def read_units(size: int, strong: bool) -> float:
    """One per started 4 KB, half if the read may be stale; a read that finds nothing costs the minimum."""
    return max(1, -(-size // (4 * KIB))) * (1.0 if strong else 0.5)
