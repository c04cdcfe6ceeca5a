"""Guards and effects on an item in memory, as DynamoDB evaluates them."""

from __future__ import annotations

from typing import Any

from chalicelib.table.writes import (
    Absent,
    Add,
    All,
    Append,
    AtMost,
    Effect,
    Either,
    Equals,
    Exists,
    Guard,
    Item,
    Lacks,
    Path,
    Remove,
    RemoveItem,
    Set,
    SizeBelow,
    SizeIs,
    Write,
)

_NOTHING = object()


def _find(item: Item | None, path: Path) -> Any:
    place: Any = item or {}
    for step in path:
        try:
            place = place[step]
        except (KeyError, IndexError):
            return _NOTHING
    return place


def holds(guard: Guard, item: Item | None) -> bool:
    match guard:
        case All(guards):
            return all(holds(each, item) for each in guards)
        case Either(first, second):
            return holds(first, item) or holds(second, item)
    found = _find(item, guard.path)
    match guard:
        case Exists():
            return found is not _NOTHING
        case Absent():
            return found is _NOTHING
        case Equals(_, value):
            return bool(found == value)
        case AtMost(_, value):
            return found is not _NOTHING and found <= value
        case SizeIs(_, size):
            return found is not _NOTHING and len(found) == size
        case SizeBelow(_, size):
            return found is not _NOTHING and len(found) < size
        case Lacks(_, element):
            return found is _NOTHING or element not in found


def after(before: Item | None, write: Write) -> Item | None:
    """The item after the effects. It shares all parts that no effect touches with the old item."""
    if isinstance(write.effects[0], RemoveItem):
        return None
    item: dict[str, Any] = dict(before or {"pk": write.key.pk, "sk": write.key.sk})
    for effect in write.effects:
        _apply(effect, before, item)
    return item


def _apply(effect: Effect, before: Item | None, after: dict[str, Any]) -> None:
    match effect:
        case Set(path, value):
            _set(after, path, value)
        case Add(path, amount, start):
            found = _find(before, path)
            _set(after, path, (start if found is _NOTHING else found) + amount)
        case Append(path, elements, onto):
            found = _find(before, onto or path)
            _set(after, path, [*([] if found is _NOTHING else found), *elements])
        case Remove(path):
            _set(after, path, _NOTHING)


def _set(place: Any, path: Path, value: Any) -> None:
    """Sets a path, copying each container on the way, since readers may hold the old item."""
    for step in path[:-1]:
        place[step] = place[step].copy()
        place = place[step]
    if value is _NOTHING:
        place.pop(path[-1], None)
    else:
        place[path[-1]] = value
