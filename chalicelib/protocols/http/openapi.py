"""The OpenAPI document, made from the table of operations: exactly what this release answers."""

from __future__ import annotations

from functools import cache
from typing import Any

from chalicelib import VERSION
from chalicelib.api import FAMILIES
from chalicelib.api.operation import GROUP_NAME, MESSAGE_ID, TOPIC_NAME, Family, Json, Operation, described, filled
from chalicelib.base.fields import Answer, declarations
from chalicelib.base.schema import string
from chalicelib.protocols import http
from chalicelib.protocols.http import documented_problems
from chalicelib.protocols.http.schemas import Schemas, example_of, with_text, without

_IN_PATH = {"topic": TOPIC_NAME, "group": GROUP_NAME, "message_id": MESSAGE_ID}
_IN_HEADERS = {
    "traceparent": string(
        examples=["00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"],
        description="The trace that the request belongs to (W3C Trace Context). Each message carries it as its property"
        " `traceparent`, unless it has one already. A malformed one is ignored.",
    ),
    "Prefer": string(
        examples=["return=minimal"], description="`return=minimal` asks for an answer without a body (RFC 7240)."
    ),
}


@cache
def document() -> dict[str, Any]:
    """The document. Everyone gets the same one: do not change it."""
    schemas = Schemas()
    parameters = {
        **{name: _parameter("path", name, schema, required=True) for name, schema in _IN_PATH.items()},
        **{name: _parameter("header", name, schema) for name, schema in _IN_HEADERS.items()},
    }
    paths: Json = {}
    for family in FAMILIES:
        for operation in family.operations:
            parameters |= _in_query(operation)
            paths.setdefault(operation.path, {})[operation.method.lower()] = _operation(operation, family, schemas)
    schemas.ref(documented_problems.Problem)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Decant",
            "version": VERSION,
            "summary": "A message queue without brokers.",
            "description": filled(http.__doc__),
        },
        "tags": [{"name": family.tag, "description": family.text} for family in FAMILIES],
        "paths": paths,
        "components": {
            "schemas": schemas.by_name,
            "parameters": parameters,
            "responses": documented_problems.shared(),
        },
    }


def _parameter(place: str, name: str, schema: Json, **more: Any) -> Json:
    bare = without(schema, "description", "examples")
    example = {"example": schema["examples"][0]} if place != "query" else {}
    return {"name": name, "in": place, **more, "description": schema["description"], "schema": bare, **example}


def _in_query(operation: Operation) -> Json:
    if not (operation.request and operation.method == "GET"):
        return {}
    texts = described(operation.request)
    schemas = {name: declared.schema for name, declared in declarations(operation.request).items()}
    return {name: _parameter("query", name, with_text(schema, texts.get(name))) for name, schema in schemas.items()}


def _operation(operation: Operation, family: Family, schemas: Schemas) -> Json:
    summary, description = operation.text
    names = [*operation.path_names, *operation.headers, *_in_query(operation)]
    parameters = [{"$ref": f"#/components/parameters/{name}"} for name in names]
    body = None if operation.method == "GET" else operation.request
    answers = {str(status): _answer(status, answer, schemas) for status, answer in operation.answers.items()}
    return {
        "tags": [family.tag],
        "operationId": operation.id,
        "summary": summary,
        "description": description,
        **({"parameters": parameters} if parameters else {}),
        **({"requestBody": _request(body, schemas)} if body else {}),
        "responses": {**answers, **documented_problems.of(operation)},
    }


def _request(kind: type, schemas: Schemas) -> Json:
    """It may be left out where `{}` would do."""
    is_required = any(declared.is_required for declared in declarations(kind).values())
    return {"required": is_required, "content": _content(kind, schemas)}


def _answer(status: int, answer: type[Answer] | str, schemas: Schemas) -> Json:
    if isinstance(answer, str):
        return {"description": answer}
    created = "Created. " if status == 201 else ""
    return {"description": created + described(answer)[""], "content": _content(answer, schemas)}


def _content(kind: type, schemas: Schemas) -> Json:
    schema = schemas.ref(kind)
    return {"application/json": {"schema": schema, "example": example_of(schema, schemas.by_name)}}
