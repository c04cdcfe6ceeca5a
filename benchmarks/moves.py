"""How far a request walks through the code: files entered, functions, calls, and moves from one file to another.

A reader who follows a request makes the same walk, so the counts say how much there is to keep in mind. Counted for a
warm request as `make run` serves it, from its head down to the memory store; code outside `chalicelib` does not count.
A move is a call of a function in another file than the one called before.
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

import chalicelib
from benchmarks.report import table
from chalicelib import wiring
from chalicelib.api import Api
from chalicelib.core.base.runtime import system
from chalicelib.service import Service
from local import server
from local.http1 import Head
from local.memory.store import MemoryStore

_ROOT = str(Path(chalicelib.__file__).parent)
_CORE = f"{_ROOT}/core/"
_WARM = 3
"""Requests of each kind before the one that is counted: caches are full, modules are imported."""


@dataclass
class Walk:
    """`core_calls`: those of functions under `chalicelib/core`."""

    files: set[str] = field(default_factory=set)
    functions: set[tuple[str, int]] = field(default_factory=set)
    calls: int = 0
    core_calls: int = 0
    moves: int = 0
    _file: str = ""

    @property
    def core_files(self) -> int:
        return sum(file.startswith(_CORE) for file in self.files)

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
        self.core_calls += name.startswith(_CORE)


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
        rows = [
            (name, len(walk.files), len(walk.functions), walk.calls, walk.moves, walk.core_files, walk.core_calls)
            for name, walk in _walks()
        ]
    finally:
        wiring.use(None)
    columns = ("request", "files", "functions", "calls", "moves", "files of the core", "calls in the core")
    return table("(g) How far a warm request walks", columns, rows)


def _walks() -> list[tuple[str, Walk]]:
    _ask("PUT", "/topics/t", {"queues": 1})
    _ask("PUT", "/topics/t/groups/g", {})
    receipts: list[str] = []

    def produce() -> None:
        _ask("POST", "/topics/t/messages", {"messages": [{"body": "hello"}]})

    def pop() -> None:
        answer = _ask("POST", "/topics/t/groups/g/pop", {"max_messages": 1})
        receipts.extend(message["receipt"] for message in answer["messages"])

    def ack() -> None:
        _ask("POST", "/topics/t/groups/g/ack", {"receipts": [receipts.pop()]})

    def pop_nothing() -> None:
        _ask("POST", "/topics/t/groups/g/pop", {"max_messages": 1})

    for _ in range(_WARM):
        for request in (produce, pop, ack):
            request()
    walks = [("produce 1", walk(produce)), ("pop 1", walk(pop)), ("ack 1", walk(ack))]
    return [*walks, ("pop of nothing", walk(pop_nothing))]


def _ask(method: str, path: str, body: dict[str, Any]) -> Any:
    head = Head(f"{method} {path} HTTP/1.1", method, path, {"content-type": "application/json"}, keeps=True)
    answer = server.find(head, json.dumps(body).encode()).run(lambda: False)
    if answer.status >= HTTPStatus.BAD_REQUEST:
        raise RuntimeError(f"{method} {path}: {answer.body!r}")
    return json.loads(answer.body)
