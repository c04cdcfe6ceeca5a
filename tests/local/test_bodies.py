"""A large body is received only of those who may send it, and only so much of all of them together."""

from __future__ import annotations

import json
import select
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from email.utils import formatdate

import pytest

from chalicelib import wiring
from chalicelib.api import Api, Demand
from chalicelib.core.base.runtime import system
from chalicelib.service import Service
from local import connection as connection_module
from local.asyncio_server import Server
from local.connection import SMALL_BODY_BYTES_MAX
from local.memory.store import MemoryStore
from local.server import find, judge
from tests.local.serving import Running, in_raw

LARGE = SMALL_BODY_BYTES_MAX + 1
SIGNED = "AWS4-HMAC-SHA256 Credential=%s/20260101/us-east-1/sqs/aws4_request, SignedHeaders=host, Signature=0"
MESSAGES = "/topics/orders/messages"


class Stage:
    """A server that demands tokens. `token`: one that may produce into `orders`."""

    def __init__(self, port: int, api: Api) -> None:
        self.running = Running(None, f"http://127.0.0.1:{port}")  # type: ignore[arg-type]
        right = {"operations": ["produce"], "topics": "orders"}
        made = api.make_token({"name": "a", "rights": [right]})
        self.token, self.access_key_id = made["token"], made["access_key_id"]

    def head(self, method: str, target: str, size: int | None = LARGE, **headers: str) -> bytes:
        length = "Transfer-Encoding: chunked" if size is None else f"Content-Length: {size}"
        given = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
        return f"{method} {target} HTTP/1.1\r\nHost: localhost\r\n{length}\r\n{given}\r\n".encode()

    def begun(self, head: bytes) -> socket.socket:
        connection = socket.create_connection(("127.0.0.1", self.running.port), timeout=20)
        connection.sendall(head)
        return connection

    def is_let_in(self, head: bytes) -> bool:
        """Whether a client that waits to send is told to go on."""
        with self.begun(head.replace(b"Host: localhost", b"Host: localhost\r\nExpect: 100-continue")) as connection:
            return connection.recv(1_000).startswith(b"HTTP/1.1 100")


@contextmanager
def serving(demand: Demand) -> Iterator[Stage]:
    api = Api(Service(MemoryStore(), system()), demand)
    api.put_topic("orders", {})
    wiring.use(api)
    server = Server(0, find, judge=judge)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield Stage(server.port, api)
    server.shutdown()
    thread.join()
    server.server_close()
    wiring.use(None)


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    with serving(Demand(requests=True)) as stage:
        yield stage


@pytest.mark.parametrize("size", [LARGE, 32 << 20, None])
@pytest.mark.parametrize("shown", [{}, {"Authorization": "Bearer nonsense"}, {"Authorization": "Basic abc"}])
def test_a_large_body_without_a_token_is_refused_before_it_comes(
    stage: Stage, size: int | None, shown: dict[str, str]
) -> None:
    head = stage.head("POST", MESSAGES, size, **shown)
    assert in_raw(stage.running.say(head)) == (401, "Unauthenticated")
    assert not stage.is_let_in(head)


def test_a_large_body_without_the_right_is_refused_before_it_comes(stage: Stage) -> None:
    head = stage.head("POST", "/topics/other/messages", Authorization=f"Bearer {stage.token}")
    assert in_raw(stage.running.say(head)) == (403, "Forbidden")


@pytest.mark.parametrize(
    ("method", "target", "refusal"),
    [
        ("POST", "/nowhere", (404, "NotFound")),
        ("BREW", MESSAGES, (405, "MethodNotAllowed")),
        ("GET", "/health", (413, "MessageTooLarge")),
    ],
)
def test_a_large_body_for_nothing_is_refused_before_it_comes(
    stage: Stage, method: str, target: str, refusal: tuple[int, str]
) -> None:
    assert in_raw(stage.running.say(stage.head(method, target))) == refusal


@pytest.mark.parametrize("size", [LARGE, None])
def test_a_large_body_with_a_token_is_received_and_carried_out(stage: Stage, size: int | None) -> None:
    head = stage.head("POST", MESSAGES, size, Authorization=f"Bearer {stage.token}")
    assert stage.is_let_in(head)
    text = json.dumps({"messages": [{"body": "a"}]}).ljust(LARGE).encode()
    body = text if size else b"%x\r\n%s\r\n0\r\n\r\n" % (len(text), text)
    with stage.begun(head) as connection:
        for start in range(0, len(body), 4_000):
            connection.sendall(body[start : start + 4_000])
        assert connection.recv(10_000).startswith(b"HTTP/1.1 200")


