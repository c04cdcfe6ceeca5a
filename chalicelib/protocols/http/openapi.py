"""The OpenAPI document, made of the contract: exactly what this release answers."""

from __future__ import annotations

from functools import cache
from typing import Any

from chalicelib import VERSION
from chalicelib.base.limits import REQUEST_BYTES_MAX
from chalicelib.protocols.http.contract import problems
from chalicelib.protocols.http.contract.about import ABOUT
from chalicelib.protocols.http.contract.consuming import CONSUMING
from chalicelib.protocols.http.contract.dead_letters import DEAD_LETTERS
from chalicelib.protocols.http.contract.delays import DELAYS
from chalicelib.protocols.http.contract.groups import GROUPS
from chalicelib.protocols.http.contract.messages import MESSAGES
from chalicelib.protocols.http.contract.operation import Body, Operation
from chalicelib.protocols.http.contract.parameters import PARAMETERS
from chalicelib.protocols.http.contract.topics import TOPICS
from chalicelib.protocols.http.contract.values import Json, ref

FAMILIES = (TOPICS, MESSAGES, DELAYS, GROUPS, CONSUMING, DEAD_LETTERS, ABOUT)

_SCHEMAS: Json = {name: schema for family in FAMILIES for name, schema in family.schemas.items()} | problems.SCHEMAS

_DESCRIPTION = f"""\
A message queue without brokers. Producers put messages into the queues of a *topic*. Each *group* of consumers reads
all of them: a *pop* leases messages for a while and gives a *receipt* for each, an *ack* settles them. A message that
is nacked, or not acked before its lease ends, is delivered again: every message is delivered at least once.

- JSON in, JSON out, UTF-8. An empty request body means `{{}}`. `null` means not given.
- A field or a query parameter that is not in this document is refused with 400 `UnknownField`.
- An object that has one name twice is refused with 400 `InvalidJson`.
- Integers are JSON integers: neither `1.0` nor `true` is one. Text must not hold half of a surrogate pair.
- Every time is in milliseconds: `*_at_ms` and `*_until_ms` are instants since the Unix epoch, any other `*_ms` is a
  duration.
- Errors are problems as in RFC 9457. `code` is stable and is what clients switch on.
- A path that is not in this document is answered 404 `NotFound`. So is one with a slash too many: `/topics/` is not
  `/topics`.
- 405 `MethodNotAllowed` is listed with every operation: it is what any other method gets there.
- 413 `MessageTooLarge` is the answer to any request of more than {REQUEST_BYTES_MAX} bytes.
- A request that failed has changed nothing, unless the answer is 503 and carries `"outcome": "unknown"`: then the
  store's answer was lost, and the request may have been carried out, in whole or in part.
- Lists are paged: as long as `next` is not null, give it as the query parameter `next` to get the next page.
"""


@cache
def document() -> dict[str, Any]:
    """The document. Everyone gets the same one: do not change it."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Decant",
            "version": VERSION,
            "summary": "A message queue without brokers.",
            "description": _DESCRIPTION,
        },
        "tags": [{"name": family.tag, "description": family.text} for family in FAMILIES],
        "paths": _paths(),
        "components": {"schemas": _SCHEMAS, "parameters": PARAMETERS, "responses": problems.shared()},
    }


def _paths() -> Json:
    paths: Json = {}
    for family in FAMILIES:
        for operation in family.operations:
            paths.setdefault(operation.path, {})[operation.method] = _operation(operation, family.tag)
    return paths


def _operation(operation: Operation, tag: str) -> Json:
    names = (*operation.path_parameters, *operation.parameters)
    parameters = [{"$ref": f"#/components/parameters/{name}"} for name in names]
    answers = {str(status): _answer(text, body) for status, (text, body) in operation.answers.items()}
    return {
        "tags": [tag],
        "operationId": operation.id,
        "summary": operation.summary,
        "description": operation.text,
        **({"parameters": parameters} if parameters else {}),
        **({"requestBody": _request(operation.request)} if operation.request else {}),
        "responses": {**answers, **problems.of(operation)},
    }


def _request(body: Body) -> Json:
    """It may be left out where `{}` would do."""
    return {"required": "required" in _SCHEMAS[body.schema], "content": _content(body)}


def _answer(text: str, body: Body | None) -> Json:
    return {"description": text, **({"content": _content(body)} if body else {})}


def _content(body: Body) -> Json:
    return {"application/json": {"schema": ref(body.schema), "example": body.example}}
