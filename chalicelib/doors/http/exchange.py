"""An HTTP request, whichever way it came, and its response. Errors are RFC 9457 problems: here is the one table from
code to status."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from chalicelib.core.base.errors import DecantError, InvalidField, InvalidJson, MessageTooLarge
from chalicelib.core.base.fields import quoted, read_json
from chalicelib.core.base.limits import HOP_MS_MIN, REQUEST_BYTES_MAX, SECOND_MS

if TYPE_CHECKING:
    from chalicelib.api.operation import Operation
    from chalicelib.doors.dispatch import LeftMs
    from chalicelib.doors.sqs.action import Action

# -- requests ---------------------------------------------------------------------------------------------------------

_HOST = re.compile("[A-Za-z0-9.:_\\[\\]-]+")
_PREFERENCE = r"""\s*([^\s=;"]+)\s*=\s*(?:"([^"]*)"|([^\s;"]+))\s*(?:;.*)?"""
"""A name and a value. Commas in quoted values would need more; no preference that is known here has one."""
_SECONDS = "[0-9]{1,9}"
_PREFERENCES_MAX = 100
"""Preferences that are read; the service knows two."""


class Origin(NamedTuple):
    """Where a request came in."""

    scheme: str
    host: str


class Request(NamedTuple):
    """`path`: as it was sent, without anything that belongs to the way here, which is the `prefix`. `query`: decoded.
    `headers`: by their names in lower case. `raw_query`: as it was sent; None if the front does not tell it.
    `principal`: whom IAM has let in, as the front says; empty: it asked nobody."""

    method: str
    path: str
    query: list[tuple[str, str]]
    headers: Mapping[str, str]
    body: bytes
    prefix: str = ""
    raw_query: str | None = None
    principal: str = ""

    @property
    def origin(self) -> Origin:
        host = self.headers.get("host", "")
        is_secure = self.headers.get("x-forwarded-proto", "").lower().startswith("https")
        return Origin("https" if is_secure else "http", host if _HOST.fullmatch(host) else "localhost")


def body_of(raw: bytes) -> Any:
    """The request body as JSON; an empty one is `{}`. Raises InvalidJson, and MessageTooLarge."""
    if len(raw) > REQUEST_BYTES_MAX:
        raise MessageTooLarge(f"the request has more than {REQUEST_BYTES_MAX} bytes")
    return parsed(raw) if raw.strip() else {}


def parsed(raw: bytes) -> Any:
    """Raises InvalidJson. Text may still hold half of a surrogate pair: the checks of fields refuse that."""
    try:
        return read_json(raw, "the request body")
    except ValueError as error:
        raise InvalidJson(str(error)) from None


def query_of(pairs: list[tuple[str, str]]) -> dict[str, str]:
    """The query parameters, each given once. Raises InvalidField."""
    parameters = dict(pairs)
    if len(parameters) < len(pairs):
        name, times = Counter(name for name, _ in pairs).most_common(1)[0]
        raise InvalidField(f"parameter {quoted(name)} must be given once, not {times} times")
    return parameters


def preferences(header: str) -> dict[str, str]:
    """The values of a `Prefer` header (RFC 7240) by name. The first of two with one name counts. Those that are
    unknown or malformed are ignored, as it says."""
    parts = header.split(",", _PREFERENCES_MAX)[:_PREFERENCES_MAX]
    matches = [match for part in parts if (match := re.fullmatch(_PREFERENCE, part))]
    return {match[1].lower(): match[2] or match[3] or "" for match in reversed(matches)}


def patience_ms(preferred: Mapping[str, str]) -> int | None:
    """The time that `wait=N` gives the call, in seconds from now; `HOP_MS_MIN` at least, by when a healthy store has
    responded. None without it: the call has the time that every call has."""
    seconds = preferred.get("wait", "")
    if not re.fullmatch(_SECONDS, seconds):
        return None
    return max(int(seconds) * SECOND_MS, HOP_MS_MIN)


# -- responses --------------------------------------------------------------------------------------------------------

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


# -- a request that a door has found ----------------------------------------------------------------------------------


class Found(NamedTuple):
    """A request, understood. `asked`: None where it asks for nothing that there is. `answer`: carries it out.
    `turned_away`: the response if the head alone has it refused, whatever its body says; else None."""

    asked: Operation | Action | None
    answer: Callable[[LeftMs], Response]
    turned_away: Callable[[], Response | None]
