"""Checks every response that a test sees against the service's own OpenAPI document."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from jsonschema_rs import Draft202012Validator

from chalicelib.doors.http.openapi import document

Json = dict[str, Any]

_OPEN = frozenset({"Document"})
"""Schemas that leave out, on purpose, some of what the answer holds."""


@cache
def operations() -> dict[tuple[str, str], Json]:
    """(method, path template) -> operation."""
    paths = document()["paths"]
    return {
        (method.upper(), path): operation for path, methods in paths.items() for method, operation in methods.items()
    }


def operation_of(method: str, path: str) -> Json | None:
    """The operation that answers this request; where the path does not have the method, any other of its operations:
    they say what a wrong method gets. None: no such path."""
    of_path = {known: operation for known, pattern, operation in _patterns() if pattern.fullmatch(path)}
    return of_path.get("GET" if method == "HEAD" else method) or next(iter(of_path.values()), None)


@cache
def _patterns() -> list[tuple[str, re.Pattern[str], Json]]:
    """Each operation's method, and a pattern of its paths."""
    return [
        (method, re.compile(re.sub(r"{\w+}", "[^/]+", template)), operation)
        for (method, template), operation in operations().items()
    ]


def check(operation: Json, status: int, headers: dict[str, str], body: Any) -> None:
    """Fails unless the document describes this status, its headers, its content type and every field of the body."""
    name = operation["operationId"]
    assert str(status) in operation["responses"], f"{name} answered {status}, which is not documented: {body}"
    response = _resolved(operation["responses"][str(status)])
    for header, documented in response.get("headers", {}).items():
        assert header in headers or not documented.get("required"), f"{name} {status} lacks {header}"
    if "content" not in response:
        assert body is None, f"{name} {status} has a body: {body}"
        return
    ((media_type, content),) = response["content"].items()
    assert headers["Content-Type"] == media_type
    _validator(name, str(status), content["schema"]).validate(body)


_validators: dict[tuple[str, str], Draft202012Validator] = {}


def _validator(name: str, status: str, schema: Json) -> Draft202012Validator:
    if (name, status) not in _validators:
        root = {**_closed(schema), "components": {"schemas": _closed_components()}}
        _validators[name, status] = Draft202012Validator(root)
    return _validators[name, status]


@cache
def _closed_components() -> Json:
    schemas = document()["components"]["schemas"]
    return {name: schema if name in _OPEN else _closed(schema) for name, schema in schemas.items()}


def _closed(schema: Json) -> Json:
    """The same schema, which refuses fields that it does not name."""
    closed = dict(schema)
    if "properties" in schema:
        closed["properties"] = {name: _closed(part) for name, part in schema["properties"].items()}
        closed.setdefault("additionalProperties", False)
    if "items" in schema:
        closed["items"] = _closed(schema["items"])
    if "oneOf" in schema:
        closed["oneOf"] = [_closed(choice) for choice in schema["oneOf"]]
    return closed


def _resolved(response: Json) -> Json:
    if "$ref" not in response:
        return response
    resolved: Json = document()["components"]["responses"][response["$ref"].rpartition("/")[2]]
    return resolved
