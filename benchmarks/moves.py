"""How far a request walks through the code: files entered, functions, calls, and moves from one file to another.

A reader who follows a request makes the same walk, so the counts say how much there is to keep in mind. Counted for a
warm request, from the HTTP routes down to the memory store; code outside `chalicelib` does not count. A move is a call
of a function in another file than the one called before.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from types import FrameType
from typing import Any

from chalice.test import Client

import chalicelib
from app import app
from benchmarks.report import table
from chalicelib import wiring
from chalicelib.api import Api
from chalicelib.core.base.runtime import system
from chalicelib.service import Service
from local.memory.store import MemoryStore

_ROOT = str(Path(chalicelib.__file__).parent)
_WARM = 3
"""Requests of each kind before the one that is counted: caches are full, modules are imported."""


@dataclass
class Walk:
    files: set[str] = field(default_factory=set)
    functions: set[tuple[str, int]] = field(default_factory=set)
    calls: int = 0
    moves: int = 0
    _file: str = ""

    def trace(self, frame: FrameType, event: str, _: Any) -> None:
        name = frame.f_code.co_filename
        is_part = frame.f_code.co_name.startswith("<")  # a comprehension, which readers take for a line
        if is_part or not name.startswith(_ROOT) or event != "call":
            return
        self.moves += name != self._file  # the function called last stands in another file
        self._file = name
        self.files.add(name)
        self.functions.add((name, frame.f_code.co_firstlineno))
        self.calls += 1


def walk(request: Callable[[], object]) -> Walk:
    """The walk of one request."""
    walked = Walk()
    sys.setprofile(walked.trace)
    try:
        request()
    finally:
        sys.setprofile(None)
    return walked


def moves() -> str:
    """A table of the walks of the hot requests."""
    wiring.use(Api(Service(MemoryStore(), system())))
    try:
        rows = [(name, len(walk.files), len(walk.functions), walk.calls, walk.moves) for name, walk in _walks()]
    finally:
        wiring.use(None)
    return table("(g) How far a warm request walks", ("request", "files", "functions", "calls", "moves"), rows)


def _walks() -> list[tuple[str, Walk]]:
    client = Client(app)
    _post(client, "PUT", "/topics/t", {"queues": 1})
    _post(client, "PUT", "/topics/t/groups/g", {})
    receipts: list[str] = []

    def produce() -> None:
        _post(client, "POST", "/topics/t/messages", {"messages": [{"body": "hello"}]})

    def pop() -> None:
        answer = _post(client, "POST", "/topics/t/groups/g/pop", {"max_messages": 1})
        receipts.extend(message["receipt"] for message in answer["messages"])

    def ack() -> None:
        _post(client, "POST", "/topics/t/groups/g/ack", {"receipts": [receipts.pop()]})

    def pop_nothing() -> None:
        _post(client, "POST", "/topics/t/groups/g/pop", {"max_messages": 1})

    for _ in range(_WARM):
        for request in (produce, pop, ack):
            request()
    walks = [("produce 1", walk(produce)), ("pop 1", walk(pop)), ("ack 1", walk(ack))]
    return [*walks, ("pop of nothing", walk(pop_nothing))]


def _post(client: Client, method: str, path: str, body: dict[str, Any]) -> Any:
    headers = {"Content-Type": "application/json"}
    answer = client.http.request(method, path, headers=headers, body=json.dumps(body).encode())
    if answer.status_code >= HTTPStatus.BAD_REQUEST:
        raise RuntimeError(f"{method} {path}: {answer.body!r}")
    return answer.json_body
