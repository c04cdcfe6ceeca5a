"""Answers the requests of clients of SQS.

Its paths are `/` and `/{account}/{queue}`. There it answers what names an action of SQS: `X-Amz-Target` does in JSON,
`Action` in the query protocol. Everything else is left to the routes of HTTP."""

from __future__ import annotations

import re
from dataclasses import replace
from urllib.parse import parse_qsl, unquote
from xml.sax.saxutils import escape

from chalicelib import wiring
from chalicelib.admin.sqs_queues import QueueGone, Standing
from chalicelib.base.deadline import one_call
from chalicelib.base.errors import DecantError
from chalicelib.base.fields import quoted
from chalicelib.base.runtime import system
from chalicelib.protocols.answering import Origin, answered, in_time
from chalicelib.protocols.http.problems import RETRY_AFTER_S
from chalicelib.protocols.http.respond import LeftMs, Request, Response
from chalicelib.protocols.sqs import json_wire
from chalicelib.protocols.sqs.action import Action, Call, Context, Json
from chalicelib.protocols.sqs.actions import ACTIONS
from chalicelib.protocols.sqs.errors import NO_QUEUE, QUERY_STATUS, SqsError, missing, of_service
from chalicelib.protocols.sqs.message_ids import random_uuid
from chalicelib.telemetry.record import note

TARGET = "AmazonSQS."
OPERATION = "sqs."
"""What the names of actions begin with in log lines and metrics."""

ACCOUNT_PATTERN = "[0-9]{12}"
ACCOUNT_DEFAULT = "000000000000"
REGION_DEFAULT = "us-east-1"

_PATH = re.compile(f"/?|/{ACCOUNT_PATTERN}/([^/]+)")
_CREDENTIAL = re.compile(r"Credential=([^/,\s]+)/[0-9]{8}/([a-z0-9-]+)/sqs/aws4_request")
_PREFIX = re.compile("(/[!-.0-~]+)*")
_NO_KEYS = "This stage demands credentials, and has no access keys for SQS yet."
_NOT_YET = "The query protocol is not served yet: use a client that speaks JSON 1.0."
_NAMESPACE = "http://queue.amazonaws.com/doc/2012-11-05/"


def respond(request: Request, left_ms: LeftMs) -> Response | None:
    """None: the request is not for this door."""
    place = _PATH.fullmatch(request.path)
    if place is None:
        return None
    target = request.headers.get("x-amz-target", "")
    if request.method == "POST" and target.startswith(TARGET):
        return _answered(request, target.removeprefix(TARGET), unquote(place[1] or ""), left_ms)
    return _query_refusal(request) if request.method in ("GET", "POST") and _names_action(request) else None


# -- JSON -------------------------------------------------------------------------------------------------------------


def _answered(request: Request, name: str, queue_name: str, left_ms: LeftMs) -> Response:
    def run() -> Response:
        answer = _carried_out(request, name, queue_name, left_ms)
        return Response(200, _headers(json_wire.MEDIA_TYPE), json_wire.text_of(answer))

    return answered(OPERATION + (name if name in ACTIONS else "unknown"), request, run, _json_refusal)


def _json_refusal(wrong: DecantError | SqsError) -> Response:
    error = wrong if isinstance(wrong, SqsError) else of_service(wrong)
    shape = error.shape
    fault = "Sender" if shape.is_senders else "Receiver"
    retry = {"Retry-After": str(RETRY_AFTER_S)} if shape.status == 503 else {}
    headers = {**_headers(json_wire.MEDIA_TYPE), "x-amzn-query-error": f"{shape.code};{fault}", **retry}
    return Response(shape.status, headers, json_wire.text_of_error(error))


def _headers(media_type: str) -> dict[str, str]:
    """The fronts add `Date`."""
    return {"Content-Type": media_type, "x-amzn-RequestId": random_uuid(system().entropy(16))}


# -- carrying out -----------------------------------------------------------------------------------------------------


def _carried_out(request: Request, name: str, queue_name: str, left_ms: LeftMs) -> Json:
    api = wiring.api()
    if not api.is_open:
        raise SqsError("AccessDenied", _NO_KEYS)
    action = ACTIONS.get(name)
    if action is None:
        raise SqsError("InvalidAction", f"The action {quoted(name)} is not valid for this service.")
    members = json_wire.members_of(request.body, action.members)
    runtime = api.service.env.runtime
    with in_time(runtime, left_ms), one_call(runtime.uptime()):
        call = Call(api.service, members, _context(request))
        try:
            return _run_on_queue(action, call, queue_name) if action.is_on_queue else _run(action, call)
        except QueueGone:
            raise SqsError("QueueDoesNotExist", NO_QUEUE) from None


def _run_on_queue(action: Action, call: Call, queue_name: str) -> Json:
    """The queue is the last part of `QueueUrl`, or of the path. It comes before all other members."""
    queue_name = call.request.get("QueueUrl", queue_name).rsplit("/", 1)[-1]
    if not queue_name:
        raise missing("QueueUrl")

    def run(found: Standing) -> Json:
        note(topic=found.queue.topic, group=found.queue.group)
        return _run(action, replace(call, found=found))

    return call.service.sqs_queues.serve(queue_name, run)


def _run(action: Action, call: Call) -> Json:
    for member in action.required:
        if member not in call.request:
            raise missing(member)
    return action.run(call)


def _context(request: Request) -> Context:
    headers = request.headers
    scope = _CREDENTIAL.search(headers.get("authorization", ""))
    key_id, region = scope.groups() if scope else ("", REGION_DEFAULT)
    scheme, host = Origin.of(request)
    account = key_id if re.fullmatch(ACCOUNT_PATTERN, key_id) else wiring.account() or ACCOUNT_DEFAULT
    prefix = request.prefix if _PREFIX.fullmatch(request.prefix) else ""
    return Context(scheme, host, prefix, account, region, headers)


# -- the query protocol -----------------------------------------------------------------------------------------------


def _names_action(request: Request) -> bool:
    form = request.body[: 64 * 1024].decode("latin-1") if request.method == "POST" else ""
    return any(name == "Action" for name, _ in [*request.query, *parse_qsl(form)])


def _query_refusal(_request: Request) -> Response:
    error = SqsError("InvalidAction", _NOT_YET)
    status = QUERY_STATUS.get(error.kind, error.shape.status)
    headers = _headers("text/xml")
    about = f"<Type>Sender</Type><Code>{error.shape.code}</Code><Message>{escape(error.message)}</Message><Detail/>"
    number = f"<RequestId>{headers['x-amzn-RequestId']}</RequestId>"
    text = f'<ErrorResponse xmlns="{_NAMESPACE}"><Error>{about}</Error>{number}</ErrorResponse>'
    return Response(status, headers, text)
