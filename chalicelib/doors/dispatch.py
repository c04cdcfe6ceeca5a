"""Carries out and records the calls of all doors, and answers their errors; admits and runs those to operations."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeVar

from chalicelib import wiring
from chalicelib.api.operation import Operation
from chalicelib.core.base.deadline import ending, within
from chalicelib.core.base.errors import DecantError, Internal
from chalicelib.core.base.limits import NAME_PATTERN
from chalicelib.core.base.runtime import system
from chalicelib.core.telemetry.record import Record, note, recording, trace_id
from chalicelib.doors.http.exchange import problem

NO_KEYS = (
    "This stage has no access keys: they need DECANT_ACCESS=tokens, and a signing key that is not kept in the table"
    " (DECANT_SIGNING_KEY_FROM)."
)

LeftMs = Callable[[], int | None]
"""How much time there is from now on, at whose end a call must end; None: as much as every call has."""


class DoorError(Exception):
    """An error of a door's own, that its client gets. `code`: one of the door's table of errors."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code, self.message = code, message


class Answered(Protocol):
    @property
    def status(self) -> int: ...


A = TypeVar("A", bound=Answered)
T = TypeVar("T")

Refuse = Callable[[Any], T]
"""Makes the answer to a DecantError, or to a DoorError of the door."""

_ID_CHARS = 16
_NO_LIMIT = nullcontext()

_log = logging.getLogger("decant")


def serve(name: str, headers: Mapping[str, str], run: Callable[[], A], refuse: Refuse[A], **place: str) -> A:
    """Carries out a call, and records it under this name. `place`: its topic and its group, where they are known."""
    telemetry = wiring.telemetry()
    if telemetry is None:
        return guarded(partial(_tried, run, refuse), refuse)

    def refused(error: DecantError | DoorError) -> A:
        record.code = error.code
        if isinstance(error, DecantError):
            record.about["outcome"] = error.members.get("outcome", "")
        return refuse(error)

    with telemetry.call(name, **place, trace_id=trace_id(headers)) as record:
        answer = guarded(partial(_tried, run, refused), refused)
        record.status = answer.status
    return answer


def _tried(run: Callable[[], T], refuse: Refuse[T]) -> T:
    try:
        return run()
    except DoorError as error:
        return refuse(error)


def turned_away(
    name: str, headers: Mapping[str, str], admit: Callable[[], object], refuse: Refuse[A], **place: str
) -> A | None:
    """The answer to a caller that `admit` refuses by raising, recorded. None: it lets them in, and nothing is recorded:
    the call is still to come."""
    judged = Record(name)
    errors: list[DecantError | DoorError] = []
    with recording(judged):
        guarded(partial(_tried, admit, errors.append), errors.append)
    if not errors:
        return None

    def refused() -> A:
        note(**judged.about)  # whom it has refused
        raise errors[0]

    return serve(name, headers, refused, refuse, **place)


def guarded(run: Callable[[], T], refuse: Refuse[T]) -> T:
    """Returns the result of `run`, or the answer that `refuse` makes of its error. The answer to a defect is an id to
    look up in the log, and shows nothing of the inside."""
    try:
        return run()
    except DecantError as error:
        return refuse(error)
    except Exception:  # noqa: BLE001 - the boundary: nothing of the inside leaves it
        defect_id = system().name(_ID_CHARS)
        note(defect=defect_id)
        _log.exception("defect %s", defect_id)
        return refuse(Internal(f"look for {defect_id} in the log"))


# -- operations -------------------------------------------------------------------------------------------------------


def _unlimited() -> int | None:
    return None


class Call(NamedTuple):
    """A request to an operation. `names`: those in its path. `read`: gives the request as JSON, or as the strings of a
    query; it may raise a DecantError. `headers`: by their names in lower case; `authorization` is there also for an
    invocation that carries a token. `is_invoked`: a direct invocation of a function, which IAM allowed. `patience_ms`:
    for how long it may try to store something, if that is shorter. `is_own`: it comes from a source of events that the
    deployment has set up, and that has no token to show. `principal`: whom IAM has let in; empty: nobody."""

    operation: Operation
    names: Sequence[str]
    read: Callable[[], Any]
    headers: Mapping[str, str]
    left_ms: LeftMs = _unlimited
    is_invoked: bool = False
    patience_ms: int | None = None
    is_own: bool = False
    principal: str = ""


class Answer(NamedTuple):
    """`body`: the operation's answer, or a problem document, as JSON."""

    status: int
    body: Any


def answer(call: Call) -> Answer:
    """Carries out the operation, and records it."""
    place = place_of(call.operation, call.names)
    return serve(call.operation.name, call.headers, lambda: Answer(*perform(call)), refusal, **place)


def refusal(error: DecantError) -> Answer:
    """The answer where the request reaches no operation, or the operation raises."""
    document = problem(error)
    return Answer(document["status"], document)


def perform(call: Call) -> tuple[int, Any]:
    """The status and the body of the answer. A caller that is refused learns nothing, not even whether the request is
    well-formed. Raises DecantError."""
    api = wiring.api()
    limits = in_time(call.left_ms, api.service.env.runtime.uptime(), call.patience_ms)
    with limits, _NO_LIMIT if call.is_own else admitted(call):
        request = call.read()
        if not call.operation.asks_store:
            from chalicelib.doors.http import openapi  # 5 ms of a cold start, for a document that few ask for

            return 200, openapi.document()
        headers = {name: call.headers.get(name.lower()) for name in call.operation.headers if name != "Prefer"}
        return call.operation.call(api.service, call.names, request, **headers)


def admitted(call: Call) -> AbstractContextManager[None]:
    """Runs the call as the holder of its `Authorization`. Raises Unauthenticated, Forbidden."""
    authorization = call.headers.get("authorization")
    return wiring.api().admitted(call.operation, call.names, authorization, call.principal, call.is_invoked)


def place_of(operation: Operation, names: Sequence[str]) -> dict[str, str]:
    """The topic and the group of a request. A name that neither can have may be anything, and is not recorded."""
    named = dict(zip(operation.path_names, names, strict=False))
    return {kind: name for kind in ("topic", "group") if re.fullmatch(NAME_PATTERN, name := str(named.get(kind, "")))}


def in_time(left_ms: LeftMs, uptime_ms: int, patience_ms: int | None = None) -> AbstractContextManager[object]:
    """Ends a call when its time is over. `patience_ms`: as of a `Call`."""
    left = left_ms()
    if left is None and patience_ms is None:
        return _NO_LIMIT
    limits = ExitStack()
    if left is not None:
        limits.enter_context(ending(uptime_ms + left))
    if patience_ms is not None:
        limits.enter_context(within(uptime_ms + patience_ms))
    return limits
