"""An HTTP response. Errors are RFC 9457 problems: here is the one table from code to status."""

from __future__ import annotations

from typing import Any, NamedTuple

import orjson

from chalicelib.core.base.errors import DecantError

MEDIA_TYPE = "application/problem+json"

RETRY_AFTER_S = 1

PROBLEMS: dict[str, tuple[int, str]] = {
    "InvalidJson": (400, "The request body is not a JSON object"),
    "InvalidField": (400, "A field has an invalid value"),
    "UnknownField": (400, "A field is unknown"),
    "InvalidFilter": (400, "A filter is invalid"),
    "InvalidName": (400, "A name is invalid"),
    "Unauthenticated": (401, "A valid token is needed"),
    "Forbidden": (403, "Not allowed"),
    "TopicNotFound": (404, "The topic does not exist"),
    "GroupNotFound": (404, "The group does not exist"),
    "MessageNotFound": (404, "The message does not exist"),
    "RequestNotFound": (404, "The request does not exist"),
    "AlreadyReplied": (409, "The request has a reply"),
    "RequestExpired": (410, "The reply came too late"),
    "ReplyTimeout": (504, "No reply came in time"),
    "AlreadyDelivered": (409, "The message was already delivered"),
    "TransactionNotFound": (404, "The transaction does not exist"),
    "TransactionEnded": (409, "The opposite was decided before"),
    "TokenNotFound": (404, "The token does not exist"),
    "GroupIsPushed": (409, "The group is pushed"),
    "QueuesDraining": (409, "Queues are still draining"),
    "NotFound": (404, "The path does not exist"),
    "MethodNotAllowed": (405, "Method not allowed"),
    "MessageTooLarge": (413, "A message or a batch is too large"),
    "QueueFull": (429, "The queue is full"),
    "Internal": (500, "Internal error"),
    "StoreUnavailable": (503, "The store is unavailable"),
}
"""Code -> status and title."""


def problem(error: DecantError) -> dict[str, Any]:
    status, title = PROBLEMS[error.code]
    head = {"type": f"urn:decant:problem:{error.code}", "title": title, "status": status, "code": error.code}
    return {**head, "detail": error.detail, **error.members}


def headers(document: dict[str, Any]) -> dict[str, str]:
    """The headers that go with a problem."""
    retry = {"Retry-After": str(RETRY_AFTER_S)} if document["status"] in (429, 503) else {}
    challenge = {"WWW-Authenticate": "Bearer"} if document["status"] == 401 else {}
    return {"Content-Type": MEDIA_TYPE, **retry, **challenge}


class Response(NamedTuple):
    status: int
    headers: dict[str, str]
    text: str


def refusal(error: DecantError) -> Response:
    """The response to a request that fails."""
    document = problem(error)
    return Response(document["status"], headers(document), text_of(document))


def text_of(answer: Any) -> str:
    """The body of an answer, or of a problem document. Text is no JSON, and goes as it is."""
    if isinstance(answer, str):
        return answer
    return orjson.dumps(answer, option=orjson.OPT_APPEND_NEWLINE).decode()
