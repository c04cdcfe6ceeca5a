"""AWS's own client of the Lambda runtime as a child process, and the part of Lambda that it talks to: so functions run
as they do when deployed."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

from tests.support.ministack import REGION, tool

TRACE_ID = "4bf92f3577b34da6a3ce929d0e0e4736"

ANSWER_SECONDS = 120
"""A machine may be busy."""


class Invocation(NamedTuple):
    """`kind`: "response", or "error" if the function raised. `seconds`: how long it took once it had the event."""

    kind: str
    result: Any
    raw_bytes: int
    seconds: float


class _Answered(NamedTuple):
    kind: str
    body: bytes


class _Server(ThreadingHTTPServer):
    def handle_error(self, *_: Any) -> None:
        """Stopping a child resets its connection."""


class Function:
    """A running function. `timeout_seconds`: of its next invocations; nothing ends them by force."""

    def __init__(self, log: Path) -> None:
        self.timeout_seconds = 60.0
        self._log, self._began = log, 0.0
        self._events: queue.Queue[tuple[str, bytes] | None] = queue.Queue()
        self._answers: queue.Queue[_Answered] = queue.Queue()
        self.server = _Server(("127.0.0.1", 0), _handler(self))

    @property
    def log(self) -> str:
        return self._log.read_text()

    def invoke(self, event: Any) -> Invocation:
        self._events.put((str(uuid4()), json.dumps(event).encode()))
        kind, body = self._answers.get(timeout=ANSWER_SECONDS)
        return Invocation(kind, json.loads(body), len(body), time.monotonic() - self._began)

    def next_event(self) -> tuple[str, bytes] | None:
        event = self._events.get()
        self._began = time.monotonic()
        return event

    def answered(self, kind: str, body: bytes) -> None:
        self._answers.put(_Answered(kind, body))

    def end(self) -> None:
        self._events.put(None)
        self.server.shutdown()
        self.server.server_close()


def _handler(function: Function) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: Any) -> None:
            pass

        def do_GET(self) -> None:
            event = function.next_event()
            if event is None:
                self.close_connection = True
                return
            deadline_ms = int((time.time() + function.timeout_seconds) * 1_000)
            self._respond(200, event[1], event[0], deadline_ms)

        def do_POST(self) -> None:
            body = self._body()
            self._respond(202, b"", "", 0)
            function.answered(self.path.rpartition("/")[2], body)

        def _body(self) -> bytes:
            if length := self.headers.get("Content-Length"):
                return self.rfile.read(int(length))
            chunks = []
            while size := int(self.rfile.readline(), 16):
                chunks.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(chunks)

        def _respond(self, status: int, body: bytes, request_id: str, deadline_ms: int) -> None:
            self.send_response(status)
            for name, value in {
                "Lambda-Runtime-Aws-Request-Id": request_id,
                "Lambda-Runtime-Deadline-Ms": str(deadline_ms),
                "Lambda-Runtime-Invoked-Function-Arn": f"arn:aws:lambda:{REGION}:123456789012:function:decant",
                "Lambda-Runtime-Trace-Id": f"Root=1-{TRACE_ID[:8]}-{TRACE_ID[8:]};Sampled=0",
                "Content-Type": "application/json",
                "Content-Length": str(len(body)),
            }.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

    return Handler


def environment(task: Path, **more: str) -> dict[str, str]:
    """The variables that a program has in Lambda, and none of this process."""
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(task),
        "PYTHONPATH": str(task),
        "PYTHONDONTWRITEBYTECODE": "1",
        "LAMBDA_TASK_ROOT": str(task),
        "AWS_REGION": REGION,
        "AWS_DEFAULT_REGION": REGION,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_EC2_METADATA_DISABLED": "true",
        **more,
    }


@contextlib.contextmanager
def running(task: Path, handler: str, log: Path, settings: Mapping[str, str]) -> Iterator[Function]:
    """Runs the function of this handler, such as `app.pop`, from an unpacked package. Its output goes into `log`."""
    function = Function(log)
    api = f"127.0.0.1:{function.server.server_port}"
    serving = threading.Thread(target=function.server.serve_forever, daemon=True)
    serving.start()
    named = {"AWS_LAMBDA_FUNCTION_NAME": "decant-dev-api", "DECANT_STACK": "decant-dev"}
    variables = environment(task, AWS_LAMBDA_RUNTIME_API=api, **{**named, **settings})
    with log.open("wb") as output:
        command: list[str | Path] = [tool("python"), "-s", "-m", "awslambdaric", handler]
        child = subprocess.Popen(command, env=variables, cwd=task, stdout=output, stderr=output)
    try:
        yield function
    finally:
        child.kill()
        child.wait()
        function.end()
        serving.join()
