"""The errors of the contract, as RFC 9457 problems. Which of them an operation can answer follows from its shape."""

from __future__ import annotations

from chalicelib.base import errors
from chalicelib.base.errors import DecantError
from chalicelib.base.limits import BATCH_MESSAGES_MAX, BODY_BYTES_MAX
from chalicelib.protocols.http.contract.operation import Operation
from chalicelib.protocols.http.contract.values import Json, answer, array, integer, ref, string
from chalicelib.protocols.http.problems import MEDIA_TYPE, RETRY_AFTER_S, problem

Errors = list[type[DecantError]]

_NAMED: dict[str, type[DecantError]] = {
    "topic": errors.TopicNotFound,
    "group": errors.GroupNotFound,
    "message_id": errors.MessageNotFound,
}
_TEXTS = {
    400: "The request is malformed. Nothing was changed.",
    404: "What the path names is not there.",
    405: "The path does not have the method that was used; those it has are in `Allow`.",
    409: "It is too late for that.",
    413: "A body, the batch, or the request is too large, or no response could carry the message (see NewMessage), and"
    " nothing else is wrong. Nothing was stored.",
    500: "A defect of the service.",
    503: "The store is throttled or does not answer, after retries.",
}
_EXAMPLES = {
    400: errors.UnknownField("parameter 'limt' is not known here; known are: limit, next"),
    404: errors.TopicNotFound("topic 'orders' does not exist"),
    405: errors.MethodNotAllowed("PATCH is not allowed here; allowed are GET, PUT"),
    409: errors.AlreadyDelivered("message '0d2f6b91c47e5a3801t19b76e8eb00' of topic 'orders' was delivered"),
    413: errors.MessageTooLarge(
        f"the bodies of field 'messages' are 5000000 bytes in all; at most {BODY_BYTES_MAX} fit"
    ),
    500: errors.Internal("look for 8c1f0a52d7e3b946 in the log"),
    503: errors.StoreUnavailable("the store did not answer"),
}
_RETRY_AFTER: Json = {
    "description": "When to try again, in whole seconds from now.",
    "required": True,
    "schema": {"type": "integer", "minimum": 1},
    "example": RETRY_AFTER_S,
}
_ALLOW: Json = {
    "description": "The methods that the path has.",
    "required": True,
    "schema": {"type": "string"},
    "example": "GET, PUT",
}

_CODE = string("What went wrong. Stable: the member for clients to switch on.")
_DETAIL = string("One sentence for people, which names the field and the value.")
_INDEX = integer("Its place in the batch, counted from 0.", most=BATCH_MESSAGES_MAX - 1)
SCHEMAS: Json = {
    "Problem": answer(
        "An error, as RFC 9457 has it.",
        {
            "type": string("The kind of problem, as a URI reference.", format="uri-reference"),
            "title": string("The kind of problem, in words."),
            "status": integer("The HTTP status."),
            "code": _CODE,
            "detail": _DETAIL,
        },
        {
            "errors": array(
                "Every bad message of a batch. `code` and `detail` are those of the first; where some are malformed and"
                " others only too large, of the first that is malformed.",
                answer("A bad message.", {"index": _INDEX, "code": _CODE, "detail": _DETAIL}),
            ),
            "outcome": string(
                "The store's answer was lost: what was asked for may have happened. Only where a request writes.",
                const="unknown",
            ),
        },
    )
}


def of(operation: Operation) -> Json:
    """The error responses of an operation, by status."""
    responses = {"400": _response(400, _malformed(operation))}
    if missing := _missing(operation):
        responses["404"] = _response(404, missing)
    responses["405"] = _shared(errors.MethodNotAllowed)
    if operation.conflict:
        responses["409"] = _response(409, list(operation.conflict))
    responses["413"] = _shared(errors.MessageTooLarge)
    responses["500"] = _shared(errors.Internal)
    if operation.asks_store:
        responses["503"] = _shared(errors.StoreUnavailable)
    return responses


def shared() -> Json:
    """The responses that are the same for every operation that has them, by code."""
    not_allowed = {**_response(405, [errors.MethodNotAllowed]), "headers": {"Allow": _ALLOW}}
    unavailable = {**_response(503, [errors.StoreUnavailable]), "headers": {"Retry-After": _RETRY_AFTER}}
    return {
        errors.MethodNotAllowed.__name__: not_allowed,
        errors.MessageTooLarge.__name__: _response(413, [errors.MessageTooLarge]),
        errors.Internal.__name__: _response(500, [errors.Internal]),
        errors.StoreUnavailable.__name__: unavailable,
    }


def _shared(error: type[DecantError]) -> Json:
    return {"$ref": f"#/components/responses/{error.__name__}"}


def _malformed(operation: Operation) -> Errors:
    """Also where there is nothing to get wrong: a body may come all the same, or a query."""
    found: Errors = [errors.UnknownField, errors.InvalidField]
    found += [errors.InvalidName] if operation.path_parameters else []
    found += [errors.InvalidFilter] if operation.id == "putGroup" else []
    return [*found, errors.InvalidJson]


def _missing(operation: Operation) -> Errors:
    """One for each name in the path and in the body, but a PUT makes what the last one of the path names."""
    names = operation.path_parameters[:-1] if operation.method == "put" else operation.path_parameters
    return [_NAMED[name] for name in (*names, *operation.names)]


def _response(status: int, raised: Errors) -> Json:
    codes = [error.__name__ for error in raised]
    members = {"status": {"const": status}, "code": {"enum": codes}}
    schema = {"allOf": [ref("Problem"), {"type": "object", "properties": members}]}
    return {
        "description": f"{_TEXTS[status]} Codes: {', '.join(f'`{code}`' for code in codes)}.",
        "content": {MEDIA_TYPE: {"schema": schema, "example": problem(_EXAMPLES[status])}},
    }
