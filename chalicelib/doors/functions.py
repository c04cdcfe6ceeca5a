"""Direct invocation: the functions that callers inside AWS invoke. An event has the fields of an operation's request,
the names that its path would have, and perhaps a token; the result is the operation's answer, or an error."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from chalicelib import wiring
from chalicelib.api import OPERATIONS
from chalicelib.api.operation import Operation
from chalicelib.core.base.errors import DecantError, InvalidJson, NotFound
from chalicelib.core.base.fields import Label, check, checked, quoted, request, required, shown
from chalicelib.core.base.schema import flag, string
from chalicelib.doors import dispatch, invocation
from chalicelib.doors.dispatch import Answer, Call
from chalicelib.doors.http import events
from chalicelib.doors.http.door import found
from chalicelib.doors.http.request import Request
from chalicelib.doors.http.response import Response, refusal
from chalicelib.doors.sqs.registry import moves_of

Json = dict[str, Any]

_WAITING: Mapping[str, tuple[str, ...]] = {"pop": ("pop",), "request": ("request", "get_reply")}
"""Functions that also take HTTP requests, and to which operations: they wait, and the concurrency of their functions is
not that of the others."""


def invoked(name: str, event: Any, context: Any) -> Json:
    """The result of the function of this name: the answer as JSON, or `{"error": problem}`. Where the event is an HTTP
    request, the response to it. Raises ForeignEvent."""
    if received := events.received(event):
        return received.answered(_responded(name, received.request, context))
    invocation.refuse_records(event)
    return _result(_answer(OPERATIONS[name], event, context))


def _responded(name: str, request: Request, context: Any) -> Response:
    """Who may invoke one function may not call other operations through it."""
    asked, answer, _ = found(request)
    if asked and asked.name not in _WAITING.get(name, ()):
        return refusal(NotFound(f"the function '{name}' does not answer {request.method} {quoted(request.path)}"))
    return answer(invocation.left_ms(context))


def _result(answer: Answer) -> Json:
    return {"error": answer.body} if answer.status >= 400 else answer.body


def _answer(operation: Operation, event: Any, context: Any) -> Answer:
    try:
        if not isinstance(event, dict):
            raise InvalidJson(f"the event must be a JSON object, not {shown(event)}")
        token = event.get("token")
        headers = {} if token is None else {"authorization": f"Bearer {_text('token', token)}"}
    except DecantError as error:
        return dispatch.refusal(error)
    names = [str(event.get(name, "")) for name in operation.path_names]
    call = Call(operation, names, lambda: _fields(operation, event), headers, invocation.left_ms(context))
    return dispatch.answer(call._replace(is_invoked=True, principal=invocation.caller(context)))


def _fields(operation: Operation, event: Json) -> Json:
    """What an HTTP request would have in its body. Raises InvalidField for a name that is no string."""
    for name in operation.path_names:
        _text(name, event.get(name))
    return {name: value for name, value in event.items() if name not in (*operation.path_names, "token")}


def _text(name: str, value: Any) -> str:
    return str(check(string(), value, Label(name)))


# -- work that is not for a client -------------------------------------------------------------------------------------


def _push_all() -> Json:
    service = wiring.api().service
    return service.sweeps.push(service.outside.wake).as_json()


def _move() -> Json:
    service = wiring.api().service
    return service.sweeps.move(moves_of(service)).as_json()


SWEEPS: Mapping[str, Callable[[], Json]] = {
    "revive": lambda: wiring.api().service.sweeps.revive().as_json(),
    "forward": lambda: wiring.api().service.sweeps.forward().as_json(),
    "expire": lambda: wiring.api().service.sweeps.expire().as_json(),
    "check": lambda: wiring.api().service.sweeps.check().as_json(),
    "push_all": _push_all,
    "move": _move,
    "export": lambda: wiring.export(),
}


@request
class SweepRequest:
    """sweep: Which one to run."""

    sweep: str = required(string(enum=list(SWEEPS)))


def swept(event: Any) -> Json:
    """Runs the sweep that the event names now. Returns what it did, or `{"error": problem}`. Raises ForeignEvent."""
    return _worked(event, lambda: SWEEPS[checked(SweepRequest, event).sweep]())


@request
class PushRequest:
    """topic: Whose pushed groups are called.
    is_staying: The run waits for what is due soon."""

    topic: str = required(string())
    is_staying: bool = required(flag())


def pushed(event: Any) -> Json:
    """Calls the consumers of a topic. Returns nothing, or `{"error": problem}`. Raises ForeignEvent."""

    def push() -> Json:
        request = checked(PushRequest, event)
        wiring.api().service.pushing.run(request.topic, request.is_staying)
        return {}

    return _worked(event, push)


def _worked(event: Any, work: Callable[[], Json]) -> Json:
    invocation.refuse_records(event)
    return _result(dispatch.guarded(lambda: Answer(200, work()), dispatch.refusal))
