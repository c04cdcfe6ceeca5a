"""Answers the requests of clients of MQ over HTTP: those with a header `x-mq-version`."""

from __future__ import annotations

import base64
import hashlib
import re
from collections import Counter
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any
from urllib.parse import unquote

from chalicelib import wiring
from chalicelib.api import Api, admitted
from chalicelib.api.operation import Operation
from chalicelib.core.access.callers import Caller, WrongSignature, called_by
from chalicelib.core.base.errors import DecantError, Unauthenticated
from chalicelib.core.base.fields import quoted
from chalicelib.core.base.limits import NAME_PATTERN
from chalicelib.core.base.runtime import system
from chalicelib.doors import dispatch
from chalicelib.doors.dispatch import NO_KEYS, LeftMs, Refuse, in_time
from chalicelib.doors.http.exchange import RETRY_AFTER_S, Found, Request, Response
from chalicelib.doors.mqhttp.calls import CALLS, ORDER
from chalicelib.doors.mqhttp.errors import HandlesFailed, MqError, of_service, wrong
from chalicelib.doors.mqhttp.signatures import signed
from chalicelib.doors.mqhttp.xml_wire import MEDIA_TYPE, document, element, elements
from chalicelib.doors.xml_text import sendable

VERSION = "2015-06-06"

_PATH = re.compile("/topics/([^/]+)/messages")
_OPERATIONS = {operation.name: operation for operation in CALLS.operations}
_NAMES: dict[str, dict[str | None, str]] = {
    "POST": {None: "mq_publish"},
    "GET": {None: "mq_consume", ORDER: "mq_consume", "pop": "mq_check"},
    "DELETE": {None: "mq_ack", "commit": "mq_commit", "rollback": "mq_rollback"},
}
"""Calls by method and `trans`."""
_PARAMETERS = {
    "POST": ("ns",),
    "GET": ("ns", "consumer", "numOfMessages", "waitseconds", "tag", "trans"),
    "DELETE": ("ns", "consumer", "trans"),
}
_ROOTS = {"POST": "Message", "DELETE": "ReceiptHandles"}

_UNREADABLE = "\ufffd"
"""Replaces bytes that are not UTF-8 in a decoded query."""
_REQUEST_ID_BYTES = 12
_BAD_KEY = "The AccessKey Id you provided is not valid."
_BAD_SIGNATURE = (
    "The request signature we calculated does not match the signature you provided. Check your key and signing method."
)


def found(request: Request) -> Found:
    given = dict(request.query)
    operation = _OPERATIONS.get(_NAMES.get(request.method, {}).get(given.get("trans"), ""))
    place = _PATH.fullmatch(request.path)
    named = {"topic": unquote(place[1]) if place else "", "group": given.get("consumer", "")}
    answer = partial(_answered, request, operation, named)
    return Found(operation, answer, partial(_turned_away, request, operation, named))


def _answered(request: Request, operation: Operation | None, named: Mapping[str, str], left_ms: LeftMs) -> Response:
    request_id = _request_id()

    def run() -> Response:
        status, text = _carried_out(request, operation, named, left_ms)
        return _response(status, text, request_id)

    return dispatch.serve(_name(operation), request.headers, run, _refused(request, request_id), **_place(named))


def _turned_away(request: Request, operation: Operation | None, named: Mapping[str, str]) -> Response | None:
    """The head proves the signature: it covers the body only through Content-MD5."""

    def admit() -> None:
        _admitted(wiring.api(), request, operation, named)
        _parameters(request)

    refused = _refused(request, _request_id())
    return dispatch.turned_away(_name(operation), request.headers, admit, refused, **_place(named))


def _request_id() -> str:
    return system().entropy(_REQUEST_ID_BYTES).hex().upper()


def _name(operation: Operation | None) -> str:
    return operation.name if operation else "mq_unknown"


def _place(named: Mapping[str, str]) -> dict[str, str]:
    return {kind: name for kind, name in named.items() if re.fullmatch(NAME_PATTERN, name)}


def _refused(request: Request, request_id: str) -> Refuse[Response]:
    def refused(error: DecantError | MqError) -> Response:
        return _refusal(request, error if isinstance(error, MqError) else of_service(error), request_id)

    return refused


def _carried_out(
    request: Request, operation: Operation | None, named: Mapping[str, str], left_ms: LeftMs
) -> tuple[int, str]:
    """Unauthorized callers learn nothing but the paths and methods that exist."""
    api = wiring.api()
    with in_time(left_ms, api.service.env.runtime.uptime()), _admitted(api, request, operation, named):
        parameters = _parameters(request)
        if operation is None:
            trans = ", ".join(f"'{name}'" for name in _NAMES[request.method] if name)
            raise wrong(f"parameter 'trans' must be one of {trans}, or missing; it is {quoted(parameters['trans'])}")
        _demand_whole(request)
        if "group" in operation.path_names and not named["group"]:
            raise wrong("parameter 'consumer' must be given")
        data = _data(request, parameters)
        names = _names(operation, named)
        trace = {name: request.headers.get(name) for name in operation.headers}
        return operation.call(api.service, names, data, **trace)


