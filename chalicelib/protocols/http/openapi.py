"""The OpenAPI document, made from the table of operations: exactly what this release answers."""

from __future__ import annotations

from functools import cache
from typing import Any

from chalicelib import VERSION
from chalicelib.api import FAMILIES
from chalicelib.api.operation import GROUP_NAME, MESSAGE_ID, TOPIC_NAME, Family, Json, Operation, described
from chalicelib.base.fields import Answer, declarations
from chalicelib.base.limits import REQUEST_BYTES_MAX
from chalicelib.base.schema import string
from chalicelib.protocols.http import documented_problems
from chalicelib.protocols.http.schemas import Schemas, example_of, with_text, without

DESCRIPTION = f"""\
A message queue without brokers. Producers put messages into the queues of a *topic*. Each *group* of consumers reads
all of them: a *pop* leases messages for a while and gives a *receipt* for each, an *ack* settles them. A message that
is nacked, or not acked before its lease ends, is delivered again: every message is delivered at least once.

- JSON in, JSON out, UTF-8. An empty request body means `{{}}`. `null` means not given.
- A field or a query parameter that is not in this document is refused with 400 `UnknownField`.
- An object that has the same name twice is refused with 400 `InvalidJson`.
- Integers are JSON integers: neither `1.0` nor `true` is one. Text must not hold half of a surrogate pair.
- Every time is in milliseconds: `*_at_ms` and `*_until_ms` are instants since the Unix epoch, any other `*_ms` is a
  duration.
- Errors are problems as in RFC 9457. `code` is stable and is what clients switch on.
- A path that is not in this document is answered with 404 `NotFound`, as is one with an extra slash: `/topics/` is not
  `/topics`.
- 405 `MethodNotAllowed` is listed with every operation: it is the answer to any other method.
- 413 `MessageTooLarge` is the answer to any request of more than {REQUEST_BYTES_MAX} bytes.
- A request that failed has changed nothing, unless the answer is 503 and carries `"outcome": "unknown"`: then the
  store's answer was lost, and the request may have been carried out, in whole or in part.
- Lists are paged: as long as `next` is not null, pass it as the query parameter `next` to get the next page.
"""


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
    for family, operation in ((each, operation) for each in FAMILIES for operation in each.operations):
        if operation.request and operation.method == "GET":
            texts = described(operation.request)
            for name, declared in declarations(operation.request).items():
                parameters[name] = _parameter("query", name, with_text(declared.schema, texts.get(name)))
        paths.setdefault(operation.path, {})[operation.method.lower()] = _operation(operation, family, schemas)
    schemas.ref(documented_problems.Problem)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Decant",
            "version": VERSION,
            "summary": "A message queue without brokers.",
            "description": DESCRIPTION,
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


def _operation(operation: Operation, family: Family, schemas: Schemas) -> Json:
    summary, description = operation.text
    query, body = (operation.request, None) if operation.method == "GET" else (None, operation.request)
    names = [*operation.path_names, *operation.headers, *(declarations(query) if query else ())]
    parameters = [{"$ref": f"#/components/parameters/{name}"} for name in names]
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
    content = _content(kind, schemas)
    return {"required": any(each.is_required for each in declarations(kind).values()), "content": content}


def _answer(status: int, answer: type[Answer] | str, schemas: Schemas) -> Json:
    if isinstance(answer, str):
        return {"description": answer}
    created = "Created. " if status == 201 else ""
    return {"description": created + described(answer)[""], "content": _content(answer, schemas)}


def _content(kind: type, schemas: Schemas) -> Json:
    schema = schemas.ref(kind)
    return {"application/json": {"schema": schema, "example": example_of(schema, schemas.by_name)}}
