"""The kinds of value that schemas are made of.

Requests are closed (an unknown field is refused) and take null for whatever may be left out. Answers are open, so that
a later release can add a field without breaking a client that was generated from this one. JSON Schema counts
characters, not bytes: where the contract limits bytes, `maxLength` is the loosest bound and the text has the true one.
"""

from __future__ import annotations

from typing import Any

from chalicelib.base.limits import BATCH_MESSAGES_MAX, INSTANT_MS_MAX, OFFSET_MAX, QUEUES_MAX

Json = dict[str, Any]


def ref(schema: str) -> Json:
    return {"$ref": f"#/components/schemas/{schema}"}


def integer(text: str, least: int = 0, most: int | None = None, **more: Any) -> Json:
    bounds = {"minimum": least} if most is None else {"minimum": least, "maximum": most}
    return {"type": "integer", "format": "int64", **bounds, **more, "description": text}


def instant(text: str) -> Json:
    return integer(f"{text} In milliseconds since the Unix epoch.", most=INSTANT_MS_MAX)


def string(text: str, chars_max: int | None = None, **more: Any) -> Json:
    """With `chars_max` it has at least one character too, unless `more` says otherwise."""
    lengths = {} if chars_max is None else {"minLength": 1, "maxLength": chars_max}
    return {"type": "string", **lengths, **more, "description": text}


def flag(text: str, **more: Any) -> Json:
    return {"type": "boolean", **more, "description": text}


def one_of(text: str, *schemas: Json, **more: Any) -> Json:
    return {"oneOf": list(schemas), **more, "description": text}


def array(text: str, items: Json) -> Json:
    return {"type": "array", "items": items, "description": text}


def batch(text: str, items: Json, least: int = 1) -> Json:
    return {**array(text, items), "minItems": least, "maxItems": BATCH_MESSAGES_MAX}


def nullable(schema: Json) -> Json:
    if "oneOf" in schema:
        return {**schema, "oneOf": [*schema["oneOf"], {"type": "null"}]}
    values = {"enum": [*schema["enum"], None]} if "enum" in schema else {}
    return {**schema, "type": [schema["type"], "null"], **values}


def without_defaults(schemas: Json) -> Json:
    """The same fields for an answer, which leaves none of them out."""
    return {
        field: {keyword: value for keyword, value in schema.items() if keyword != "default"}
        for field, schema in schemas.items()
    }


def request(text: str, optional: Json, required: Json | None = None, **more: Any) -> Json:
    """A closed object, in which null stands for a field that is not given."""
    needed = required or {}
    properties = {**needed, **{field: nullable(schema) for field, schema in optional.items()}}
    return _object(text, properties, list(needed), additionalProperties=False, **more)


def answer(text: str, properties: Json, sometimes: Json | None = None, **more: Any) -> Json:
    """An open object; the fields in `sometimes` may be missing."""
    return _object(text, {**properties, **(sometimes or {})}, list(properties), **more)


def page(of: str, schema: str) -> Json:
    """One page of a list."""
    items = array(f"At most `limit` {of}.", ref(schema))
    following = nullable(string("Give it as `next` to get the next page. Null on the last one."))
    return answer(f"A page of {of}.", {of: items, "next": following})


def _object(text: str, properties: Json, required: list[str], **more: Any) -> Json:
    needed = {"required": required} if required else {}
    return {"type": "object", **needed, "properties": properties, **more, "description": text}


QUEUE = integer("The queue, counted from 0.", most=QUEUES_MAX - 1)
OFFSET = integer("The message's place in its queue, counted from 0 and without gaps.", most=OFFSET_MAX)
END_OFFSET = integer("The offset that the next message of the queue will get.")