def _admitted(
    api: Api, request: Request, operation: Operation | None, named: Mapping[str, str]
) -> AbstractContextManager[None]:
    """Runs a call as the signer of the request. Raises MqError, Forbidden."""
    if api.is_open:
        return nullcontext()
    if not api.takes_signatures:
        raise MqError("AccessDenied", NO_KEYS)
    signature = signed(request, api.service.env.runtime.now())

    def signer(topic_name: str | None) -> Caller:
        try:
            return api.service.access.callers.signer(signature.access_key_id, signature.is_proved_by, topic_name)
        except Unauthenticated:
            raise MqError("InvalidAccessKeyId", _BAD_KEY) from None
        except WrongSignature:
            raise MqError("SignatureDoesNotMatch", _BAD_SIGNATURE) from None

    if operation is None:
        return called_by(signer(None))
    return admitted(api.service, operation, _names(operation, named), signer)


def _names(operation: Operation, named: Mapping[str, str]) -> list[str]:
    return [named[kind] for kind in operation.path_names]


# -- the request ------------------------------------------------------------------------------------------------------


def _parameters(request: Request) -> dict[str, str]:
    """The query of a request to a path and with a method that there are, of this deployment's instance."""
    if not _PATH.fullmatch(request.path):
        raise wrong(f"the path must be '/topics/<topic>/messages'; it is {quoted(request.path)}")
    if request.method not in _NAMES:
        raise wrong(f"the method must be one of {', '.join(_NAMES)}; it is {quoted(request.method)}")
    known, counts = _PARAMETERS[request.method], Counter(name for name, _ in request.query)
    for name, value in request.query:
        if _UNREADABLE in name + value:
            raise _query_error(f"parameter {quoted(name)} must be UTF-8, percent-encoded; it is {quoted(value)}")
        if name not in known:
            raise _query_error(f"parameter {quoted(name)} is not known here; known are: {', '.join(known)}")
        if counts[name] > 1:
            raise _query_error(f"parameter {quoted(name)} must be given once, not {counts[name]} times")
    parameters = dict(request.query)
    instance, own = parameters.get("ns", ""), wiring.settings.mq_instance
    if own is not None and instance != own:
        raise wrong(f"parameter 'ns' must be the instance of this deployment; it is {quoted(instance)}")
    return parameters


def _query_error(detail: str) -> MqError:
    return MqError("InvalidQueryString", detail)


def _demand_whole(request: Request) -> None:
    """`Content-MD5` is base64 of the digest in hex."""
    given = request.headers.get("content-md5")
    digest = hashlib.md5(request.body, usedforsecurity=False).hexdigest()
    if given is not None and given != base64.b64encode(digest.encode()).decode():
        raise MqError("InvalidDigest", f"header 'Content-MD5' must be that of the body; it is {quoted(given)}")


def _data(request: Request, parameters: Mapping[str, str]) -> dict[str, Any]:
    """The request as the call takes it: the parameters that say what to take, or the elements of the body."""
    if request.method == "GET":
        if request.body.strip():
            raise wrong("a GET has no body; this one has")
        return {name: value for name, value in parameters.items() if name not in ("ns", "consumer")}
    found = elements(request.body, _ROOTS[request.method], request.headers.get("user-agent", ""))
    if request.method == "DELETE":
        texts: dict[str, Any] = {name: [text for other, text in found if other == name] for name, _ in found}
        return texts
    counts = Counter(name for name, _ in found)
    if repeated := [name for name, times in counts.items() if times > 1]:
        raise wrong(f"element {quoted(repeated[0])} must be given once, not {counts[repeated[0]]} times")
    return dict(found)


# -- the response -----------------------------------------------------------------------------------------------------


def _response(status: int, text: str, request_id: str, **more: str) -> Response:
    """Clients look the id up by this spelling."""
    headers = {"Content-Type": MEDIA_TYPE, "x-mq-request-id": request_id, "x-mq-version": VERSION}
    return Response(status, {**headers, **more}, text)


def _refusal(request: Request, error: MqError, request_id: str) -> Response:
    status = error.shape.status
    retry = {"Retry-After": str(RETRY_AFTER_S)} if status == 503 else {}
    if isinstance(error, HandlesFailed):
        return _response(status, document("Errors", "".join(map(_failure, error.failed))), request_id)
    origin = request.origin
    members = {
        "Code": error.shape.code,
        "Message": sendable(error.message),
        "RequestId": request_id,
        "HostId": f"{origin.scheme}://{origin.host}",
    }
    inside = "".join(element(name, value) for name, value in members.items())
    text = document("Error", inside, request.headers.get("user-agent", ""))
    return _response(status, text, request_id, **retry)


_FAILURES = {
    "MessageNotExist": "The message does not exist, or its handle has expired.",
    "ReceiptHandleError": "The receipt handle is not one of this subscription.",
}


def _failure(failed: tuple[str, str]) -> str:
    handle, code = failed
    about = {"ErrorCode": code, "ErrorMessage": _FAILURES[code], "ReceiptHandle": handle}
    return f"<Error>{''.join(element(name, text) for name, text in about.items())}</Error>"
