"""Declares the fields of requests and answers, each once, and checks what a client sent against them.

A field is declared by its JSON Schema. The docstring of its type says what it means, in a line `name: text`.

An error names the field, what it must be, and what it is. `null` means not given, except to an optional field whose
schema has it as a value. An undeclared name is refused, so that a typo is never silently ignored.

Writes JSON Schemas (2020-12), which the OpenAPI document shows as they are. A type in place of a schema is a nested
object.

JSON Schema counts characters, not bytes: where the contract limits bytes, `maxLength` is the loosest bound, the
description has the true limit, and the field's own `parse` checks it."""

from __future__ import annotations

import binascii
import dataclasses
import itertools
import json
import re
from collections import Counter
from collections.abc import Callable
from functools import cache, lru_cache
from typing import Any, ClassVar, NamedTuple, NoReturn, TypeVar, dataclass_transform

from chalicelib.core.base.errors import InvalidField, InvalidJson, InvalidName, UnknownField
from chalicelib.core.base.limits import BATCH_MESSAGES_MAX, INSTANT_MS_MAX, NAME_PATTERN
from chalicelib.core.base.records import mutable

Schema = Any
"""A JSON Schema as a dict, or the type of a nested object."""

EPOCH = "In milliseconds since the Unix epoch."
"""The description of an instant, and the end of one that says more."""


def integer(least: int = 0, most: int | None = None, **more: Any) -> Schema:
    bounds = {"minimum": least} if most is None else {"minimum": least, "maximum": most}
    return {"type": "integer", "format": "int64", **bounds, **more}


def instant(text: str = "", **more: Any) -> Schema:
    return integer(most=INSTANT_MS_MAX, description=f"{text} {EPOCH}".strip(), **more)


def number(least: float, most: float, **more: Any) -> Schema:
    return {"type": "number", "minimum": least, "maximum": most, **more}


def string(chars_max: int | None = None, **more: Any) -> Schema:
    """With `chars_max` it has at least one character too, unless `more` says otherwise."""
    lengths = {} if chars_max is None else {"minLength": 1, "maxLength": chars_max}
    return {"type": "string", **lengths, **more}


def flag(**more: Any) -> Schema:
    return {"type": "boolean", **more}


def array(items: Schema, **more: Any) -> Schema:
    return {"type": "array", "items": items, **more}


def batch(items: Schema, least: int = 1, **more: Any) -> Schema:
    return array(items, minItems=least, maxItems=BATCH_MESSAGES_MAX, **more)


def mapping(**more: Any) -> Schema:
    return {"type": "object", **more}


def one_of(*schemas: Schema, **more: Any) -> Schema:
    return {"oneOf": list(schemas), **more}


def nullable(schema: Schema) -> Schema:
    if "oneOf" in schema:
        return {**schema, "oneOf": [*schema["oneOf"], {"type": "null"}]}
    if "null" in schema["type"]:
        return schema
    values = {"enum": [*schema["enum"], None]} if "enum" in schema else {}
    return {**schema, "type": [schema["type"], "null"], **values}


def either(name: str, *others: str) -> Schema:
    """A rule for an object, as its `RULES`: this field is given, or else all the others. Generators of clients ignore
    it; a `oneOf` would make them split the object in two."""

    def are_given(*names: str) -> Schema:
        return {"required": [*names], "properties": {name: {"not": {"type": "null"}} for name in names}}

    none = {"properties": {other: {"type": "null"} for other in others}}
    return {"if": are_given(name), "then": none, "else": are_given(*others)}


T = TypeVar("T")

_LABELS_KEPT_MAX = 2_048
"""Cached labels of declared fields: a hundred messages have some ten each, and most requests use the same ones."""
_SHAPES_KEPT_MAX = 256
"""Cached sets of given fields: most requests and messages give the same fields as the one before."""


class Label(NamedTuple):
    """The name of a field (`noun`: or a parameter) in error texts. Without a path: the request itself."""

    path: str = ""
    noun: str = "field"

    def __str__(self) -> str:
        return f"{self.noun} {quoted(self.path)}"

    def inside(self, name: str) -> Label:
        """The label of a field of this object."""
        return Label(f"{self.path}.{name}" if self.path else name, self.noun)

    def wrong(self, wanted: str, value: object) -> InvalidField:
        return InvalidField(f"{self} must be {wanted}; it is {shown(value)}")


# -- declaring --------------------------------------------------------------------------------------------------------

Parse = Callable[[Any, Label], Any]
"""Converts the JSON value of a field. Raises InvalidField, or another error of its own."""


class Declaration(NamedTuple):
    schema: Schema
    parse: Parse | None
    is_required: bool

    @property
    def takes_null(self) -> bool:
        return not self.is_required and isinstance(self.schema, dict) and "null" in self.schema.get("type", "")


