"""Answers HTTP requests, whichever way they came."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from chalicelib.api.operation import Operation
from chalicelib.core.base.errors import DecantError, InvalidField, MessageTooLarge, MethodNotAllowed, NotFound
from chalicelib.core.base.fields import Label, given, quoted
from chalicelib.doors import entrance
from chalicelib.doors.entrance import Answer, Call
from chalicelib.doors.http.body import body_of, text_of
from chalicelib.doors.http.prefer import patience_ms, preferences
from chalicelib.doors.http.routes import operations_at

if TYPE_CHECKING:
    from chalicelib.doors.sqs.action import Action

LeftMs = Callable[[], int | None]


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


class Response(NamedTuple):
    status: int
    headers: dict[str, str]
    text: str


class Found(NamedTuple):
    """What a request asks for. `asked`: None where it asks for nothing that there is. `answer`: carries it out.
    `turned_away`: the response if the head alone has it refused, whatever its body says; else None."""

    asked: Operation | Action | None
    answer: Callable[[LeftMs], Response]
    turned_away: Callable[[], Response | None]


def found(request: Request) -> Found:
    """The operation of the path and the method. `HEAD` asks for what `GET` does; whoever sends the response leaves out
    its body."""
    operations, names = operations_at(request.path) or ({}, [])
    operation = operations.get("GET" if request.method == "HEAD" else request.method)
    if operation:
        answer = partial(_responded, request, operation, names)
        return Found(operation, answer, partial(_turned_away, request, operation, names))
    refused = _not_allowed(request, operations) if operations else _unknown(request)
    return Found(None, lambda _left_ms: refused, lambda: refused)


def refusal(error: DecantError) -> Response:
    """The response where no operation is reached."""
    return _rendered(entrance.refusal(error))


def _responded(request: Request, operation: Operation, names: list[str], left_ms: LeftMs) -> Response:
    return entrance.guarded(lambda: _rendered(_answer(request, operation, names, left_ms)), refusal)


def _turned_away(request: Request, operation: Operation, names: list[str]) -> Response | None:
    """An operation for anyone takes no large body."""
    if operation.right == "anyone":
        return refusal(MessageTooLarge(f"{request.method} {quoted(request.path)} takes no body"))
    refused = entrance.turned_away(Call(operation, names, dict, request.headers))
    return _rendered(refused) if refused else None


def _unknown(request: Request) -> Response:
    return refusal(NotFound(f"there is no path {quoted(request.path)}"))


def _not_allowed(request: Request, operations: Mapping[str, Operation]) -> Response:
    allowed = ", ".join(sorted({*operations, *(["HEAD"] if "GET" in operations else [])}))
    refused = refusal(MethodNotAllowed(f"method {quoted(request.method)} is not allowed here; allowed are {allowed}"))
    return refused._replace(headers={**refused.headers, "Allow": allowed})


def _answer(request: Request, operation: Operation, names: list[str], left_ms: LeftMs) -> Answer:
    preferred = preferences(request.headers.get("prefer", "")) if "Prefer" in operation.headers else {}
    call = Call(operation, names, lambda: _data(request, operation), request.headers, False, left_ms)
    answer = entrance.answer(call._replace(patience_ms=patience_ms(preferred), principal=request.principal))
    is_minimal = answer.status == 200 and preferred.get("return", "").lower() == "minimal"
    return answer._replace(status=204) if is_minimal else answer


def _rendered(answer: Answer) -> Response:
    if answer.status == 204:
        return Response(204, {}, "")
    return Response(answer.status, answer.headers, text_of(answer.body))


class _Nothing:
    """The request of an operation that takes none."""


def _data(request: Request, operation: Operation) -> Any:
    """The query or the body, whichever holds the request. Whatever else was sent is refused."""
    parts = [("parameter", _query(request.query)), ("field", body_of(request.body))]
    data = parts.pop(0 if operation.method == "GET" else 1)[1] if operation.request else {}
    for noun, unknown in parts:
        if unknown != {}:
            given(_Nothing, unknown, Label(noun=noun))
    return data


def _query(pairs: list[tuple[str, str]]) -> dict[str, str]:
    """The query parameters, each given once."""
    parameters = dict(pairs)
    if len(parameters) < len(pairs):
        name, times = Counter(name for name, _ in pairs).most_common(1)[0]
        raise InvalidField(f"parameter {quoted(name)} must be given once, not {times} times")
    return parameters
