"""Tells which door an HTTP request is for, and what it asks for there: that of SQS, that of MQ over HTTP, or the
routes of HTTP. This is decided once: all others read the decision from `Found`."""

from __future__ import annotations

from chalicelib.doors.dispatch import LeftMs
from chalicelib.doors.http import door as http_door
from chalicelib.doors.http.door import Found
from chalicelib.doors.http.request import Request
from chalicelib.doors.http.response import Response


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
    return http_door.found(request)


def _may_be_sqs(path: str) -> bool:
    """No path of the routes is the root, or begins with a digit."""
    return path in ("", "/") or path[1:2].isdigit()
