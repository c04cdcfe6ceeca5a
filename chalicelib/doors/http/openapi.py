"""The OpenAPI document, made from the table of operations: exactly what this release answers. Which errors an operation
can answer follows from its declaration."""

from __future__ import annotations

from functools import cache
from typing import Any

from chalicelib import COMMIT, VERSION
from chalicelib.api import FAMILIES
from chalicelib.api.operation import (
    CORRELATION_ID,
    GROUP_NAME,
    MESSAGE_ID,
    TOPIC_NAME,
    TRANSACTION_ID,
    Family,
    Json,
    Operation,
    TextAnswer,
    described,
    filled,
)
from chalicelib.api.push import SECRET_ID
from chalicelib.api.tokens import TOKEN_ID
from chalicelib.core.base import errors
from chalicelib.core.base.errors import DecantError
from chalicelib.core.base.fields import Answer, Sometimes, array, declarations, integer, string
from chalicelib.core.base.limits import BATCH_MESSAGES_MAX, BODY_BYTES_MAX, HOP_MS_MIN
from chalicelib.doors import http
from chalicelib.doors.http.exchange import MEDIA_TYPE, PROBLEMS, RETRY_AFTER_S, problem
from chalicelib.doors.http.schemas import Schemas, example_of, with_text, without

_IN_PATH = {
    "topic": TOPIC_NAME,
    "group": GROUP_NAME,
    "message_id": MESSAGE_ID,
    "transaction_id": TRANSACTION_ID,
    "correlation_id": CORRELATION_ID,
    "secret_id": SECRET_ID,
    "token_id": TOKEN_ID,
}
_IN_HEADERS = {
    "traceparent": string(
        examples=["00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"],
        description="The trace that the request belongs to (W3C Trace Context). Each message carries it as its property"
        " `traceparent`, unless it has one already or has no room for it. A malformed one is ignored.",
    ),
    "tracestate": string(
        examples=["congo=t61rcWkgMzE"],
        description="The vendor data of the trace. It accompanies `traceparent`, unchanged.",
    ),
    "baggage": string(
        examples=["userId=alice,isProduction=false"],
        description="W3C Baggage. Each message carries it, unchanged, as its property `baggage`, unless it has one"
        " already or has no room for it.",
    ),
    "Prefer": string(
        examples=["return=minimal", "wait=2"],
        description="`return=minimal` asks for a response without a body. `wait=2` asks for one within two seconds:"
        " messages not stored by then fail as if the store had failed (503, or 207 if some are stored). A call takes"
        f" at least {HOP_MS_MIN} ms. A malformed value is ignored (RFC 7240).",
    ),
}
_SERVERS = [
    {"url": ".", "description": "The deployment that serves this document."},
    {"url": "http://127.0.0.1:8000", "description": "`make run`."},
]
_WITH_IDS = (200, 201, 202)
"""Statuses whose answers can have ids of what the operation has made."""
_MADE = {*_IN_PATH, "receipt"} - {"topic", "group"}
"""Fields of answers that name what the operation has made."""
_BEARER = "bearer"
_SECURITY = "A token from `POST /tokens`. Required if access control is on."


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
    shared = {error.__name__: _response(_status(error), [error], schemas) for error in [*_EVERYWHERE, *_GUARDED]}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Decant",
            "version": f"{VERSION}+{COMMIT}" if COMMIT else VERSION,  # PEP 440: a local version
            "summary": "A message queue without brokers.",
            "description": filled(http.__doc__),
        },
        "servers": _SERVERS,
        "tags": [{"name": family.tag, "description": family.text} for family in FAMILIES],
        "security": [{_BEARER: []}, {}],  # the second: none, where access control is off
        "paths": paths,
        "components": {
            "schemas": schemas.by_name,
            "parameters": {_key(name): parameter for name, parameter in parameters.items()},
            "responses": shared,
            "securitySchemes": {_BEARER: {"type": "http", "scheme": "bearer", "description": _SECURITY}},
        },
    }


def _key(parameter: str) -> str:
    """Some generators make a type of each parameter too. Under its name alone, they would have two types `Group`."""
    return f"{parameter}Parameter"


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
    parameters = [{"$ref": f"#/components/parameters/{_key(name)}"} for name in names]
    body = None if operation.method == "GET" else operation.request
    answers = {
        str(status): _answer(status, answer, schemas) | _links(operation, status, answer, schemas)
        for status, answer in operation.answers.items()
    }
    return {
        "tags": [family.tag],
        "operationId": operation.id,
        "summary": summary,
        "description": description + _rights_text(operation),
        **({"parameters": parameters} if parameters else {}),
        **({"requestBody": _request(body, schemas)} if body else {}),
        "responses": {**answers, **_problems(operation, schemas)},
        **({"security": []} if operation.right == "anyone" else {}),
    }


