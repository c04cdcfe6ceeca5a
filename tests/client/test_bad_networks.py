"""Servers that are down, slow, half, foreign or wrong: one error that says what is the matter, nothing twice."""

from __future__ import annotations

import pickle
import time
from typing import Any

import pytest

from decant import (
    DecantError,
    Forbidden,
    NotDecant,
    OutcomeUnknown,
    PartlySent,
    Problem,
    QueueFull,
    StoreUnavailable,
    TopicNotFound,
    Unauthenticated,
    Unreachable,
)
from tests.client.support.faces import Face
from tests.client.support.servers import (
    Turn,
    answer,
    closes,
    free_port,
    head,
    problem,
    raw,
    resets,
    serving,
)

STORED = answer(200, {"messages": [{"message_id": "m", "queue": 0, "offset": 0}]})
TOPIC = answer(200, {"topic": "orders"})
UNKNOWN = problem(503, "StoreUnavailable", outcome="unknown")
FULL = problem(429, "QueueFull")


def client(face: Face, url: str, **options: Any) -> Any:
    return face(url, **{"timeout": 1.5, "random": lambda: 0.0, **options})


# -- no connection ----------------------------------------------------------------------------------------------------


def test_a_server_that_is_down_is_named(face: Face) -> None:
    port = free_port()
    mq = client(face, f"http://127.0.0.1:{port}", timeout=0.3)
    with pytest.raises(Unreachable, match=rf"http://127.0.0.1:{port} .*POST /topics/orders/messages.*refused"):
        mq.send("orders", "hello")


def test_a_host_that_does_not_exist_is_named(face: Face) -> None:
    mq = client(face, "http://no-such-host.invalid", timeout=0.3)
    with pytest.raises(Unreachable, match=r"no-such-host\.invalid:80"):
        mq.send("orders", "hello")


def test_a_server_that_comes_back_in_time_is_used(face: Face) -> None:
    with serving(problem(503, "StoreUnavailable"), problem(429, "QueueFull"), STORED) as server:
        assert client(face, server.url).send("orders", "hello").id == "m"
    assert len(server.requests) == 3


# -- answers that are lost --------------------------------------------------------------------------------------------

