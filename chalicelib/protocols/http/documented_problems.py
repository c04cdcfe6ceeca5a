"""The errors in the OpenAPI document. Which of them an operation can answer follows from its declaration."""

from __future__ import annotations

from chalicelib.api.operation import Json, Operation, described
from chalicelib.base import errors
from chalicelib.base.errors import DecantError
from chalicelib.base.fields import Answer, Sometimes
from chalicelib.base.limits import BATCH_MESSAGES_MAX, BODY_BYTES_MAX
from chalicelib.base.schema import array, integer, string
from chalicelib.protocols.http.problems import MEDIA_TYPE, PROBLEMS, RETRY_AFTER_S, problem

Errors = list[type[DecantError]]

_NAMED: dict[str, type[DecantError]] = {
    "topic": errors.TopicNotFound,
    "group": errors.GroupNotFound,
    "message_id": errors.MessageNotFound,
}
_DETAILS = {
    400: "parameter 'limt' is not known here; known are: limit, next",
    404: "topic 'orders' does not exist",
    405: "PATCH is not allowed here; allowed are GET, PUT",
    409: "message '0d2f6b91c47e5a3801t19b76e8eb00' of topic 'orders' was delivered",
    413: f"the bodies of field 'messages' are 5000000 bytes in all; at most {BODY_BYTES_MAX} fit",
    500: "look for 8c1f0a52d7e3b946 in the log",
    503: "the store did not answer",
}
_HEADERS = {
    405: ("Allow", "The methods that the path has.", {"type": "string"}, "GET, PUT"),
    503: ("Retry-After", "When to retry, in whole seconds from now.", {"type": "integer", "minimum": 1}, RETRY_AFTER_S),
}
_EVERYWHERE: Errors = [errors.MethodNotAllowed, errors.MessageTooLarge, errors.Internal, errors.StoreUnavailable]


class _Wrong(Answer):
    """code: What went wrong. Stable: the member for clients to switch on.
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
    errors: Every bad message of a batch. `code` and `detail` are those of the first; where some are malformed and
        others only too large, of the first that is malformed.
    outcome: The store's answer was lost: what was asked for may have happened. Only where a request writes."""

    type = string(format="uri-reference")
    title = string()
    status = integer()
    errors = Sometimes(array(BadMessage))
    outcome = Sometimes(string(const="unknown"))


def of(operation: Operation) -> Json:
    """The error responses of an operation, by status. Those to a malformed request stand also where there is nothing to
    get wrong: a body may come all the same, or a query."""
    names: Errors = [errors.InvalidName] if operation.path_names else []
    malformed: Errors = [errors.UnknownField, errors.InvalidField, *names, errors.InvalidJson]
    by_status: dict[int, Errors] = {}
    for error in [*malformed, *(_NAMED[name] for name in operation.existing), *operation.errors]:
        by_status.setdefault(_status(error), []).append(error)
    own = {str(status): _response(status, raised) for status, raised in by_status.items()}
    shared = _EVERYWHERE if operation.asks_store else _EVERYWHERE[:-1]
    return own | {str(_status(error)): {"$ref": f"#/components/responses/{error.__name__}"} for error in shared}


def shared() -> Json:
    """The responses that are the same for every operation that has them, by code."""
    return {error.__name__: _response(_status(error), [error]) for error in _EVERYWHERE}


def _status(error: type[DecantError]) -> int:
    return PROBLEMS[error.__name__][0]


def _response(status: int, raised: Errors) -> Json:
    texts = {error.__name__: described(error)[""] for error in raised}
    members = {"status": {"const": status}, "code": {"enum": list(texts)}}
    schema = {"allOf": [{"$ref": "#/components/schemas/Problem"}, {"type": "object", "properties": members}]}
    response: Json = {
        "description": "\n\n".join(f"`{code}`: {text}" for code, text in texts.items()),
        "content": {MEDIA_TYPE: {"schema": schema, "example": problem(raised[0](_DETAILS[status]))}},
    }
    if status in _HEADERS:
        name, text, kind, example = _HEADERS[status]
        response["headers"] = {name: {"description": text, "required": True, "schema": kind, "example": example}}
    return response