def _rights_text(operation: Operation) -> str:
    """Nothing for what anyone may do."""
    if operation.right == "anyone":
        return ""
    further = " or ".join(f"`{field}`" for field in operation.hands_out if field)
    when = "" if not operation.hands_out else f", with {further} also `consume`" if further else " and `consume`"
    return f"\n\nNeeds the right `{operation.right}`{when}."


def _request(kind: type, schemas: Schemas) -> Json:
    """It may be left out where `{}` would do."""
    rules = getattr(kind, "RULES", {})
    is_required = "else" in rules or any(declared.is_required for declared in declarations(kind).values())
    return {"required": is_required, "content": _content(kind, schemas)}


def _answer(status: int, answer: type[Answer] | str, schemas: Schemas) -> Json:
    if isinstance(answer, str):
        return {"description": answer}
    created = "Created. " if status == 201 else ""
    if issubclass(answer, TextAnswer):
        text: Json = {answer.MEDIA_TYPE: {"schema": string(), "example": answer.EXAMPLE}}
        return {"description": described(answer)[""], "content": text}
    return {"description": created + described(answer)[""], "content": _content(answer, schemas)}


def _content(kind: type, schemas: Schemas) -> Json:
    schema = schemas.ref(kind)
    return {"application/json": {"schema": schema, "example": example_of(schema, schemas.by_name)}}


# -- errors -----------------------------------------------------------------------------------------------------------

Errors = list[type[DecantError]]

_NAMED: dict[str, type[DecantError]] = {
    "topic": errors.TopicNotFound,
    "group": errors.GroupNotFound,
    "message_id": errors.MessageNotFound,
    "transaction_id": errors.TransactionNotFound,
    "correlation_id": errors.RequestNotFound,
    "secret_id": errors.NotFound,
    "token_id": errors.TokenNotFound,
}
_DETAILS = {
    400: "parameter 'limt' is not known here; known are: limit, next",
    401: "a token is needed, in the header 'Authorization: Bearer <token>'",
    403: "the token has no right to 'produce' for topic 'orders'",
    404: "topic 'orders' does not exist",
    405: "method 'PATCH' is not allowed here; allowed are GET, HEAD, PUT",
    409: "message '0d2f6b91c47e5a3801t19b76e8eb00' of topic 'orders' was delivered",
    410: "the reply came after the deadline of its request",
    413: f"the bodies of field 'messages' are 5000000 bytes in all; at most {BODY_BYTES_MAX} fit",
    429: "queue 1 of topic 'orders' is full: group 'billing' has not consumed 50 messages; the topic's max_depth is 50",
    500: "look for 8c1f0a52d7e3b946 in the log",
    503: "the store did not answer",
    504: "no reply came within 3000 ms",
}
_RETRY_AFTER = (
    "Retry-After",
    "When to retry, in whole seconds from now.",
    {"type": "integer", "minimum": 1},
    RETRY_AFTER_S,
)
_HEADERS = {
    401: ("WWW-Authenticate", "How to authenticate.", {"type": "string"}, "Bearer"),
    405: ("Allow", "The methods that the path has.", {"type": "string"}, "GET, HEAD, PUT"),
    429: _RETRY_AFTER,
    503: _RETRY_AFTER,
}
_EVERYWHERE: Errors = [errors.MethodNotAllowed, errors.MessageTooLarge, errors.Internal, errors.StoreUnavailable]
"""Their responses are the same for every operation that has them."""
_MALFORMED: Errors = [errors.UnknownField, errors.InvalidField, errors.InvalidJson]
"""Those of every operation."""
_MALFORMED_CODES = "Or".join(error.__name__ for error in _MALFORMED)
_GUARDED: Errors = [errors.Unauthenticated, errors.Forbidden]
"""Those of operations that need a token, where access control is on."""


class _Wrong(Answer):
    """code: The kind of error. Stable: clients can switch on it.
    detail: One sentence for people, which names the field and the value."""

    code = string()
    detail = string()


class BadMessage(_Wrong):
    """A bad message.

    index: Its place in the batch, counted from 0."""

    index = integer(most=BATCH_MESSAGES_MAX - 1)


class Problem(_Wrong):
    """An error, as a problem of RFC 9457.

    type: The kind of problem, as a URI reference.
    title: The kind of problem, in words.
    status: The HTTP status.
    errors: All bad messages of a batch. The problem's `code` and `detail` are those of the first bad message or, if
        some are malformed and others only too large, of the first malformed one.
    outcome: `unknown`: the store did not confirm the write, so the request may have been carried out. Only for requests
        that write.
    correlation_id: The request without a reply or, in a 503, the request that may have been sent."""

    type = string(format="uri-reference")
    title = string()
    status = integer()
    errors = Sometimes(array(BadMessage))
    outcome = Sometimes(string(const="unknown"))
    correlation_id = Sometimes(CORRELATION_ID)


