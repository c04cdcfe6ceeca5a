"""Hands each HTTP request to the door that it is for: that of SQS, that of MQ over HTTP, or the routes of HTTP."""

from __future__ import annotations

from chalicelib.protocols.http import respond as http
from chalicelib.protocols.http.respond import LeftMs, Request, Response


def respond(request: Request, left_ms: LeftMs = lambda: None) -> Response:
    """`left_ms`: how much time there is from now on; None: as much as every call has."""
    if "x-mq-version" in request.headers:
        from chalicelib.protocols.mqhttp import door as mq_door  # which most cold starts do not need

        return mq_door.respond(request, left_ms)
    if _may_be_sqs(request.path):
        from chalicelib.protocols.sqs import door  # likewise

        if response := door.respond(request, left_ms):
            return response
    return http.respond(request, left_ms)


def _may_be_sqs(path: str) -> bool:
    """No path of the routes is the root, or begins with a digit."""
    return path in ("", "/") or path[1:2].isdigit()
