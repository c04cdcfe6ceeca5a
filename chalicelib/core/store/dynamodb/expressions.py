"""Writes as DynamoDB's condition and update expressions.

Every name goes in as a placeholder, since many are reserved words (`end`, `next`, `count`). A size is
compared only where the path exists: DynamoDB evaluates it to false otherwise, some emulators raise an error.
"""

from __future__ import annotations

from typing import Any

from chalicelib.core.store.dynamodb.values import typed
from chalicelib.core.table import writes


class Expressions:
    """Collects the placeholders of one request."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._values: dict[str, Any] = {}

    def parameters(self, write: writes.Write) -> dict[str, Any]:
        """The expression parameters of an update, or of a deletion."""
        condition = " AND ".join(self._guard(guard) for guard in write.guards)
        update = None if write.is_removal else self._update(write.effects)
        parameters = {
            "ConditionExpression": condition,
            "UpdateExpression": update,
            "ExpressionAttributeNames": {placeholder: name for name, placeholder in self._names.items()},
            "ExpressionAttributeValues": self._values,
        }
        return {name: value for name, value in parameters.items() if value}

    def _update(self, effects: tuple[writes.Effect, ...]) -> str:
        removed = [self._path(effect.path) for effect in effects if isinstance(effect, writes.Remove)]
        assigned = [self._assignment(effect) for effect in effects if isinstance(effect, writes.Assignment)]
        parts = [f"SET {', '.join(assigned)}"] if assigned else []
        return " ".join(parts + ([f"REMOVE {', '.join(removed)}"] if removed else []))

    def _assignment(self, effect: writes.Assignment) -> str:
        path = self._path(effect.path)
        match effect:
            case writes.Set(_, value):
                return f"{path} = {self._value(value)}"
            case writes.Add(_, amount, start):
                return f"{path} = if_not_exists({path}, {self._value(start)}) + {self._value(amount)}"
            case writes.Append(_, elements, onto):
                before = f"if_not_exists({path}, {self._value([])})" if onto is None else self._path(onto)
                return f"{path} = list_append({before}, {self._value(elements)})"

    def _guard(self, guard: writes.Guard) -> str:
        if isinstance(guard, writes.Either):
            return f"({self._guard(guard.first)} OR {self._guard(guard.second)})"
        path = self._path(guard.path)
        match guard:
            case writes.Exists():
                return f"attribute_exists({path})"
            case writes.Absent():
                return f"attribute_not_exists({path})"
            case writes.Equals(_, value):
                return f"{path} = {self._value(value)}"
            case writes.AtMost(_, value):
                return f"{path} <= {self._value(value)}"
            case writes.AtLeast(_, value):
                return f"{path} >= {self._value(value)}"
            case writes.SizeIs(_, size):
                return f"(attribute_exists({path}) AND size({path}) = {self._value(size)})"
            case writes.SizeBelow(_, size):
                return f"(attribute_exists({path}) AND size({path}) < {self._value(size)})"
            case writes.Lacks(_, element):
                return f"NOT contains({path}, {self._value(element)})"

    def _path(self, path: writes.Path) -> str:
        text = ""
        for step in path:
            if isinstance(step, int):
                text += f"[{step}]"
            else:
                text += ("." if text else "") + self._name(step)
        return text

    def _name(self, name: str) -> str:
        return self._names.setdefault(name, f"#{len(self._names)}")

    def _value(self, value: Any) -> str:
        placeholder = f":{len(self._values)}"
        self._values[placeholder] = typed(value)
        return placeholder
