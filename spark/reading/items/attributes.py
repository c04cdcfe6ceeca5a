"""DynamoDB's typed JSON: `{"S": "text"}`, `{"N": "12"}`, `{"B": "base64"}`, `{"BOOL": true}`, `{"L": [...]}`, `{"M":
{...}}`. An attribute of a type other than in the data dictionary makes the item `Malformed`."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from typing import Any

_LONG_MAX = 1 << 63
_CONTAINER_BYTES = 3


class Malformed(Exception):
    """The reason why an item is invalid, in one line."""


class Attributes:
    """The attributes of an item, or of a map in it, by name and type."""

    def __init__(self, typed: object) -> None:
        if not isinstance(typed, dict):
            raise Malformed("the item is not an object")
        self._typed: dict[str, Any] = typed

    def __contains__(self, name: str) -> bool:
        return name in self._typed

    def value(self, name: str) -> object:
        """The attribute with its type; None if it is missing."""
        return self._typed.get(name)

    def text(self, name: str) -> str:
        value: str = self._get(name, "S", str)
        return value

    def number(self, name: str) -> int:
        return as_number(self._typed.get(name), name)

    def binary(self, name: str) -> bytes:
        return as_binary(self._typed.get(name), name)

    def flag(self, name: str) -> bool:
        value: bool = self._get(name, "BOOL", bool)
        return value

    def many(self, name: str) -> list[Any]:
        value: list[Any] = self._get(name, "L", list)
        return value

    def mapped(self, name: str) -> dict[str, Any]:
        value: dict[str, Any] = self._get(name, "M", dict)
        return value

    def maybe_number(self, name: str) -> int | None:
        return self.number(name) if name in self._typed else None

    def maybe_text(self, name: str) -> str | None:
        return self.text(name) if name in self._typed else None

    def maybe_flag(self, name: str, default: bool) -> bool:
        return self.flag(name) if name in self._typed else default

    def is_text(self, name: str) -> bool:
        """Whether an attribute that may have several types is text."""
        return "S" in (self._typed.get(name) or {})

    def _get(self, name: str, kind: str, python: type) -> Any:
        return _inner(self._typed.get(name), name, kind, python)

    @property
    def weight(self) -> int:
        """The item's size in the table, as DynamoDB counts."""
        return sum(len(name.encode()) + _weight(value) for name, value in self._typed.items())


def as_number(value: object, name: str) -> int:
    text: str = _inner(value, name, "N", str)
    if not re.fullmatch("-?[0-9]{1,40}", text):
        raise Malformed(f"attribute {name!r} is not a whole number: {text[:40]!r}")
    number = int(text)
    if not -_LONG_MAX <= number < _LONG_MAX:
        raise Malformed(f"attribute {name!r} is out of range: {text[:40]!r}")
    return number


def as_binary(value: object, name: str) -> bytes:
    try:
        return base64.b64decode(_inner(value, name, "B", str), validate=True)
    except (binascii.Error, ValueError):
        raise Malformed(f"attribute {name!r} is not base64") from None


def as_list(value: object, name: str) -> list[Any]:
    inner: list[Any] = _inner(value, name, "L", list)
    return inner


def as_attributes(value: object, name: str) -> Attributes:
    return Attributes(_inner(value, name, "M", dict))


def _inner(value: object, name: str, kind: str, python: type) -> Any:
    if value is None:
        raise Malformed(f"attribute {name!r} is missing")
    inner = value.get(kind) if isinstance(value, Mapping) and len(value) == 1 else None
    if not isinstance(inner, python):
        raise Malformed(f"attribute {name!r} is not of type {kind}")
    return inner


def _weight(value: object) -> int:
    if not isinstance(value, dict) or len(value) != 1:
        raise Malformed("an attribute is not of one type")
    kind, inner = next(iter(value.items()))
    match kind, inner:
        case "S", str():
            return len(inner.encode())
        case "N", str():
            return _number_weight(inner)
        case "B", str():
            return len(inner) * 3 // 4 - inner[-2:].count("=")
        case "BOOL" | "NULL", _:
            return 1
        case "L", list():
            return _CONTAINER_BYTES + sum(1 + _weight(element) for element in inner)
        case "M", dict():
            return _CONTAINER_BYTES + sum(1 + len(name.encode()) + _weight(element) for name, element in inner.items())
        case (("SS" | "NS" | "BS"), list()):
            return sum(_weight({kind[0]: element}) for element in inner)
    raise Malformed(f"an attribute has the unknown type {kind[:20]!r}")


def _number_weight(text: str) -> int:
    digits = text.lstrip("-").replace(".", "").strip("0")
    return 1 + (len(digits) + 1) // 2 + text.startswith("-")
