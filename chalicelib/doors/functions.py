"""Direct invocation: the functions that callers inside AWS invoke. An event has the fields of an operation's request,
the names that its path would have, and perhaps a token; the result is the operation's answer, or an error. Every
function ends its call before Lambda ends the invocation, and refuses the records of event sources that it does not
read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from chalicelib import wiring
from chalicelib.api import OPERATIONS
from chalicelib.api.operation import Operation
from chalicelib.core.base.errors import DecantError, InvalidField, InvalidJson, NotFound
from chalicelib.core.base.fields import Label, check, checked, flag, quoted, request, required, shown, string
from chalicelib.core.base.limits import CONNECT_TIMEOUT_MS, READ_TIMEOUT_MS, SECOND_MS
from chalicelib.doors import dispatch
from chalicelib.doors.dispatch import Answer, Call
from chalicelib.doors.http import events
from chalicelib.doors.http.door import routed
from chalicelib.doors.http.exchange import Request, Response, refusal

ENDING_MS = SECOND_MS + CONNECT_TIMEOUT_MS + READ_TIMEOUT_MS
"""How long before the end of an invocation the last request to the store may begin: it is not interrupted, and leaves a
second for the answer. A function that Lambda stops answers nothing, and its instance is lost."""
ENDING_PART = 2
"""In a function of little time half of it is left, so that it works while the store does."""


class ForeignEvent(Exception):
    """An event source invoked a function that does not read its records. They are lost unless the invocation fails:
    then the source sends them again, or sends them to where it sends its failures."""


def left_ms(context: Any) -> Callable[[], int | None]:
    """How much time a call may take from now on, so that its answer is there before Lambda ends the invocation. None
    without Lambda."""
    remaining_ms = getattr(context, "get_remaining_time_in_millis", None)
    if remaining_ms is None:
        return lambda: None
    return lambda: _before_the_end(int(remaining_ms()))


def _before_the_end(remaining_ms: int) -> int:
    return max(remaining_ms - ENDING_MS, remaining_ms // ENDING_PART)


def caller(context: Any) -> str:
    """The name of the caller of a direct invocation: Lambda tells the function no principal, but CloudTrail's data
    event of this request id names it. Empty without Lambda."""
    request_id = getattr(context, "aws_request_id", "")
    return f"invocation:{request_id}" if request_id else ""


def refuse_records(event: Any) -> None:
    """Raises ForeignEvent for an event of a source: SQS, SNS, S3, Kinesis, DynamoDB Streams, EventBridge."""
    if isinstance(event, dict) and (isinstance(event.get("Records"), list) or "detail-type" in event):
        raise ForeignEvent("this function takes no events of sources: feed them to the function 'ingest'")


def no_request(event: Any) -> InvalidField:
    """The error for an event that is no HTTP request."""
    what = f"a JSON object with {shown(list(event))}" if isinstance(event, dict) else shown(event)
    fronts = "API Gateway, a function URL or a load balancer"
    return InvalidField(f"the event must be an HTTP request as {fronts} sends it; it is {what}")


Json = dict[str, Any]

_WAITING: Mapping[str, tuple[str, ...]] = {"pop": ("pop",), "request": ("request", "get_reply")}
"""Functions that also take HTTP requests, and to which operations: they wait, and the concurrency of their functions is
not that of the others."""


def invoked(name: str, event: Any, context: Any) -> Json:
    """The result of the function of this name: the answer as JSON, or `{"error": problem}`. Where the event is an HTTP
    request, the response to it. Raises ForeignEvent."""
    if received := events.received(event):
        return received.answered(_responded(name, received.request, context))
    refuse_records(event)
    return _result(_answer(OPERATIONS[name], event, context))


def _responded(name: str, request: Request, context: Any) -> Response:
    """The right to invoke one function does not extend to other operations."""
    asked, answer, _ = routed(request)
    if asked and asked.name not in _WAITING.get(name, ()):
        return refusal(NotFound(f"the function '{name}' does not answer {request.method} {quoted(request.path)}"))
    return answer(left_ms(context))


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
    call = Call(operation, names, lambda: _fields(operation, event), headers, left_ms(context))
    return dispatch.answer(call._replace(is_invoked=True, principal=caller(context)))


def _fields(operation: Operation, event: Json) -> Json:
    """The fields that an HTTP request would have in its body. Raises InvalidField for a name that is no string."""
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
    from chalicelib.doors.sqs.registry import moves_of  # which most cold starts do not need

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
    is_staying: The run waits for messages that are due soon."""

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
    refuse_records(event)
    return _result(dispatch.guarded(lambda: Answer(200, work()), dispatch.refusal))
