"""Checks what a client sent against the declarations of a request type, and says what is wrong with it.

An error names the field, what it must be, and what it is. `null` means not given. A name that is not declared is
refused: a typo must never be silently ignored.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar

from chalicelib.base.errors import InvalidField, InvalidJson, InvalidName, UnknownField
from chalicelib.base.limits import NAME_PATTERN
from chalicelib.base.schema import Schema, declarations

T = TypeVar("T")


class Label:
    """A field of a request (`noun`: or a parameter) as error texts name it. Without a path: the request itself."""

    __slots__ = ("_name", "_parent", "noun")

    def __init__(self, name: str = "", noun: str = "field", parent: Label | None = None) -> None:
        self._name = name
        self._parent = parent
        self.noun = noun

    @property
    def path(self) -> str:
        above = self._parent.path if self._parent else ""
        return f"{above}.{self._name}" if above else self._name

    def __str__(self) -> str:
        return f"{self.noun} {quoted(self.path)}"

    def inside(self, name: str) -> Label:
        """The label of a field of this object. Cheap: the path is built only for an error."""
        return Label(name, self.noun, self)

    def wrong(self, wanted: str, value: object) -> InvalidField:
        return InvalidField(f"{self} must be {wanted}; it is {shown(value)}")


def checked(kind: type[T], data: object, label: Label = Label()) -> T:
    """The request that this JSON is. Raises UnknownField, InvalidField, and InvalidJson for what is not an object."""
    return kind(**given(kind, data, label))


def given(kind: type, data: object, label: Label = Label()) -> dict[str, Any]:
    """The same as a dict of the fields that are given."""
    if not isinstance(data, dict):
        if label.path:
            raise InvalidField(f"{label} must be a JSON object, not {shown(data)}")
        raise InvalidJson(f"the request must be a JSON object, not {shown(data)}")
    declared = declarations(kind)
    if not data.keys() <= declared.keys():
        unknown = next(name for name in data if name not in declared)
        known = ", ".join(declared) or "none"
        raise UnknownField(f"{label.inside(unknown)} is not known here; known are: {known}")
    values = {}
    needed = _needed(kind)
    for name, value in (needed | data).items():
        if value is not None or name in needed:
            schema, parse, _ = declared[name]
            at = label.inside(name)
            values[name] = parse(value, at) if parse else check(schema, value, at)
    return values


@cache
def _needed(kind: type) -> dict[str, None]:
    return {name: None for name, declared in declarations(kind).items() if declared.is_required}


def check(schema: Schema, value: Any, label: Label) -> Any:
    """The value, if it fits the schema. Raises InvalidField; of a nested object also UnknownField."""
    if isinstance(schema, type):
        return checked(schema, value, label)
    if isinstance(value, dict) and (kinds := [each for each in schema.get("oneOf", ()) if isinstance(each, type)]):
        return checked(kinds[0], value, label)
    if wanted := _wanted(schema, value):
        raise label.wrong(", ".join(wanted[:-1]) + " or " * (len(wanted) > 1) + wanted[-1], value)
    if isinstance(value, list):
        items = next(each["items"] for each in schema.get("oneOf", [schema]) if "items" in each)
        for index, each in enumerate(value):
            if _wanted(items, each):
                check(items, each, Label(f"{label.path}[{index}]", label.noun))
    return value


def _wanted(schema: Schema, value: Any) -> tuple[str, ...]:
    """The allowed values, for an error text; empty if the value is one of them. A list is judged by its length only."""
    if isinstance(schema, type):
        return (f"{{{', '.join(map(shown, declarations(schema)))}}}",)
    return _WANTED[schema.get("type", "oneOf")](schema, value)


def _wanted_of_one(schema: Schema, value: Any) -> tuple[str, ...]:
    wanted = [_wanted(each, value) for each in schema["oneOf"]]
    return () if () in wanted else tuple(itertools.chain(*wanted))


def _wanted_text(schema: Schema, value: Any) -> tuple[str, ...]:
    if "enum" in schema:
        return () if value in schema["enum"] else tuple(map(shown, schema["enum"]))
    if not isinstance(value, str):
        return ("a string",)
    if len(value) < schema.get("minLength", 0):
        return (f"a string of at least {schema['minLength']} character",)
    if len(value) > schema.get("maxLength", len(value)):
        return (f"a string of at most {schema['maxLength']} characters, not {len(value)}",)
    return () if encodable(value) else ("text without a lone surrogate",)


def _wanted_flag(_schema: Schema, value: Any) -> tuple[str, ...]:
    return () if isinstance(value, bool) else ("true or false",)


def _wanted_list(schema: Schema, value: Any) -> tuple[str, ...]:
    least, most = schema["minItems"], schema["maxItems"]
    is_list = isinstance(value, list) and least <= len(value) <= most
    return () if is_list else (f"a list of {least} to {most} {schema['items']['type']}s",)


def _wanted_integer(schema: Schema, value: Any) -> tuple[str, ...]:
    least, most = schema["minimum"], schema["maximum"]
    return () if type(value) is int and least <= value <= most else (f"an integer from {least} to {most}",)


def _wanted_number(schema: Schema, value: Any) -> tuple[str, ...]:
    least, most = schema["minimum"], schema["maximum"]
    return () if type(value) in (int, float) and least <= value <= most else (f"a number from {least} to {most}",)


_WANTED: dict[str, Callable[[Schema, Any], tuple[str, ...]]] = {
    "oneOf": _wanted_of_one,
    "string": _wanted_text,
    "boolean": _wanted_flag,
    "array": _wanted_list,
    "integer": _wanted_integer,
    "number": _wanted_number,
}


def encodable(text: str) -> bool:
    """Whether UTF-8 can encode it: JSON can spell half a surrogate pair, text cannot hold one."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def checked_name(kind: str, name: str) -> str:
    if not re.fullmatch(NAME_PATTERN, name):
        raise InvalidName(f"{kind} name {quoted(name)} must match {NAME_PATTERN}")
    return name


# -- showing it in error texts ----------------------------------------------------------------------------------------

_SHOWN_CHARS_MAX = 80
_ENCODER = json.JSONEncoder(ensure_ascii=False)


def shown(value: object) -> str:
    """A JSON value as an error text shows it: as its client may have written it, short enough for a log line."""
    return _cut(_json(value))


def quoted(name: str) -> str:
    """A name that a client gave, as names stand in error texts: in single quotes."""
    return f"'{_cut(_json(name)[1:-1])}'"


def _json(value: object) -> str:
    """As much of it as is shown: the rest may be megabytes, or nested deeper than one can recurse."""
    chunks = itertools.islice(_ENCODER.iterencode(value), _SHOWN_CHARS_MAX + 1)
    return "".join(chunks).encode(errors="backslashreplace").decode()


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARS_MAX else text[:_SHOWN_CHARS_MAX] + "..."