LOST: dict[str, Turn | str] = {
    "closed": closes,
    "reset": resets,
    "half a head": raw(b"HTTP/1.1 200 OK\r\ncontent-le", then_close=True),
    "half a body": raw(b'HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{"mess', then_close=True),
    "half a chunk": raw(b'HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n20\r\n{"mess', then_close=True),
    "no last chunk": raw(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n", then_close=True),
    "outcome unknown": UNKNOWN,
    "a defect": problem(500, "Internal"),
    "bad gateway": raw(head(502, {"content-type": "text/html", "content-length": "6"}) + b"<html>"),
    "a gateway's time-out": answer(504, {"message": "Endpoint request timed out"}),
    "a gateway's 503": answer(503, {"message": "Service Unavailable"}),
}


@pytest.mark.parametrize("turn", LOST.values(), ids=LOST)
def test_a_send_without_an_answer_is_not_sent_twice(face: Face, turn: Turn) -> None:
    unknown = pytest.raises(OutcomeUnknown, match="may have carried out POST /topics/orders/messages")
    with serving(turn, STORED) as server, unknown:
        client(face, server.url).send("orders", "hello")
    assert len(server.requests) == 1


@pytest.mark.parametrize("turn", LOST.values(), ids=LOST)
def test_a_send_with_a_dedup_id_is_repeated(face: Face, turn: Turn) -> None:
    with serving(turn, STORED) as server:
        assert client(face, server.url).send("orders", "hello", dedup_id="4711").id == "m"
    first, second = server.requests
    assert first.json == second.json == {"messages": [{"body": "hello", "dedup_id": "4711"}]}


@pytest.mark.parametrize("turn", LOST.values(), ids=LOST)
def test_a_read_is_repeated(face: Face, turn: Turn) -> None:
    with serving(turn, TOPIC) as server:
        assert client(face, server.url).api.get_topic("orders") == {"topic": "orders"}


def test_a_read_that_never_succeeds_has_changed_nothing(face: Face) -> None:
    with serving(closes) as server, pytest.raises(Unreachable, match="GET /topics/orders"):
        client(face, server.url, timeout=0.3).api.get_topic("orders")


def test_a_pop_is_repeated_only_with_an_attempt_id(face: Face) -> None:
    popped = answer(200, {"messages": [], "acked": 0, "failed": []})
    with serving(closes, popped) as server, pytest.raises(OutcomeUnknown):
        client(face, server.url).api.pop("orders", "billing")
    with serving(closes, popped) as server:
        assert client(face, server.url).api.pop("orders", "billing", attempt_id="a")["messages"] == []


def test_a_delete_whose_answer_was_lost_may_find_nothing(face: Face) -> None:
    with serving(closes, problem(404, "TopicNotFound")) as server:
        assert client(face, server.url).api.delete_topic("orders") is None
    with serving(problem(404, "TopicNotFound")) as server, pytest.raises(TopicNotFound):
        client(face, server.url).api.delete_topic("orders")


def test_a_cancel_whose_answer_was_lost_claims_nothing(face: Face) -> None:
    with serving(closes, problem(404, "MessageNotFound")) as server, pytest.raises(OutcomeUnknown):
        client(face, server.url).api.cancel_delayed("orders", "m")
    with serving(closes, problem(404, "GroupNotFound")) as server, pytest.raises(OutcomeUnknown):
        client(face, server.url).api.purge_dead("orders", "billing")


def test_an_answer_lost_before_stays_unknown_when_the_server_then_goes(face: Face) -> None:
    with serving(closes, FULL) as server, pytest.raises(OutcomeUnknown, match="QueueFull"):
        client(face, server.url, timeout=0.3).send("orders", "hello", dedup_id="4711")


def test_a_token_that_expires_between_attempts_does_not_hide_the_first(face: Face) -> None:
    with serving(closes, problem(401, "Unauthenticated")) as server, pytest.raises(OutcomeUnknown, match="Unauth"):
        client(face, server.url).send("orders", "hello", dedup_id="4711")


# -- slow -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("turn", ["hangs", "drips"])
def test_a_server_that_does_not_end_meets_the_deadline(face: Face, turn: str) -> None:
    with serving(turn) as server:
        began = time.monotonic()
        with pytest.raises(OutcomeUnknown, match="no answer in time"):
            client(face, server.url, timeout=0.3).send("orders", "hello", dedup_id="4711")
        assert time.monotonic() - began < 5


def test_the_wait_of_a_long_poll_comes_on_top_of_the_deadline(face: Face) -> None:
    def late(connection: Any, request: Any) -> None:
        time.sleep(0.5)
        answer(200, {"messages": [], "acked": 0, "failed": []})(connection, request)

    with serving(late) as server:
        assert client(face, server.url, timeout=0.3).api.pop("orders", "billing", wait_ms=5_000)["acked"] == 0


def test_a_pause_that_the_server_asks_for_is_kept(face: Face) -> None:
    full = answer(429, {"code": "QueueFull", "detail": "full"}, retry_after="1")
    with serving(full, STORED) as server:
        began = time.monotonic()
        client(face, server.url, timeout=10).send("orders", "hello")
        assert time.monotonic() - began >= 1


def test_a_pause_that_would_pass_the_deadline_ends_the_call_at_once(face: Face) -> None:
    full = answer(429, {"code": "QueueFull", "detail": "full"}, retry_after="3600")
    with serving(full) as server, pytest.raises(QueueFull) as raised:
        client(face, server.url).send("orders", "hello")
    assert raised.value.retry_after_s == 3_600
    assert len(server.requests) == 1


# -- something else answers -------------------------------------------------------------------------------------------

FOREIGN: dict[str, tuple[bytes, str]] = {
    "a web page": (head(200, {"content-type": "text/html", "content-length": "6"}) + b"<html>", "200 and text/html"),
    "a list": (head(200, {"content-length": "2"}) + b"[]", "no JSON object"),
    "a login page": (head(403, {"content-type": "text/html", "content-length": "6"}) + b"<html>", "403 and text/html"),
    "a redirect": (head(302, {"location": "https://b.example/x", "content-length": "0"}), r"https://b\.example/x"),
    "SSH": (b"SSH-2.0-OpenSSH_9.9\r\n", "SSH-2.0"),
    "HTTP/0.9": (b"<html>hello</html>", "not HTTP"),
    "HTTP/2": (b"HTTP/2.0 200 OK\r\n\r\n", "not HTTP/1.1"),
    "no status": (b"HTTP/1.1 OK\r\n\r\n", "not HTTP/1.1"),
    "TLS": (b"\x15\x03\x01\x00\x02\x02\x46", "https://"),
    "an odd length": (head(200, {"content-length": "-1"}), "content length '-1'"),
    "a length that is text": (head(200, {"content-length": "many"}), "content length 'many'"),
    "an odd chunk": (head(200, {"transfer-encoding": "chunked"}) + b"zz\r\n", "a chunk of b'zz'"),
    "a chunk that is too long": (head(200, {"transfer-encoding": "chunked"}) + b"1\r\n{}\r\n", "longer than it says"),
    "gzip": (head(200, {"content-encoding": "gzip", "content-length": "2"}) + b"\x1f\x8b", "gzip"),
    "a coding": (head(200, {"transfer-encoding": "gzip, chunked"}), "gzip, chunked"),
    "headers without end": (b"HTTP/1.1 200 OK\r\nx: " + b"x" * 100_000, "no end"),
    "a huge answer": (head(200, {"content-length": "99999999999"}), "too large"),
    "a huge chunk": (head(200, {"transfer-encoding": "chunked"}) + b"fffffff0\r\n", "too large"),
    "nested too deep": (head(200, {"content-length": "200000"}) + b"[" * 200_000, "no JSON object"),
}


@pytest.mark.parametrize(("data", "text"), FOREIGN.values(), ids=FOREIGN)
def test_something_else_that_answers_is_named(face: Face, data: bytes, text: str) -> None:
    with serving(raw(data, then_close=True)) as server, pytest.raises(NotDecant, match=text) as raised:
        client(face, server.url).api.get_topic("orders")
    assert server.url in str(raised.value)
    assert len(server.requests) == 1


def test_an_address_of_https_where_plain_http_is_spoken_is_named(face: Face) -> None:
    with serving(TOPIC) as server, pytest.raises(NotDecant, match="http://"):
        client(face, server.url.replace("http", "https")).api.get_topic("orders")


def test_a_body_that_is_no_json_but_said_to_be_is_no_answer_of_ours(face: Face) -> None:
    half = raw(head(200, {"content-type": "application/json", "content-length": "1"}) + b"{")
    with serving(half) as server, pytest.raises(NotDecant, match="no JSON object"):
        client(face, server.url).api.get_topic("orders")


# -- odd, but right ---------------------------------------------------------------------------------------------------

BODY = b'{"topic": "orders"}'
ODD: dict[str, bytes] = {
    "chunks": head(200, {"transfer-encoding": "chunked"})
    + b'5;a=b\r\n{"top\r\n00E\r\nic": "orders"}\r\n0\r\nx-t: 1\r\n\r\n',
    "no length": b"HTTP/1.0 200 OK\r\n\r\n" + BODY,
    "a continue before": b"HTTP/1.1 100 Continue\r\n\r\n" + head(200, {"content-length": "19"}) + BODY,
    "no reason": b"HTTP/1.1 200\r\ncontent-length: 19\r\n\r\n" + BODY,
    "more than its length": head(200, {"content-length": "19"}) + BODY + b"HTTP/1.1 500 No\r\n\r\n",
    "names in capitals": b"HTTP/1.1 200 OK\r\nCONTENT-LENGTH:19\r\n\r\n" + BODY,
}


@pytest.mark.parametrize("data", ODD.values(), ids=ODD)
def test_an_answer_of_any_form_is_read(face: Face, data: bytes) -> None:
    with serving(raw(data, then_close=True)) as server:
        mq = client(face, server.url)
        assert [mq.api.get_topic("orders") for _ in range(3)] == [{"topic": "orders"}] * 3


def test_an_answer_in_single_bytes_is_read(face: Face) -> None:
    def drips(connection: Any, _request: Any) -> None:
        for place in range(len(ODD["chunks"])):
            connection.sendall(ODD["chunks"][place : place + 1])
            time.sleep(0.001)

    with serving(drips) as server:
        assert client(face, server.url).api.get_topic("orders") == {"topic": "orders"}


def test_an_answer_of_many_megabytes_is_read(face: Face) -> None:
    with serving(answer(200, {"topic": "o" * 8_000_000})) as server:
        assert len(client(face, server.url).api.get_topic("orders")["topic"]) == 8_000_000


def test_a_refusal_before_the_end_of_a_large_request_is_read(face: Face) -> None:
    def refuses(connection: Any, request: Any) -> None:
        problem(413, "MessageTooLarge")(connection, request)

    with serving(refuses) as server, pytest.raises(Problem, match="MessageTooLarge"):
        client(face, server.url).send("orders", "x" * 4_000_000)


# -- kept connections -------------------------------------------------------------------------------------------------


def test_calls_one_after_another_share_a_connection(face: Face) -> None:
    with serving(TOPIC) as server:
        mq = client(face, server.url)
        for _ in range(5):
            mq.api.get_topic("orders")
    assert {request.connection for request in server.requests} == {0}


def test_a_kept_connection_that_was_closed_is_not_used_again(face: Face) -> None:
    with serving(STORED) as server:
        mq = client(face, server.url)
        mq.send("orders", "one")
        server.connections[0].shutdown(2)
        time.sleep(0.1)
        mq.send("orders", "two")  # its answer would be lost, and it is never sent twice
    assert [request.connection for request in server.requests] == [0, 1]


def test_a_connection_that_the_server_wants_closed_is_closed(face: Face) -> None:
    with serving(answer(200, {"topic": "orders"}, connection="close")) as server:
        mq = client(face, server.url)
        for _ in range(3):
            mq.api.get_topic("orders")
    assert [request.connection for request in server.requests] == [0, 1, 2]


# -- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("turn", "kind"),
    [
        (problem(401, "Unauthenticated", "a token is needed"), Unauthenticated),
        (problem(403, "Forbidden", "the token has no right"), Forbidden),
        (problem(418, "Teapot", "short and stout"), Problem),
        (answer(403, {"message": "Forbidden by the front"}), Problem),
    ],
)
def test_a_refusal_says_what_the_service_says(face: Face, turn: Turn, kind: type[Problem]) -> None:
    with serving(turn) as server, pytest.raises(kind) as raised:
        client(face, server.url).send("orders", "hello")
    assert type(raised.value) is kind
    assert raised.value.detail in str(raised.value)
    assert len(server.requests) == 1


def test_a_store_that_stays_unavailable_is_a_problem(face: Face) -> None:
    with serving(problem(503, "StoreUnavailable")) as server, pytest.raises(StoreUnavailable):
        client(face, server.url, timeout=0.3).send("orders", "hello")


def test_errors_survive_the_way_to_another_process() -> None:
    full = QueueFull(429, {"code": "QueueFull", "detail": "full"}, 1.0)
    for error in (full, OutcomeUnknown("lost", full), PartlySent([full]), NotDecant("a web page")):
        again = pickle.loads(pickle.dumps(error))  # noqa: S301 - its own
        assert (type(again), str(again)) == (type(error), str(error))
        assert vars(again).keys() == vars(error).keys()


def test_every_error_is_a_decant_error() -> None:
    import decant.errors

    kinds = [kind for kind in vars(decant.errors).values() if isinstance(kind, type) and issubclass(kind, Exception)]
    assert all(issubclass(kind, DecantError) for kind in kinds)
