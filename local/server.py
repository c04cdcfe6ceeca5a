"""The HTTP server of `make run`, fit for load and for odd clients."""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import parse_qsl

from chalicelib import wiring
from chalicelib.api import OPERATIONS
from chalicelib.api.operation import Operation
from chalicelib.base import deadline
from chalicelib.base.errors import InvalidField
from chalicelib.base.fields import defaults
from chalicelib.protocols import entrance
from chalicelib.protocols.doors import respond
from chalicelib.protocols.http.respond import Request, refusal
from chalicelib.protocols.http.routes import operations_at
from local.connection import HasHungUp, Pace
from local.connections import Server
from local.memory.store import MemoryStore
from local.request import Answer, Head

BODY_BYTES_AT_ONCE_MAX = 64 * 1024
"""A larger request takes so long that others had rather not wait for it."""

TARGET_CHARS_MAX = 10_240
"""Path and query, which take a hundred times as long to decode as a body. API Gateway accepts as much of a head."""

PARAMETERS_MAX = 1_000
"""In a query. A form in it has some 400 for ten messages with ten attributes each, and no more have room."""

_WAITS = {
    operation.name: defaults(operation.request)["wait_ms"]
    for operation in OPERATIONS.values()
    if operation.request and "wait_ms" in defaults(operation.request)
}
"""The operations that may wait for messages -> how long if it is not given; None: it depends."""


_FREQUENT_OF_SQS = r"AmazonSQS\.(Send|Delete|Change)Message"


def listen(port: int, is_logging: bool) -> Server:
    """Binds the port and returns the server; its `serve_forever` serves requests. Raises `OSError`."""
    return Server(port, carry_out, pace=pace, is_logging=is_logging)


def pace(head: Head, body: bytes | None) -> Pace:
    """A store in memory answers without waiting, unless the request is to wait for messages. Rare requests may read
    a lot of it, and keep no others waiting."""
    if len(head.target) > TARGET_CHARS_MAX:
        return Pace.AT_ONCE
    if target := head.headers.get("x-amz-target"):
        return _pace_of_sqs(target, body or b"")
    if "x-mq-version" in head.headers:
        return _pace_of_mq(head, body or b"")
    match = operations_at(_split(head.target)[0])
    operation = match and match[0].get(head.method)
    if not operation:
        return Pace.LONG if _may_be_receive(head.target, body or b"") else Pace.SOON
    if _may_wait(operation, body or b""):
        return Pace.LONG
    is_small = operation.is_frequent and len(body or b"") <= BODY_BYTES_AT_ONCE_MAX
    return Pace.AT_ONCE if is_small and _is_in_memory() else Pace.SOON


def _pace_of_sqs(target: str, body: bytes) -> Pace:
    """A queue can have receives wait that do not ask for it."""
    if target == "AmazonSQS.ReceiveMessage":
        return Pace.LONG
    is_small = re.match(_FREQUENT_OF_SQS, target) and len(body) <= BODY_BYTES_AT_ONCE_MAX
    return Pace.AT_ONCE if is_small and _is_in_memory() else Pace.SOON


def _may_be_receive(target: str, body: bytes) -> bool:
    """In the query protocol of SQS."""
    return "Action=ReceiveMessage" in target or b"Action=ReceiveMessage" in body


def _pace_of_mq(head: Head, body: bytes) -> Pace:
    """What is about half messages is rare, and has a `trans` in the query, or a property with it in its name."""
    if head.method == "GET":
        return Pace.LONG
    is_small = len(body) <= BODY_BYTES_AT_ONCE_MAX and "trans" not in head.target and b"__Trans" not in body
    return Pace.AT_ONCE if is_small and _is_in_memory() else Pace.SOON


def _may_wait(operation: Operation, body: bytes) -> bool:
    """JSON may spell a name with escapes."""
    if operation.name not in _WAITS:
        return False
    return operation.method == "GET" or _WAITS[operation.name] != 0 or b"wait_ms" in body or b"\\" in body


def _is_in_memory() -> bool:
    """Hooks may wait for anything."""
    service = wiring.api().service
    hooks = service.producing.hooks
    return isinstance(service.env.store, MemoryStore) and not (hooks.before or hooks.after)


def carry_out(head: Head, body: bytes | None, has_hung_up: HasHungUp) -> Answer:
    with deadline.caller(has_hung_up):
        request = head.method, head.target, head.headers, body
        response = entrance.guarded(lambda: respond(request_of(*request)), refusal)
    return Answer(response.status, response.headers, response.text.encode())


def request_of(method: str, target: str, headers: Mapping[str, str], body: bytes | None) -> Request:
    """`headers`: by their names in lower case. Raises InvalidField for a target that is too long."""
    if len(target) > TARGET_CHARS_MAX:
        raise InvalidField(f"the path and the query have more than {TARGET_CHARS_MAX} characters")
    path, query = _split(target)
    if query.count("&") >= PARAMETERS_MAX:
        raise InvalidField(f"the query has more than {PARAMETERS_MAX} parameters")
    pairs = parse_qsl(query, keep_blank_values=True) if query else []
    return Request(method, path, pairs, headers, body or b"", raw_query=query)


def _split(target: str) -> tuple[str, str]:
    """Path and query. HTTP allows the target to begin with the host."""
    path, _, query = re.sub("^https?://[^/?]*", "", target, flags=re.IGNORECASE).partition("?")
    return path, query
