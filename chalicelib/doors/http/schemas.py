"""JSON Schema of request and answer types, as the OpenAPI document shows them."""

from __future__ import annotations

from typing import Any

from chalicelib.api.operation import Json, described
from chalicelib.core.base.fields import EPOCH, Answer, Schema, Sometimes, declarations, nullable
from chalicelib.core.base.limits import INSTANT_MS_MAX

_INSTANT_MS = 1_767_225_661_000
"""An example of one."""


class Schemas:
    """Each type once, by its name. Types that are nested in requests have no name."""

    def __init__(self) -> None:
        self.by_name: Json = {}

    def ref(self, kind: type) -> Json:
        name = getattr(kind, "NAME", kind.__name__)
        if name not in self.by_name:
            self.by_name[name] = {}  # has its place before those that it holds
            self.by_name[name] = _answer_schema(kind, self) if issubclass(kind, Answer) else _request_schema(kind, self)
        return {"$ref": f"#/components/schemas/{name}"}

    def rendered(self, schema: Schema, is_item: bool = False) -> Any:
        """The schema with a reference, or an object's schema, in place of each type."""
        if isinstance(schema, type):
            return self.ref(schema) if is_item or issubclass(schema, Answer) else _request_schema(schema, self)
        if isinstance(schema, list):
            return [self.rendered(part) for part in schema]
        if isinstance(schema, dict):
            return {keyword: self.rendered(value, keyword == "items") for keyword, value in schema.items()}
        return schema


def _request_schema(kind: type, schemas: Schemas) -> Json:
    texts = described(kind)
    needed = [name for name, declared in declarations(kind).items() if declared.is_required]
    properties = {}
    for name, declared in declarations(kind).items():
        schema = with_text(schemas.rendered(declared.schema), texts.get(name))
        default = {"default": None} if isinstance(declared.schema, type) else {}
        properties[name] = schema if declared.is_required else {**nullable(schema), **default}
    return _object(kind, properties, needed, additionalProperties=False)


def _answer_schema(kind: type, schemas: Schemas) -> Json:
    own = {name: value for base in reversed(kind.__mro__) for name, value in vars(base).items() if name[0].islower()}
    texts = described(kind)
    fields = {name: value for name, value in own.items() if isinstance(value, dict | type | Sometimes)}
    properties = {}
    for name, declared in declarations(kind).items():
        schema = with_text(schemas.rendered(declared.schema), texts.get(name))
        properties[name] = schema if declared.is_required else _setting(schema)
    for name, value in fields.items():
        schema = schemas.rendered(value.schema if isinstance(value, Sometimes) else value)
        properties[name] = with_text(schema, texts.get(name))
    needed = [name for name in properties if not isinstance(fields.get(name), Sometimes)]
    return _object(kind, properties, needed)


def _setting(schema: Json) -> Json:
    """A setting is always there in an answer. An example is what it is by default."""
    answered, default = without(schema, "default", "additionalProperties"), schema.get("default")
    return {"examples": [default], **(nullable(answered) if default is None else answered)}


def _titled(field: str, schema: Json) -> Json:
    """The schema with titles for its enums and nested objects, since generators of clients number those without."""
    if "enum" in schema or "object" in schema.get("type", ""):
        return {"title": "".join(map(str.capitalize, field.split("_"))), **schema}
    if "oneOf" in schema:
        return {**schema, "oneOf": [_titled(field, choice) for choice in schema["oneOf"]]}
    return {**schema, "items": _titled(field, schema["items"])} if "items" in schema else schema


def _object(kind: type, properties: Json, needed: list[str], **more: Any) -> Json:
    required = {"required": needed} if needed else {}
    rules = getattr(kind, "RULES", {})
    titled = {field: _titled(field, schema) for field, schema in properties.items()}
    return {"type": "object", **required, "properties": titled, **rules, **more, "description": described(kind)[""]}


def without(schema: Json, *keywords: str) -> Json:
    return {keyword: value for keyword, value in schema.items() if keyword not in keywords}


def with_text(schema: Json, text: str | None) -> Json:
    """The schema with the text that the docstring has for it."""
    if text is None or "$ref" in schema:
        return schema
    return {**schema, "description": f"{text} {EPOCH}" if schema.get("description") == EPOCH else text}


def example_of(schema: Json, schemas: Json) -> Any:
    """A value that fits the schema: the example it gives, or one made of those of its parts."""
    if "$ref" in schema:
        return example_of(schemas[schema["$ref"].rpartition("/")[2]], schemas)
    for keyword in ("examples", "enum"):
        if keyword in schema:
            return schema[keyword][0]
    if "const" in schema:
        return schema["const"]
    if "properties" in schema:
        parts = schema["properties"]
        shown = [name for name in parts if name in schema.get("required", ()) or "examples" in parts[name]]
        return {name: example_of(parts[name], schemas) for name in shown}
    if "oneOf" in schema:
        return example_of(schema["oneOf"][0], schemas)
    if "items" in schema:
        return [example_of(schema["items"], schemas)]
    if "null" in schema["type"]:
        return None
    return _INSTANT_MS if schema.get("maximum") == INSTANT_MS_MAX else schema.get("minimum", False)