def _problems(operation: Operation, schemas: Schemas) -> Json:
    """The error responses of an operation, by status. Those to a malformed request stand also where there is nothing to
    get wrong: a body may come all the same, or a query."""
    names: Errors = [errors.InvalidName] if {"topic", "group"} & {*operation.path_names} else []
    malformed: Errors = [*_MALFORMED, *names]
    by_status: dict[int, Errors] = {}
    for error in [*malformed, *(_NAMED[name] for name in operation.existing), *operation.errors]:
        by_status.setdefault(_status(error), []).append(error)
    own = {str(status): _response(status, raised, schemas) for status, raised in by_status.items()}
    guarded = _GUARDED if operation.right != "anyone" else []
    shared = [*(_EVERYWHERE if operation.asks_store or guarded else _EVERYWHERE[:-1]), *guarded]
    return own | {str(_status(error)): {"$ref": f"#/components/responses/{error.__name__}"} for error in shared}


def _status(error: type[DecantError]) -> int:
    return PROBLEMS[error.__name__][0]


def _response(status: int, raised: Errors, schemas: Schemas) -> Json:
    texts = {error.__name__: described(error)[""] for error in raised}
    response: Json = {
        "description": "\n\n".join(f"`{code}`: {text}" for code, text in texts.items()),
        "content": {
            MEDIA_TYPE: {
                "schema": schemas.ref(_problem(status, raised)),
                "example": problem(raised[0](_DETAILS[status])),
            }
        },
    }
    if status in _HEADERS:
        name, text, kind, example = _HEADERS[status]
        response["headers"] = {name: {"description": text, "required": True, "schema": kind, "example": example}}
    return response


def _problem(status: int, raised: Errors) -> type[Problem]:
    """A type of its own for the problems with this status and these codes: generators cannot narrow a shared one."""
    codes = [error.__name__ for error in raised]
    name = "Or".join(codes).replace(_MALFORMED_CODES, "BadRequest")
    fields = {
        "__doc__": f"A problem with status {status}, as in RFC 9457.",
        "status": {"type": "integer", "const": status},
        "code": string(const=codes[0]) if len(codes) == 1 else string(enum=codes),
    }
    return type(f"{name}Problem", (Problem,), fields)


# -- links ------------------------------------------------------------------------------------------------------------


def _links(operation: Operation, status: int, answer: type[Answer] | str, schemas: Schemas) -> Json:
    """The operations that take the last name in the path of a PUT, or ids and receipts in the answer to a POST."""
    if operation.method not in ("PUT", "POST") or status not in _WITH_IDS or isinstance(answer, str):
        return {}
    known = {name: f"$request.path.{name}" for name in operation.path_names}
    if operation.method == "PUT":
        new = {operation.path_names[-1]}
    else:
        places = _places(schemas.ref(answer), schemas.by_name)
        new = places.keys() - known.keys()
        known = {**places, **known}
    others = [other for family in FAMILIES for other in family.operations if other is not operation]
    takers = [other for other in others if {*other.existing} <= known.keys() and new & _taken(other)]
    return {"links": {other.id: _link(other, known, schemas) for other in takers}} if takers else {}


def _taken(operation: Operation) -> set[str]:
    """A receipt, if it needs one, or else the names in its path that must exist."""
    return {"receipt"} if "receipts" in declarations(operation.request or object) else {*operation.existing}


def _link(operation: Operation, known: Json, schemas: Schemas) -> Json:
    link = {"operationId": operation.id, "parameters": {name: known[name] for name in operation.existing}}
    if operation.request and "receipt" in _taken(operation):
        body = example_of(schemas.ref(operation.request), schemas.by_name)
        link["requestBody"] = {**body, "receipts": [known["receipt"]]}
    return link


def _places(schema: Json, schemas: Json, at: str = "") -> dict[str, str]:
    """The ids and receipts of an answer, and of the first item of its lists, each as an expression."""
    fields = schemas[schema["$ref"].rpartition("/")[2]]["properties"]
    places: dict[str, str] = {}
    for name, part in fields.items():
        if not at and "$ref" in part.get("items", {}) and name != "failed":
            places |= _places(part["items"], schemas, f"/{name}/0")
    names = (name for name in fields if name in _MADE)
    return places | {name: f"$response.body#{at}/{name}" for name in names}