SQS = [("/", {"x-amz-target": "AmazonSQS.SendMessage"}), ("/", {}), ("/000000000000/orders", {}), ("/?Action=Send", {})]


@pytest.mark.parametrize(("target", "named"), SQS)
def test_a_large_body_for_sqs_needs_a_key_that_is_known(stage: Stage, target: str, named: dict[str, str]) -> None:
    for authorization, code in (
        ("", b"MissingAuthenticationToken"),
        ("nonsense", b"IncompleteSignature"),
        (SIGNED % "AKIAIOSFODNN7EXAMPLE", b"InvalidClientTokenId"),
        (SIGNED % stage.access_key_id, b""),
    ):
        head = stage.head("POST", target, LARGE, Authorization=authorization, **named)
        if code:
            assert code in stage.running.say(head)
        else:
            assert stage.is_let_in(head)


def test_a_large_body_for_mq_needs_a_signature(stage: Stage) -> None:
    unknown = {"Date": formatdate(usegmt=True), "Authorization": "MQ somebody:c2lnbmF0dXJl"}
    for given, code in (({}, b"header is required"), (unknown, b"InvalidAccessKeyId")):
        head = stage.head("POST", MESSAGES, **{"x-mq-version": "2015-06-06", **given})  # type: ignore[arg-type]
        assert code in stage.running.say(head), code


def test_a_small_body_is_read_before_its_request_is_refused(stage: Stage) -> None:
    with stage.begun(stage.head("POST", MESSAGES, 2)) as connection:
        connection.sendall(b"{}")
        answer = connection.recv(10_000)
    assert answer.startswith(b"HTTP/1.1 401")
    assert b"connection: close" not in answer


# -- all bodies together ----------------------------------------------------------------------------------------------

MEMORY = 4 * LARGE + 100
"""The limit on all large bodies together in these tests: four of them, with the heads of their chunks."""


@pytest.fixture
def open_stage(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    monkeypatch.setattr(connection_module, "BODIES_BYTES_MAX", MEMORY)
    with serving(Demand()) as stage:
        yield stage


def unfinished(stage: Stage, size: int | None) -> socket.socket:
    """A connection whose body lacks its end alone."""
    connection = stage.begun(stage.head("POST", MESSAGES, size, Expect="100-continue"))
    assert connection.recv(100).startswith(b"HTTP/1.1 100")
    connection.sendall((b"" if size else b"%x\r\n" % LARGE) + b" " * (LARGE - 1))
    return connection


def answered(connections: list[socket.socket], count: int) -> list[socket.socket]:
    """Waits until so many have an answer."""
    while len(found := select.select(connections, [], [], 20)[0]) < count:
        assert found
    return found


@pytest.mark.parametrize("size", [LARGE, None])
def test_unfinished_bodies_have_a_total_and_further_ones_come_later(open_stage: Stage, size: int | None) -> None:
    with ExitStack() as stack:
        bodies = [stack.enter_context(unfinished(open_stage, size)) for _ in range(8)]
        refused = answered(bodies, 4)
        for answer in [each.recv(10_000) for each in refused]:
            assert in_raw(answer) == (503, "StoreUnavailable")
            assert b"retry-after: 1" in answer.lower()
        others = [each for each in bodies if each not in refused]
        others[0].sendall(b" " if size else b" \r\n0\r\n\r\n")
        assert others[0].recv(10_000).startswith(b"HTTP/1.1 400")  # for its content
        assert open_stage.running.ask("POST", MESSAGES, '{"messages": [{"body": "small"}]}')[0] == 200
    assert open_stage.running.ask("POST", MESSAGES, '{"messages": [{"body": "large"}]}'.ljust(LARGE))[0] == 200


def test_a_body_that_was_answered_counts_no_more(open_stage: Stage) -> None:
    for _ in range(10):
        assert open_stage.running.ask("POST", MESSAGES, '{"messages": [{"body": "a"}]}'.ljust(LARGE))[0] == 200
