"""Answers the requests of clients of SQS.

Its paths are `/` and `/{account}/{queue}`. `X-Amz-Target` names an action in JSON, `Action` in the query protocol.
Requests to `/` that name none are left to the routes of HTTP."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Protocol
from urllib.parse import unquote

from chalicelib import wiring
from chalicelib.api import Api
from chalicelib.core.access.callers import Caller, WrongSignature, called_by, is_limited
from chalicelib.core.base.deadline import one_call
from chalicelib.core.base.errors import DecantError, Unauthenticated
from chalicelib.core.base.runtime import system
from chalicelib.core.telemetry.record import note
from chalicelib.doors import dispatch
from chalicelib.doors.dispatch import LeftMs, in_time
from chalicelib.doors.http.exchange import RETRY_AFTER_S, Found, Request, Response
from chalicelib.doors.sqs import json_wire, query_wire, sigv4
from chalicelib.doors.sqs.action import Action, Call, Carrier, Context, Json
from chalicelib.doors.sqs.actions import ACTIONS
from chalicelib.doors.sqs.errors import NO_QUEUE, SqsError, denied, missing, of_service
from chalicelib.doors.sqs.messages import random_uuid
from chalicelib.doors.sqs.registry import QueueGone, Standing, queues_of

OPERATION = "sqs."
"""Begins the names of actions in log lines and metrics."""

ACCOUNT_PATTERN = "[0-9]{12}"
ACCOUNT_DEFAULT = "000000000000"
REGION_DEFAULT = "us-east-1"

_PATH = re.compile(f"/?|/{ACCOUNT_PATTERN}/([^/]+)/?")
_CREDENTIAL = re.compile(r"Credential=([^=/,\s]+)/[0-9]{8}/([a-z0-9-]+)/sqs/aws4_request")
_PREFIX = re.compile("(/[!-.0-~]+)*")
_BAD_KEY = "The security token included in the request is invalid."
_BAD_SIGNATURE = (
    "The request signature we calculated does not match the signature you provided. Check your AWS Secret Access Key"
    " and signing method. Consult the service documentation for details."
)


class Wire(Carrier, Protocol):
    """A request in one of the encodings. `action`: the name that it gives."""

    @property
    def action(self) -> str: ...

    def demand_action(self) -> Action: ...

    def members(self, action: Action) -> Json: ...

    def response(self, answer: Json, request_id: str) -> Response: ...

    def refusal(self, error: SqsError, request_id: str) -> Response: ...


def found(request: Request, is_whole: bool) -> Found | None:
    """`is_whole`: False if its body, which may be a form, is still to come. None: the request is not for this door."""
    place = _PATH.fullmatch(request.path)
    if place is None or request.method not in ("GET", "POST"):
        return None
    queue_name = unquote(place[1] or "")
    at_queue = bool(queue_name)
    wire: Wire | None = json_wire.wire_of(request, at_queue)
    wire = wire or query_wire.wire_of(request, at_queue or not is_whole)
    if wire is None:
        return None
    asked = ACTIONS.get(wire.action)
    return Found(asked, partial(_answered, request, wire, queue_name), partial(_turned_away, request, wire))


def _answered(request: Request, wire: Wire, queue_name: str, left_ms: LeftMs) -> Response:
    request_id = random_uuid(system().entropy(16))

    def run() -> Response:
        return wire.response(_carried_out(request, wire, queue_name, left_ms), request_id)

    return dispatch.serve(_name(wire), request.headers, run, lambda wrong: _refusal(wrong, wire, request_id))


def _turned_away(request: Request, wire: Wire) -> Response | None:
    """The signature covers the body: without it, only the access key can be looked at."""
    request_id = random_uuid(system().entropy(16))

    def admit() -> None:
        api = wiring.api()
        if not api.is_open:
            _demand_signatures(api)
            _caller_of(api, sigv4.claimed_key(request, wiring.settings.region), lambda _secret: True)

    return dispatch.turned_away(_name(wire), request.headers, admit, lambda wrong: _refusal(wrong, wire, request_id))


def _name(wire: Wire) -> str:
    return OPERATION + (wire.action if wire.action in ACTIONS else "unknown")


def _refusal(wrong: DecantError | SqsError, wire: Wire, request_id: str) -> Response:
    error = wrong if isinstance(wrong, SqsError) else of_service(wrong)
    response = wire.refusal(error, request_id)
    retry = {"Retry-After": str(RETRY_AFTER_S)} if response.status == 503 else {}
    return response._replace(headers={**response.headers, **retry})


# -- carrying out -----------------------------------------------------------------------------------------------------


def _carried_out(request: Request, wire: Wire, queue_name: str, left_ms: LeftMs) -> Json:
    """Unauthorized callers learn nothing, not even whether their request is valid."""
    api = wiring.api()
    runtime = api.service.env.runtime
    with in_time(left_ms, runtime.uptime()), one_call(runtime.uptime()):
        signer = None if api.is_open else signer_of(api, request)
        with called_by(signer) if signer else nullcontext():
            action = wire.demand_action()
            call = Call(api.service, action, wire.members(action), _context(request, signer), wire)
            try:
                return _run_on_queue(call, queue_name) if action.is_on_queue else _run_alone(call)
            except QueueGone:
                raise SqsError("QueueDoesNotExist", NO_QUEUE) from None


def signer_of(api: Api, request: Request, service: str = sigv4.SERVICE) -> Caller:
    """Whose access key signed the request to this service of AWS. Raises SqsError."""
    _demand_signatures(api)
    signature = sigv4.signed(request, wiring.settings.region, api.service.env.runtime.now(), service)
    return _caller_of(api, signature.access_key_id, signature.is_proved_by)


def _demand_signatures(api: Api) -> None:
    if not api.takes_signatures:
        raise SqsError("AccessDenied", dispatch.NO_KEYS)


def _caller_of(api: Api, access_key_id: str, fits: Callable[[str], bool]) -> Caller:
    try:
        return api.service.access.callers.signer(access_key_id, fits)
    except Unauthenticated:
        raise SqsError("InvalidClientTokenId", _BAD_KEY) from None
    except WrongSignature:
        raise SqsError("SignatureDoesNotMatch", _BAD_SIGNATURE) from None


def _run_on_queue(call: Call, queue_name: str) -> Json:
    """The queue is the last part of `QueueUrl`, or of the path. It comes before all other members."""
    queue_name = call.request.get("QueueUrl", queue_name).rstrip("/").rpartition("/")[2]
    if not queue_name:
        raise missing("QueueUrl")

    def run(found: Standing) -> Json:
        note(topic=found.queue.topic, group=found.queue.group)
        call.demand(found.queue)
        return _run(replace(call, found=found))

    try:
        return queues_of(call.service).serve(queue_name, run)
    except QueueGone:
        call.demand_absent(queue_name)
        raise


def _run_alone(call: Call) -> Json:
    if is_limited() and not call.action.demands:
        raise denied(f"perform sqs:{call.action.name}")
    return _run(call)


def _run(call: Call) -> Json:
    for member in call.action.required:
        if member not in call.request:
            raise missing(member)
    return call.action.run(call)


def _context(request: Request, signer: Caller | None) -> Context:
    headers = request.headers
    scope = _CREDENTIAL.search(headers.get("authorization", ""))
    key_id, region = scope.groups() if scope else ("", REGION_DEFAULT)
    scheme, host = request.origin
    account = key_id if re.fullmatch(ACCOUNT_PATTERN, key_id) else wiring.settings.account or ACCOUNT_DEFAULT
    prefix = request.prefix if _PREFIX.fullmatch(request.prefix) else ""
    return Context(scheme, host, prefix, account, region, headers, signer.name if signer else None)
