"""Writes JSON Schemas (2020-12), which the OpenAPI document shows as they are. A type in place of a schema is a nested
object.

JSON Schema counts characters, not bytes: where the contract limits bytes, `maxLength` is the loosest bound, the
description has the true limit, and the field's own `parse` checks it.
"""

from __future__ import annotations

from typing import Any

from chalicelib.core.base.limits import BATCH_MESSAGES_MAX, INSTANT_MS_MAX

Schema = Any
"""A JSON Schema as a dict, or the type of a nested object."""

EPOCH = "In milliseconds since the Unix epoch."
"""The description of an instant, and the end of one that says more."""


def integer(least: int = 0, most: int | None = None, **more: Any) -> Schema:
    bounds = {"minimum": least} if most is None else {"minimum": least, "maximum": most}
    return {"type": "integer", "format": "int64", **bounds, **more}


def instant(text: str = "") -> Schema:
    return integer(most=INSTANT_MS_MAX, description=f"{text} {EPOCH}".strip())


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
    if "oneOf" in schema and "type" in schema:
        return one_of(schema, {"type": "null"}, description=schema["description"])
    if "oneOf" in schema:
        return {**schema, "oneOf": [*schema["oneOf"], {"type": "null"}]}
    if "null" in schema["type"]:
        return schema
    values = {"enum": [*schema["enum"], None]} if "enum" in schema else {}
    return {**schema, "type": [schema["type"], "null"], **values}


def either(*choices: tuple[str, ...]) -> Schema:
    """A rule for an object, as its `RULES`: the fields of one of these choices are given, and none of another."""
    names = {name for choice in choices for name in choice}
    nulls = {choice: {name: {"type": "null"} for name in names - {*choice}} for choice in choices}
    given = {choice: {name: {"not": {"type": "null"}} for name in choice} for choice in choices}
    return {"oneOf": [{"required": [*choice], "properties": given[choice] | nulls[choice]} for choice in choices]}
