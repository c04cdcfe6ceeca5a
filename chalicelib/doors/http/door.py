"""Answers HTTP requests. Finds the door of each, once: that of SQS, that of MQ over HTTP, or the routes of the
contract, and there the operation of a path and a method."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from functools import partial
from operator import itemgetter
from typing import Any, NamedTuple
from urllib.parse import unquote

from chalicelib.api import OPERATIONS
from chalicelib.api.operation import Operation
from chalicelib.core.base.errors import MessageTooLarge, MethodNotAllowed, NotFound
from chalicelib.core.base.fields import Label, given, quoted
from chalicelib.doors import dispatch
from chalicelib.doors.dispatch import Call, LeftMs
from chalicelib.doors.http.exchange import (
    Found,
    Request,
    Response,
    body_of,
    patience_ms,
    preferences,
    query_of,
    refusal,
    text_of,
)


def respond(request: Request, left_ms: LeftMs = lambda: None) -> Response:
    """`left_ms`: how much time there is from now on; None: as much as every call has."""
    return found(request).answer(left_ms)


def found(request: Request, is_whole: bool = True) -> Found:
    """`is_whole`: False if its body is still to come."""
    if "x-mq-version" in request.headers:
        from chalicelib.doors.mqhttp import door as mq_door  # which most cold starts do not need

        return mq_door.found(request)
    if _may_be_sqs(request.path):
        from chalicelib.doors.sqs import door  # likewise

        if of_sqs := door.found(request, is_whole):
            return of_sqs
    return routed(request)


def _may_be_sqs(path: str) -> bool:
    """No path of the routes is the root, or begins with a digit."""
    return path in ("", "/") or path[1:2].isdigit()


def routed(request: Request) -> Found:
    """The operation of the path and the method. `HEAD` asks for what `GET` does; the server leaves out the body of the
    response."""
    operations, names = operations_at(request.path) or ({}, [])
    operation = operations.get("GET" if request.method == "HEAD" else request.method)
    if operation:
        answer = partial(_answered, request, operation, names)
        return Found(operation, answer, partial(_turned_away, request, operation, names))
    refused = _not_allowed(request, operations) if operations else _unknown(request)
    return Found(None, lambda _left_ms: refused, lambda: refused)


def _unknown(request: Request) -> Response:
    return refusal(NotFound(f"there is no path {quoted(request.path)}"))


def _not_allowed(request: Request, operations: Mapping[str, Operation]) -> Response:
    allowed = ", ".join(sorted({*operations, *(["HEAD"] if "GET" in operations else [])}))
    refused = refusal(MethodNotAllowed(f"method {quoted(request.method)} is not allowed here; allowed are {allowed}"))
    return refused._replace(headers={**refused.headers, "Allow": allowed})


def _answered(request: Request, operation: Operation, names: list[str], left_ms: LeftMs) -> Response:
    def run() -> Response:
        preferred = preferences(request.headers.get("prefer", "")) if "Prefer" in operation.headers else {}
        call = Call(
            *(operation, names, lambda: _data(request, operation), request.headers, left_ms),
            patience_ms=patience_ms(preferred) if preferred else None,
            principal=request.principal,
        )
        status, body = dispatch.perform(call)
        if status == 204 or (status == 200 and preferred.get("return", "").lower() == "minimal"):
            return Response(204, {}, "")
        return Response(status, {"Content-Type": operation.media_type}, text_of(body))

    return dispatch.serve(operation.name, request.headers, run, refusal, **dispatch.place_of(operation, names))


def _turned_away(request: Request, operation: Operation, names: list[str]) -> Response | None:
    """An operation for anyone takes no large body."""
    if operation.right == "anyone":
        return refusal(MessageTooLarge(f"{request.method} {quoted(request.path)} takes no body"))
    call = Call(operation, names, dict, request.headers, lambda: None)
    place = dispatch.place_of(operation, names)
    return dispatch.turned_away(operation.name, request.headers, lambda: dispatch.admitted(call), refusal, **place)


class _Nothing:
    """The request of an operation that takes none."""


def _data(request: Request, operation: Operation) -> Any:
    """The query or the body, whichever holds the request. Whatever else was sent is refused."""
    parts = [("parameter", query_of(request.query)), ("field", body_of(request.body))]
    data = parts.pop(0 if operation.method == "GET" else 1)[1] if operation.request else {}
    for noun, unknown in parts:
        if unknown != {}:
            given(_Nothing, unknown, Label(noun=noun))
    return data


# -- routes -----------------------------------------------------------------------------------------------------------

TEMPLATES = {
    path: {operation.method: operation for operation in OPERATIONS.values() if operation.path == path}
    for path in dict.fromkeys(operation.path for operation in OPERATIONS.values())
}
"""Path template -> method -> operation."""


class _Shape(NamedTuple):
    """How to recognise a path of a template: by its fixed parts. `named`: where the names stand."""

    operations: Mapping[str, Operation]
    fixed_of: Callable[[list[str]], object]
    fixed: object
    named: list[int]


def _shape(path: str) -> _Shape:
    parts = path.split("/")
    named = [place for place, part in enumerate(parts) if part.startswith("{")]
    fixed_of = itemgetter(*(place for place in range(len(parts)) if place not in named))
    return _Shape(TEMPLATES[path], fixed_of, fixed_of(parts), named)


_SHAPES: dict[tuple[int, str | None], list[_Shape]] = defaultdict(list)
"""By the number of parts, and the last one; None stands for a name."""
for _path in TEMPLATES:
    _last = _path.split("/")[-1]
    _SHAPES[_path.count("/") + 1, None if _last.startswith("{") else _last].append(_shape(_path))


def operations_at(path: str) -> tuple[Mapping[str, Operation], list[str]] | None:
    """The operations by their methods, and the names in the path. None: there is no such path. One with an extra slash
    is none: otherwise every resource would have aliases."""
    parts = path.split("/")
    for last in (parts[-1], None):
        for shape in _SHAPES.get((len(parts), last), ()):
            names = [parts[place] for place in shape.named]
            if all(names) and shape.fixed_of(parts) == shape.fixed:
                return shape.operations, [unquote(name) for name in names]
    return None
