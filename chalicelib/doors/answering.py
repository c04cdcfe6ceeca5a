"""What the doors for clients of other services share: how a call is carried out and recorded, and where it came in."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple, TypeVar

from chalicelib import wiring
from chalicelib.core.base.deadline import ending
from chalicelib.core.base.runtime import Runtime
from chalicelib.core.telemetry.record import Record, note, recording
from chalicelib.core.telemetry.trace_context import trace_id
from chalicelib.doors import entrance
from chalicelib.doors.http.respond import LeftMs, Request, Response

NO_KEYS = (
    "This stage has no access keys: they need DECANT_ACCESS=tokens, and a signing key that is not kept in the table"
    " (DECANT_SIGNING_KEY_FROM)."
)

R = TypeVar("R")

_HOST = re.compile("[A-Za-z0-9.:_\\[\\]-]+")


class DoorError(Exception):
    """An error of a door's own, that its client gets. `kind`: one of the door's table of errors."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind, self.message = kind, message


Refused = Callable[[Any], Response]
"""The response to a DecantError, or to a DoorError of the door."""


def answered(name: str, request: Request, run: Callable[[], Response], refused: Refused, **place: str) -> Response:
    """Carries out a call, and records it under this name. `place`: its topic and its group, where they are known."""
    return _recorded(name, request, lambda: _outcome(run, refused), **place)


def turned_away(
    name: str, request: Request, admit: Callable[[], object], refused: Refused, **place: str
) -> Response | None:
    """The response to a caller that `admit` refuses by raising, recorded. None: it lets them in."""

    def admitted() -> None:
        admit()

    judged = Record(name)
    with recording(judged):
        response, code = _outcome(admitted, refused)
    if response is None:
        return None

    def told() -> tuple[Response, str]:
        note(**judged.about)  # whom it has refused
        return response, code

    return _recorded(name, request, told, **place)


def _recorded(name: str, request: Request, outcome: Callable[[], tuple[Response, str]], **place: str) -> Response:
    telemetry = wiring.telemetry()
    if telemetry is None:
        return outcome()[0]
    with telemetry.call(name, **place, trace_id=trace_id(request.headers)) as record:
        response, record.code = outcome()
        record.status = response.status
    return response


def _outcome(run: Callable[[], R], refused: Refused) -> tuple[R | Response, str]:
    """The response, and what log lines call the error, if it is one."""

    def tried() -> tuple[R | Response, str]:
        try:
            return run(), ""
        except DoorError as error:
            return refused(error), error.kind

    return entrance.guarded(tried, lambda error: (refused(error), error.code))


def in_time(runtime: Runtime, left_ms: LeftMs) -> AbstractContextManager[None]:
    """Ends a call when its time is over."""
    left = left_ms()
    return nullcontext() if left is None else ending(runtime.uptime() + left)


class Origin(NamedTuple):
    """Where a request came in."""

    scheme: str
    host: str

    @classmethod
    def of(cls, request: Request) -> Origin:
        host = request.headers.get("host", "")
        is_secure = request.headers.get("x-forwarded-proto", "").lower().startswith("https")
        return cls("https" if is_secure else "http", host if _HOST.fullmatch(host) else "localhost")