def required(schema: Schema, parse: Parse | None = None) -> Any:
    """A field of a request that must be given, or of an answer."""
    return dataclasses.field(metadata={"is": Declaration(schema, parse, True)})


def optional(schema: Schema, parse: Parse | None = None) -> Any:
    """A field of a request. If it is not given, its value is the schema's default, parsed, or None without one."""
    default = schema.get("default") if isinstance(schema, dict) else None
    value = parse(default, Label()) if parse and default is not None else default
    return dataclasses.field(default=value, metadata={"is": Declaration(schema, parse, False)})


@dataclass_transform(field_specifiers=(required, optional))
def request(kind: type[T]) -> type[T]:
    """Makes a request type of a class of declared fields."""
    return mutable(kind)


class Answer:
    """An object in a response. It is open, so that a later release can add a field without breaking generated clients.

    A dataclass declares its fields as a request does. Any other answer is built as JSON; its class holds only the
    schema, with a schema, or `Sometimes` one, as the attribute for each field."""

    __slots__ = ()
    RULES: ClassVar[Any] = {}
    """Further keywords of the object's schema."""

    def as_json(self) -> dict[str, Any]:
        """The declared fields of a dataclass."""
        kind: type = type(self)
        return {name: getattr(self, name) for name in declarations(kind)}


class Sometimes(NamedTuple):
    """A field that may be missing from an answer."""

    schema: Schema


@cache
def declarations(kind: type) -> dict[str, Declaration]:
    """The declared fields of a dataclass, by name. Any other type has none."""
    fields = dataclasses.fields(kind) if dataclasses.is_dataclass(kind) else ()
    return {field.name: field.metadata["is"] for field in fields if "is" in field.metadata}


def defaults(kind: type) -> dict[str, Any]:
    """The defaults of the declared fields."""
    return {field.name: field.default for field in dataclasses.fields(kind) if "is" in field.metadata}


# -- checking ---------------------------------------------------------------------------------------------------------


def checked(kind: type[T], data: object, label: Label = Label()) -> T:
    """The JSON as a request of this type. Raises UnknownField, InvalidField, and InvalidJson if it is not an object."""
    return kind(**given(kind, data, label))


def given(kind: type, data: object, label: Label = Label()) -> dict[str, Any]:
    """The same, as a dict of the given fields only."""
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
    for name, is_always_read, (schema, parse, _) in _expected(kind, tuple(data)):
        value = data.get(name)
        if value is not None or is_always_read:
            at = _inside(label, name)
            values[name] = parse(value, at) if parse else check(schema, value, at)
    return values


@lru_cache(_LABELS_KEPT_MAX)
def _inside(label: Label, declared: str) -> Label:
    return label.inside(declared)


@lru_cache(_SHAPES_KEPT_MAX)
def _expected(kind: type, names: tuple[str, ...]) -> list[tuple[str, bool, Declaration]]:
    """The declared fields with these names, and the required ones, in order; for each, whether null is parsed too."""
    return [
        (name, field.is_required or field.takes_null, field)
        for name, field in declarations(kind).items()
        if name in names or field.is_required
    ]


def check(schema: Schema, value: Any, label: Label) -> Any:
    """Returns the value if it fits the schema. Raises InvalidField, and UnknownField for a nested object."""
    if isinstance(schema, type):
        return checked(schema, value, label)
    if isinstance(value, dict) and (kinds := [kind for kind in schema.get("oneOf", ()) if isinstance(kind, type)]):
        return checked(kinds[0], value, label)
    if wanted := _wanted(schema, value):
        raise label.wrong(", ".join(wanted[:-1]) + " or " * (len(wanted) > 1) + wanted[-1], value)
    if isinstance(value, list):
        items = next(kind["items"] for kind in schema.get("oneOf", [schema]) if "items" in kind)
        for index, item in enumerate(value):
            if _wanted(items, item):
                check(items, item, Label(f"{label.path}[{index}]", label.noun))
    return value


def _wanted(schema: Schema, value: Any) -> list[str]:
    """The allowed values, for an error text; empty if the value is allowed. Checks only the length of a list."""
    if isinstance(schema, type):
        rules = getattr(schema, "RULES", {})
        choices = [rules["if"]["required"], rules["else"]["required"]] if "if" in rules else [declarations(schema)]
        return [f"{{{', '.join(map(shown, choice))}}}" for choice in choices]
    if "oneOf" in schema:
        wanted = [_wanted(choice, value) for choice in schema["oneOf"]]
        return [] if [] in wanted else list(itertools.chain(*wanted))
    if "enum" in schema:
        return [] if value in schema["enum"] else list(map(shown, schema["enum"]))
    if isinstance(schema["type"], list):
        texts = _wanted({**schema, "type": schema["type"][0]}, value)
        return [*texts, "null"] if texts and value is not None else []
    text = _WANTED[schema["type"]](schema, value)
    return [text] if text else []


