"""Guards and effects on an item in memory, as DynamoDB evaluates them."""

from __future__ import annotations

from typing import Any

from chalicelib.core.table import writes

NOTHING = object()


def find(item: writes.Item | None, path: writes.Path) -> Any:
    """Returns the value at this path, or `NOTHING`."""
    place: Any = item or {}
    for step in path:
        try:
            place = place[step]
        except (KeyError, IndexError):
            return NOTHING
    return place


def allows(write: writes.Write, item: writes.Item | None) -> bool:
    return all(holds(guard, item) for guard in write.guards)


def holds(guard: writes.Guard, item: writes.Item | None) -> bool:
    if isinstance(guard, writes.Either):
        return holds(guard.first, item) or holds(guard.second, item)
    value = find(item, guard.path)
    match guard:
        case writes.Exists():
            return value is not NOTHING
        case writes.Absent():
            return value is NOTHING
        case writes.Equals(_, wanted):
            return bool(value == wanted)
        case writes.AtMost(_, most):
            return value is not NOTHING and value <= most
        case writes.AtLeast(_, least):
            return value is not NOTHING and value >= least
        case writes.SizeIs(_, size):
            return value is not NOTHING and len(value) == size
        case writes.SizeBelow(_, size):
            return value is not NOTHING and len(value) < size
        case writes.Lacks(_, element):
            return value is NOTHING or element not in value


def after(before: writes.Item | None, write: writes.Write) -> writes.Item | None:
    """The item after the effects. It shares all parts that no effect touches with the old item."""
    if write.is_removal:
        return None
    item: dict[str, Any] = dict(before or {"pk": write.key.pk, "sk": write.key.sk})
    for effect in write.effects:
        _apply(effect, before, item)
    return item


def _apply(effect: writes.Effect, before: writes.Item | None, after: dict[str, Any]) -> None:
    match effect:
        case writes.Set(path, value):
            _set(after, path, value)
        case writes.Add(path, amount, start):
            known = find(before, path)
            _set(after, path, (start if known is NOTHING else known) + amount)
        case writes.Append(path, elements, onto):
            known = find(before, onto or path)
            _set(after, path, [*([] if known is NOTHING else known), *elements])
        case writes.Remove(path):
            _set(after, path, NOTHING)


def _set(place: Any, path: writes.Path, value: Any) -> None:
    """Sets a path, copying each container on the way, since readers may hold the old item."""
    for step in path[:-1]:
        place[step] = place[step].copy()
        place = place[step]
    if value is NOTHING:
        place.pop(path[-1], None)
    else:
        place[path[-1]] = value
