"""The condition of a Query: one partition, and a range of its sort keys."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

HIGHEST = "\U0010ffff"
"""No sort key is behind it."""

PARENTHESES_MAX = 20
"""The reader recurses into nested terms; two terms need few levels."""

_TOKEN = re.compile(r"#?\w+|:\w+|<=|>=|<>|[<>=(),]")
_NO_BETWEEN = ("=", "<=", "<", ">=", ">")


class KeyRange(NamedTuple):
    """A partition from `low` to `high`, both included, but for the keys `without`."""

    pk: str
    low: str = ""
    high: str = HIGHEST
    without: str | None = None


class Unreadable(ValueError):
    """A condition that cannot be read; the message says why."""


def key_range(expression: str, names: Mapping[str, str], values: Mapping[str, str]) -> KeyRange:
    """Returns the keys that the condition selects. `names` and `values`: by placeholder. Raises `Unreadable`."""
    reader = _Reader(expression, names, values)
    terms = reader.terms()
    if reader.rest:
        raise Unreadable(f"{' '.join(reader.rest)!r} is too much")
    return _selected(terms)


_Term = tuple[str, str, Sequence[str]]
"""An attribute, an operator, and its operands."""


def _selected(terms: Sequence[_Term]) -> KeyRange:
    by_name = {name: (operator, operands) for name, operator, operands in terms}
    if len(by_name) < len(terms) or not by_name.keys() <= {"pk", "sk"}:
        raise Unreadable("it may name pk and sk, each once")
    operator, operands = by_name.get("pk", ("", ()))
    if operator != "=":
        raise Unreadable("it must have pk = a value")
    pk = operands[0]
    operator, operands = by_name.get("sk", (">=", ("",)))
    first, last = operands[0], operands[-1]
    match operator:
        case "<" | "<=":
            return KeyRange(pk, high=last, without=last if operator == "<" else None)
        case ">" | ">=":
            return KeyRange(pk, low=first, without=first if operator == ">" else None)
        case "begins_with":
            return KeyRange(pk, first, first + HIGHEST)
    return KeyRange(pk, first, last)


class _Reader:
    def __init__(self, expression: str, names: Mapping[str, str], values: Mapping[str, str]) -> None:
        self.rest = _TOKEN.findall(expression)
        if "".join(self.rest) != re.sub(r"\s", "", expression):
            raise Unreadable(f"{expression!r} cannot be read")
        if self.rest.count("(") > PARENTHESES_MAX:
            raise Unreadable(f"it has more than {PARENTHESES_MAX} parentheses")
        self._names, self._values = names, values

    def terms(self) -> list[_Term]:
        terms = self._one()
        while self._takes("AND"):
            terms += self._one()
        return terms

    def _one(self) -> list[_Term]:
        if self._takes("("):
            terms = self.terms()
            self._demand(")")
            return terms
        if self._takes("begins_with"):
            self._demand("(")
            name = self._name()
            self._demand(",")
            value = self._value()
            self._demand(")")
            return [(name, "begins_with", [value])]
        name = self._name()
        if self._takes("BETWEEN"):
            low = self._value()
            self._demand("AND")
            return [(name, "BETWEEN", [low, self._value()])]
        operator = self._next()
        if operator not in _NO_BETWEEN:
            raise Unreadable(f"{operator!r} is not an operator of keys")
        return [(name, operator, [self._value()])]

    def _name(self) -> str:
        token = self._next()
        if token.startswith("#") and token not in self._names:
            raise Unreadable(f"ExpressionAttributeNames lacks {token!r}")
        return self._names.get(token, token)

    def _value(self) -> str:
        token = self._next()
        if token not in self._values:
            raise Unreadable(f"ExpressionAttributeValues lacks {token!r}")
        return self._values[token]

    def _next(self) -> str:
        if not self.rest:
            raise Unreadable("it ends too early")
        token: str = self.rest.pop(0)
        return token

    def _takes(self, word: str) -> bool:
        is_next = bool(self.rest) and self.rest[0].upper() == word.upper()
        if is_next:
            self.rest.pop(0)
        return is_next

    def _demand(self, word: str) -> None:
        if not self._takes(word):
            raise Unreadable(f"{word!r} is missing")