def _wanted_text(schema: Schema, value: Any) -> str | None:
    if not isinstance(value, str):
        return "a string"
    if len(value) < schema.get("minLength", 0):
        return f"a string of at least {schema['minLength']} character"
    if len(value) > schema.get("maxLength", len(value)):
        return f"a string of at most {schema['maxLength']} characters, not {len(value)}"
    return None if encodable(value) else "text without a lone surrogate"


def _wanted_flag(_schema: Schema, value: Any) -> str | None:
    return None if isinstance(value, bool) else "true or false"


def _wanted_list(schema: Schema, value: Any) -> str | None:
    least, most = schema["minItems"], schema["maxItems"]
    is_list = isinstance(value, list) and least <= len(value) <= most
    return None if is_list else f"a list of {least} to {most} {schema['items']['type']}s"


def _wanted_number(schema: Schema, value: Any) -> str | None:
    least, most = schema["minimum"], schema["maximum"]
    kinds, noun = ((int,), "an integer") if schema["type"] == "integer" else ((int, float), "a number")
    return None if type(value) in kinds and least <= value <= most else f"{noun} from {least} to {most}"


_WANTED: dict[str, Callable[[Schema, Any], str | None]] = {
    "string": _wanted_text,
    "boolean": _wanted_flag,
    "array": _wanted_list,
    "integer": _wanted_number,
    "number": _wanted_number,
}


def encodable(text: str) -> bool:
    """Whether UTF-8 can encode the text: JSON can contain half of a surrogate pair, UTF-8 cannot."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def demand_name(kind: str, name: str) -> None:
    """Raises InvalidName."""
    if not re.fullmatch(NAME_PATTERN, name):
        raise InvalidName(f"{kind} name {quoted(name)} must match {NAME_PATTERN}")


# -- showing it in error texts ----------------------------------------------------------------------------------------

_SHOWN_CHARS_MAX = 80
_ENCODER = json.JSONEncoder(ensure_ascii=False)


def shown(value: object) -> str:
    """A JSON value for an error text: as JSON, and short enough for a log line."""
    return _cut(_json(value))


def quoted(name: str) -> str:
    """A client's name for an error text: in single quotes."""
    return f"'{_cut(_json(name)[1:-1])}'"


def _json(value: object) -> str:
    """The start of the value as JSON. Encoding the whole value costs a fraction of reading it. Encoding in pieces costs
    more with each level of nesting, so it is used only beyond the recursion limit."""
    try:
        text = _ENCODER.encode(value)
    except RecursionError:
        text = "".join(itertools.islice(_ENCODER.iterencode(value), _SHOWN_CHARS_MAX + 1))
    return text[: _SHOWN_CHARS_MAX + 3].encode(errors="backslashreplace").decode()


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARS_MAX else text[:_SHOWN_CHARS_MAX] + "..."


# -- JSON -------------------------------------------------------------------------------------------------------------

_DIGITS_READ = 100
"""The digits read of a number, more than an error text shows. Python refuses to read thousands of digits."""


def read_json(raw: bytes, what: str) -> Any:
    """The value, whose strings may still contain half of a surrogate pair. Raises ValueError with a sentence about
    `what`, such as "the request body"."""
    try:
        return _READER.decode(raw.decode())  # given bytes, `json` would guess at UTF-16, and let surrogates pass
    except RecursionError:
        raise ValueError(f"{what} is nested too deeply") from None
    except _Twice as twice:
        raise ValueError(f"an object in {what} has {twice} twice") from None
    except ValueError as error:
        raise ValueError(f"{what} is not JSON: {error}") from None


class _Twice(Exception):
    """Its text is the name."""


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise _Twice(shown(next(name for name, times in Counter(name for name, _ in pairs).items() if times > 1)))
    return members


def _read_integer(digits: str) -> int:
    return int(digits[:_DIGITS_READ])


def _refuse_constant(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


_READER = json.JSONDecoder(object_pairs_hook=_members, parse_int=_read_integer, parse_constant=_refuse_constant)
"""Refuses duplicate names, unlike most readers. It is Python's own, whose hooks see every name and every number: a
faster reader silently drops the first of two equal names, and detecting that costs more than it saves. Reading, writing
again and comparing took 1.1 to 2.6 times as long for most bodies."""


# -- URL-safe base64, for texts that clients return: receipts and page tokens -----------------------------------------

_SPELLED = bytes.maketrans(b"+/", b"-_")
_STANDARD = bytes.maketrans(b"-_", b"+/")


def base64url(raw: bytes) -> str:
    return binascii.b2a_base64(raw, newline=False).translate(_SPELLED).rstrip(b"=").decode()


def of_base64url(text: str) -> bytes | None:
    """None unless `base64url` writes exactly this text: no other spelling of the same bytes is accepted."""
    try:
        raw = binascii.a2b_base64(text.encode().translate(_STANDARD) + b"==")
    except ValueError:
        return None
    return raw if base64url(raw) == text else None
