"""`make run` waits for a store that is busy, and says at once what is wrong with one that cannot be used."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from tests.local.serving import refusal, running
from tests.support.emulators import ROOT

PREFIX = "com.amazonaws.dynamodb.v20120810#"
THROTTLED = (400, {"__type": f"{PREFIX}ThrottlingException", "message": "too many"})
BROKEN = (500, {"__type": f"{PREFIX}InternalServerError", "message": "a defect"})
DENIED = (400, {"__type": f"{PREFIX}UnrecognizedClientException", "message": "the token is invalid"})
SLOW: tuple[int, Any] = (0, {})

FOUND: dict[str, Any] = {
    "CreateTable": {"TableDescription": {}},
    "DescribeTable": {"Table": {"TableStatus": "ACTIVE"}},
    "Query": {"Items": [], "Count": 0},
}

Answering = Callable[[str, int], tuple[int, Any]]


@contextmanager
def endpoint(answering: Answering) -> Iterator[tuple[str, Counter[str]]]:
    """Yields a DynamoDB endpoint with an empty table, and the counts of its operations. `answering` gets an operation
    and its count so far."""
    asked: Counter[str] = Counter()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            operation = self.headers["x-amz-target"].partition(".")[2]
            self.rfile.read(int(self.headers["content-length"]))
            status, answer = answering(operation, asked[operation])
            asked[operation] += 1
            if status == 0:
                time.sleep(3)  # longer than the client waits
                return
            content = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    serving = threading.Thread(target=server.serve_forever)
    serving.start()
    yield f"http://127.0.0.1:{server.server_address[1]}", asked
    server.shutdown()
    server.server_close()
    serving.join()


def at_first(trouble: tuple[int, Any], times: int) -> Answering:
    return lambda operation, before: trouble if before < times else (200, FOUND.get(operation, {}))


@pytest.mark.parametrize(("trouble", "times"), [(THROTTLED, 3), (BROKEN, 3), (SLOW, 1)])
def test_a_store_that_is_busy_at_first_is_waited_for(trouble: tuple[int, Any], times: int) -> None:
    with endpoint(at_first(trouble, times)) as (url, asked), running(AWS_ENDPOINT_URL_DYNAMODB=url) as server:
        assert url in server.banner
        assert asked["CreateTable"] > times
        assert asked["DescribeTable"] > times


def test_a_store_that_stays_busy_or_never_answers_is_given_up() -> None:
    """Both at once, since each takes as long as a server waits for its store."""
    with endpoint(lambda *_: THROTTLED) as (busy, asked), socket.create_server(("127.0.0.1", 0)) as listening:
        silent = f"http://127.0.0.1:{listening.getsockname()[1]}"
        with ThreadPoolExecutor() as pool:
            said, unsaid = pool.map(lambda url: refusal(PORT="0", AWS_ENDPOINT_URL_DYNAMODB=url), (busy, silent))
    assert f"the store, DynamoDB at {busy}, cannot be used: " in said
    assert "ThrottlingException" in said
    assert asked["CreateTable"] > 3
    assert silent in unsaid


@pytest.mark.parametrize("refused", ["CreateTable", "DescribeTable"])
def test_a_store_that_refuses_its_caller_is_asked_once(refused: str) -> None:
    def answering(operation: str, _before: int) -> tuple[int, Any]:
        return DENIED if operation == refused else (200, FOUND[operation])

    with endpoint(answering) as (url, asked):
        assert "the token is invalid" in refusal(PORT="0", AWS_ENDPOINT_URL_DYNAMODB=url)
    assert asked[refused] == 1


def test_a_command_of_chalice_that_only_imports_the_app_opens_no_store() -> None:
    program = "import sys, app; assert 'local.memory.store' not in sys.modules"
    environment = {name: value for name, value in os.environ.items() if name != "AWS_ENDPOINT_URL_DYNAMODB"}
    environment |= {"AWS_CHALICE_CLI_MODE": "true", "AWS_EC2_METADATA_DISABLED": "true", "DECANT_STORE": "memory"}
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, env=environment, check=True)
