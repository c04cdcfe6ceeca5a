"""DynamoDB's accounting: the size of an item in bytes, and the units that reading and writing it costs.

Source: Amazon DynamoDB Developer Guide, "DynamoDB item sizes and formats" and "Capacity unit consumption". A number's
size is documented as approximate; ours is the documented formula.
"""

from __future__ import annotations

from typing import Any

from chalicelib.base.limits import KIB
from chalicelib.table.writes import Item


def item_bytes(item: Item) -> int:
    return sum(len(name.encode()) + value_bytes(value) for name, value in item.items())


def value_bytes(value: Any) -> int:
    if isinstance(value, bool) or value is None:
        return 1
    if isinstance(value, str):
        return len(value.encode())
    if isinstance(value, bytes):
        return len(value)
    if isinstance(value, int):
        return _number_bytes(value)
    if isinstance(value, list):
        return 3 + sum(1 + value_bytes(element) for element in value)
    return 3 + sum(1 + len(name.encode()) + value_bytes(element) for name, element in value.items())


def _number_bytes(value: int) -> int:
    digits = str(abs(value)).rstrip("0")
    return 1 + (len(digits) + 1) // 2 + (value < 0)


def write_units(before: Item | None, after: Item | None) -> int:
    """One per started KB of the item before or after, whichever is larger."""
    size = max(item_bytes(before or {}), item_bytes(after or {}))
    return max(1, -(-size // KIB))


def read_units(size: int, strong: bool) -> float:
    """One per started 4 KB, half if the read may be stale; a read that finds nothing costs the minimum."""
    return max(1, -(-size // (4 * KIB))) * (1.0 if strong else 0.5)
