"""Offers the store of this process as a DynamoDB endpoint on loopback, so that other processes can read and export it.
Read-only: writes that bypass the service would invalidate its caches."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable
from functools import partial

from chalicelib import wiring
from chalicelib.core.access.callers import demand
from chalicelib.core.access.rights import Need
from chalicelib.core.base.errors import DecantError
from chalicelib.doors.sqs.door import signer_of
from chalicelib.doors.sqs.errors import SqsError, of_service
from local.asyncio_server import Server
from local.browsers import refuse_pages
from local.connection import HOST
from local.http1 import Head, RawResponse
from local.memory.store import MemoryStore
from local.server import request_of
from local.workload import HasHungUp, Pace, Task

REQUEST_BYTES_MAX = 1 << 20
"""A request for a hundred keys needs a fifth of it."""

CONNECTIONS_MAX = 32
"""A job and a person may read at the same time; the rest of the process's descriptors are for the service."""

OPERATIONS = frozenset({"Scan", "Query", "GetItem", "BatchGetItem", "DescribeTable", "ListTables"})
_VERSION = "DynamoDB_20120810"

_log = logging.getLogger("decant")

Wired = tuple[int, bytes, str]
"""Status, body and type of an answer."""
Answering = Callable[[str, bytes], Wired]
"""Answers one of `OPERATIONS`, given the body of its request."""
Demanding = Callable[[Head, bytes], None]
"""Raises SqsError for a caller that may not read."""


class Endpoint(Server):
    def __init__(self, port: int, answering: Answering, demanding: Demanding) -> None:
        """Binds the port. Raises `OSError`."""
        super().__init__(port, self._task, body_bytes_max=REQUEST_BYTES_MAX, connections_max=CONNECTIONS_MAX)
        self._answering, self._demanding = answering, demanding

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    def _task(self, head: Head, body: bytes | None) -> Task:
        return Task(Pace.SOON, partial(self._answer, head, body))

    def _answer(self, head: Head, body: bytes | None, _has_hung_up: HasHungUp) -> RawResponse:
        try:
            self._demanding(head, body or b"")
            status, content, content_type = self._wired(head.headers.get("x-amz-target", ""), body or b"")
        except SqsError as refused:
            status, content, content_type = _said(refused.shape.status, refused.shape.type, refused.message)
        except Exception:  # noqa: BLE001 - the client gets a response, the log the details
            _log.exception("a request to the DynamoDB endpoint failed")
            status, content, content_type = 500, b"", "text/plain"
        return RawResponse(status, {"content-type": content_type}, content)

    def _wired(self, target: str, body: bytes) -> Wired:
        """`target`: names the operation."""
        version, _, operation = target.partition(".")
        if version != _VERSION:
            named = f"this is a DynamoDB endpoint; x-amz-target is {target[:100]!r}"
            return _refusal("UnknownOperationException", named)
        if operation not in OPERATIONS:
            allowed = ", ".join(sorted(OPERATIONS))
            refused = f"{operation[:100]} is refused: this endpoint only reads ({allowed})"
            return _refusal("AccessDeniedException", refused)
        return self._answering(operation, body)


def _refusal(code: str, message: str) -> Wired:
    return _said(400, f"com.amazonaws.dynamodb.v20120810#{code}", message)


def _said(status: int, kind: str, message: str) -> Wired:
    return status, json.dumps({"__type": kind, "message": message}).encode(), "application/x-amz-json-1.0"


def answering() -> Answering | None:
    """Answers for the memory store as DynamoDB does; None: the store has an endpoint of its own."""
    store = wiring.api().service.env.store
    if not isinstance(store, MemoryStore):
        return None
    from local.memory.dynamodb_api import DynamoApi

    return DynamoApi(store, wiring.settings.table).answer


def start(endpoint: Endpoint) -> threading.Thread:
    """Answers in a thread of its own until the process ends."""
    serving = threading.Thread(target=endpoint.serve_forever, name="decant-dynamodb", daemon=True)
    serving.start()
    return serving


SERVICE = "dynamodb"
"""The service that a signature names."""


def demand_admin(head: Head, body: bytes) -> None:
    """Raises SqsError, whose types all services of AWS share, unless the caller may read everything: the endpoint shows
    all messages and tokens. Under access control it demands a signature with the access key of a token that may `admin`
    everything; without, it refuses only web pages."""
    api = wiring.api()
    try:
        request = request_of(head.method, head.target, head.headers, body)
        if api.is_open:
            refuse_pages(request.method, request.path, request.raw_query or "", request.headers)
        else:
            demand(signer_of(api, request, SERVICE), Need("admin"))
    except DecantError as error:
        raise of_service(error) from error
