"""Puts items into a store and looks at them, for tests."""

from __future__ import annotations

from typing import Any

from chalicelib.core.store import Keys, Range, Store
from chalicelib.core.table.writes import Effect, Guard, Item, Key, Refused, Write

LOW, HIGH = "!", "~~"
"""Sort before and after every sort key that the tests use."""


def put(store: Store, key: Key, **attributes: Any) -> Item:
    item = {"pk": key.pk, "sk": key.sk, **attributes}
    store.put_all([item])
    return item


def found(store: Store, key: Key) -> Item | None:
    items = store.read([Keys([key], strong=True)])[0]
    return items[0] if items else None


def everything(store: Store, pk: str) -> list[Item]:
    return store.read([Range(pk, LOW, HIGH, strong=True)])[0]


def change(key: Key, *effects: Effect) -> Write:
    """A write without a guard."""
    return Write(key, (), effects)


def guarded(key: Key, guard: Guard, *effects: Effect) -> Write:
    return Write(key, (guard,), effects)


def is_applied(store: Store, write: Write) -> bool:
    try:
        store.write(write)
    except Refused:
        return False
    return True
