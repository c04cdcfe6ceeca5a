"""The HTTP server of `make run`, fit for load and for odd clients."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from urllib.parse import parse_qsl

from chalicelib import wiring
from chalicelib.api import OPERATIONS
from chalicelib.api.operation import Operation
from chalicelib.core.base import deadline
from chalicelib.core.base.errors import DecantError, InvalidField
from chalicelib.core.base.fields import defaults
from chalicelib.doors import dispatch
from chalicelib.doors.http import door
from chalicelib.doors.http.exchange import Found, Request, Response, refusal
from chalicelib.doors.mqhttp.calls import CALLS
from chalicelib.doors.sqs.action import Action
from chalicelib.doors.sqs.receiving import RECEIVING, SETTLING
from chalicelib.doors.sqs.sending import SENDING
from local.asyncio_server import Server
from local.browsers import LOOPBACK, OwnNames, refuse_pages
from local.connection import HOST
from local.http1 import Head, RawResponse
from local.memory.store import MemoryStore
from local.workload import HasHungUp, Pace, Task

BODY_BYTES_AT_ONCE_MAX = 64 * 1024
"""A larger request takes so long that others must not wait for it."""

TARGET_CHARS_MAX = 10_240
"""Path and query, which take a hundred times as long to decode as a body. API Gateway accepts as much of a head."""

PARAMETERS_MAX = 1_000
"""The most fields of a query. A form in it has some 400 for ten messages with ten attributes each, and has no room for
more."""

_HOST = re.compile("^https?://[^/?]*", re.IGNORECASE)
"""A target may begin with the host."""

_WAITS = {
    operation.name: fields.get("wait_ms", fields.get("waitseconds"))
    for operation in (*OPERATIONS.values(), *CALLS.operations)
    if operation.request and (fields := defaults(operation.request)).keys() & {"wait_ms", "waitseconds"}
}
"""Operations that may wait for messages -> the wait if the request gives none; None: it depends."""

_FREQUENT_ACTIONS = frozenset({*SENDING, *SETTLING})


def listen(port: int, is_logging: bool, host: str = HOST, own: OwnNames = LOOPBACK) -> Server:
    """Binds the port and returns the server; its `serve_forever` serves requests. `own`: the names that clients call it
    by. Raises `OSError`."""
    finding, judging = partial(find, own=own), partial(judge, own=own)
    return Server(port, finding, host=host, judge=judging, is_logging=is_logging)


def find(head: Head, body: bytes | None, own: OwnNames = LOOPBACK) -> Task:
    found = _found(head, body, own)
    return Task(pace(found.asked, body or b""), partial(_carried_out, found))


def judge(head: Head, own: OwnNames = LOOPBACK) -> RawResponse | None:
    """The answer to a request that its head alone has refused: its body, which is still to come, is not needed."""
    refused = _found(head, None, own, is_whole=False).turned_away()
    return _sent(refused) if refused else None


def _found(head: Head, body: bytes | None, own: OwnNames, is_whole: bool = True) -> Found:
    return dispatch.guarded(lambda: door.found(_request(head, body, own), is_whole), _refused)


def _request(head: Head, body: bytes | None, own: OwnNames) -> Request:
    """Raises InvalidField; Forbidden for a web page that calls a server without access control."""
    request = request_of(head.method, head.target, head.headers, body)
    if wiring.api().is_open:
        refuse_pages(request.method, request.path, request.raw_query or "", request.headers, own)
    return request


def _refused(error: DecantError) -> Found:
    response = refusal(error)
    return Found(None, lambda _left_ms: response, lambda: response)


def pace(asked: Operation | Action | None, body: bytes) -> Pace:
    """The memory store answers without waiting, unless the request asks to wait for messages. Rare requests may read a
    lot of it, and so run in a thread, where they keep no others waiting."""
    if asked is None:
        return Pace.SOON
    if _may_wait(asked, body):
        return Pace.LONG
    is_frequent = asked.is_frequent if isinstance(asked, Operation) else asked.name in _FREQUENT_ACTIONS
    is_small = is_frequent and len(body) <= BODY_BYTES_AT_ONCE_MAX
    return Pace.AT_ONCE if is_small and _is_in_memory() else Pace.SOON


def _may_wait(asked: Operation | Action, body: bytes) -> bool:
    """An SQS queue can have receives wait that do not ask for it. JSON may spell a name with escapes."""
    if isinstance(asked, Action):
        return asked.name in RECEIVING
    if asked.name not in _WAITS:
        return False
    return asked.method == "GET" or _WAITS[asked.name] != 0 or b"wait_ms" in body or b"\\" in body


def _is_in_memory() -> bool:
    """Whether a request needs memory alone. Hooks may wait for anything."""
    service = wiring.api().service
    hooks = service.producing.hooks
    return isinstance(service.env.store, MemoryStore) and not (hooks.before or hooks.after)


def _carried_out(found: Found, has_hung_up: HasHungUp) -> RawResponse:
    with deadline.caller(has_hung_up):
        return _sent(found.answer(lambda: None))


def _sent(response: Response) -> RawResponse:
    return RawResponse(response.status, response.headers, response.text.encode())


def request_of(method: str, target: str, headers: Mapping[str, str], body: bytes | None) -> Request:
    """`headers`: by their names in lower case. Raises InvalidField for a target that is too long."""
    if len(target) > TARGET_CHARS_MAX:
        raise InvalidField(f"the path and the query have more than {TARGET_CHARS_MAX} characters")
    path, _, query = _HOST.sub("", target).partition("?")
    if query.count("&") >= PARAMETERS_MAX:
        raise InvalidField(f"the query has more than {PARAMETERS_MAX} parameters")
    pairs = parse_qsl(query, keep_blank_values=True) if query else []
    return Request(method, path, pairs, headers, body or b"", raw_query=query)
