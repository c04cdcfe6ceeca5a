"""Writes as DynamoDB's condition and update expressions, and the attribute values of items in its typed JSON.

Every name goes in as a placeholder, since many are reserved words (`end`, `next`, `count`). A size is
compared only where the path exists: DynamoDB evaluates it to false otherwise, some emulators raise an error."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Mapping
from typing import Any

from chalicelib.core.table import writes
from chalicelib.core.table.writes import Item

Typed = dict[str, Any]


def typed(value: Any) -> Typed:
    if isinstance(value, bool):
        return {"BOOL": value}
    if isinstance(value, str):
        return {"S": value}
    if isinstance(value, int):
        return {"N": str(value)}
    if isinstance(value, bytes):
        return {"B": value}
    if isinstance(value, list):
        return {"L": [typed(element) for element in value]}
    return {"M": typed_item(value)}


def typed_item(item: Mapping[str, Any]) -> dict[str, Typed]:
    return {name: typed(value) for name, value in item.items()}


def plain(value: Mapping[str, Any]) -> Any:
    ((kind, content),) = value.items()
    match kind:
        case "N":
            return int(content)
        case "L":
            # most lists are leases, of numbers: without a call for each number, a thousand leases take a third less
            # time
            return [int(element["N"]) if "N" in element else plain(element) for element in content]
        case "M":
            return plain_item(content)
        case "B" if isinstance(content, str):
            return b64decode(content)
    return content


def plain_item(item: Mapping[str, Any]) -> Item:
    return {name: plain(value) for name, value in item.items()}


def outbox_put(table: str, item: Item) -> dict[str, Any]:
    """A message as one of the `TransactItems` of the caller's own transaction. It fails if the item already exists."""
    put = {"TableName": table, "Item": typed_item(item), "ConditionExpression": "attribute_not_exists(pk)"}
    return {"Put": put}


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
