"""The way in: every protocol hands a request to an operation over here, and gets its answer, whatever happens."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import Any, NamedTuple, TypeVar

from chalicelib import wiring
from chalicelib.api.operation import Operation
from chalicelib.core.base.deadline import ending, within
from chalicelib.core.base.errors import DecantError, Internal
from chalicelib.core.base.limits import NAME_PATTERN
from chalicelib.core.base.runtime import system
from chalicelib.core.telemetry.record import Record, note, recording
from chalicelib.core.telemetry.trace_context import trace_id
from chalicelib.doors.http import problems
from chalicelib.service import Service

T = TypeVar("T")

_ID_CHARS = 16
_BAD = 400
_NO_LIMIT = nullcontext()

_log = logging.getLogger("decant")


def _unlimited() -> int | None:
    return None


class Call(NamedTuple):
    """A request to an operation. `names`: those in its path. `read`: gives the request as JSON, or as the strings of a
    query; it may raise a DecantError. `headers`: by their names in lower case; `authorization` is there also for an
    invocation that carries a token. `is_invoked`: a direct invocation of a function, which IAM allowed. `left_ms`: how
    much time there is from now on, at whose end the call must end; None: as much as every call has. `patience_ms`: for
    how long it may try to store something, if that is shorter. `is_own`: it comes from a source of events that the
    deployment has set up, and that has no token to show. `principal`: whom IAM has let in; empty: nobody."""

    operation: Operation
    names: Sequence[str]
    read: Callable[[], Any]
    headers: Mapping[str, str]
    is_invoked: bool = False
    left_ms: Callable[[], int | None] = _unlimited
    patience_ms: int | None = None
    is_own: bool = False
    principal: str = ""


class Answer(NamedTuple):
    """`body`: the operation's answer, or a problem document, as JSON; None where there is none."""

    status: int
    body: Any
    headers: dict[str, str]


def answer(call: Call) -> Answer:
    """Carries out the operation, and records it."""
    return _recorded(call, lambda: guarded(lambda: _carried_out(call), refusal))


def turned_away(call: Call) -> Answer | None:
    """The answer to whoever may not make the call, recorded, before its request is read. None: they may."""

    def admit() -> None:
        authorization = call.headers.get("authorization")
        wiring.api().admitted(call.operation, call.names, authorization, call.principal, call.is_invoked)

    judged = Record(call.operation.name)
    with recording(judged):
        refused = guarded(admit, refusal)
    if refused is None:
        return None

    def told() -> Answer:
        note(**judged.about)  # whom it has refused
        return refused

    return _recorded(call, told)


def _recorded(call: Call, answered: Callable[[], Answer]) -> Answer:
    telemetry = wiring.telemetry()
    if telemetry is None:
        return answered()
    with telemetry.call(call.operation.name, **_place(call), trace_id=trace_id(call.headers)) as record:
        answer = answered()
        problem = answer.body if answer.status >= _BAD else {}
        record.status, record.code = answer.status, problem.get("code", "")
        record.about["outcome"] = problem.get("outcome", "")
    return answer


def _place(call: Call) -> dict[str, str]:
    """The topic and the group of the request. What can be neither may be anything, and is not told."""
    named = dict(zip(call.operation.path_names, call.names, strict=False))
    return {kind: name for kind in ("topic", "group") if re.fullmatch(NAME_PATTERN, name := str(named.get(kind, "")))}


def guarded(run: Callable[[], T], refused: Callable[[DecantError], T]) -> T:
    """What it returns, or what `refused` makes of the error that it raises: of a defect, an id to look up in the log,
    which shows nothing of the inside."""
    try:
        return run()
    except DecantError as error:
        return refused(error)
    except Exception:  # noqa: BLE001 - the boundary: nothing of the inside leaves it
        defect_id = system().name(_ID_CHARS)
        note(defect=defect_id)
        _log.exception("defect %s", defect_id)
        return refused(Internal(f"look for {defect_id} in the log"))


def refusal(error: DecantError) -> Answer:
    """The answer where the request reaches no operation, or the operation raises."""
    document = problems.problem(error)
    return Answer(document["status"], document, problems.headers(document))


def _carried_out(call: Call) -> Answer:
    """Who may not call learns nothing, not even whether the request is well-formed."""
    api = wiring.api()
    with _time(call, api.service.env.runtime.uptime()):
        if call.is_own:
            return _performed(call, api.service)
        authorization = call.headers.get("authorization")
        with api.admitted(call.operation, call.names, authorization, call.principal, call.is_invoked):
            return _performed(call, api.service)


def _performed(call: Call, service: Service) -> Answer:
    request = call.read()
    if call.operation.asks_store:
        headers = {name: call.headers.get(name.lower()) for name in call.operation.headers if name != "Prefer"}
        status, body = call.operation.call(service, call.names, request, **headers)
    else:
        from chalicelib.doors.http import openapi  # 5 ms of a cold start, for a document that few ask for

        status, body = 200, openapi.document()
    return Answer(status, body, {"Content-Type": call.operation.media_type})


def _time(call: Call, uptime_ms: int) -> AbstractContextManager[object]:
    left_ms = call.left_ms()
    if left_ms is None and call.patience_ms is None:
        return _NO_LIMIT
    limits = ExitStack()
    if left_ms is not None:
        limits.enter_context(ending(uptime_ms + left_ms))
    if call.patience_ms is not None:
        limits.enter_context(within(uptime_ms + call.patience_ms))
    return limits
