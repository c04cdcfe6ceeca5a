"""The head of a request is carried out whole or not at all: one that the end of the connection cut off may lack the
length of its body, or half of a name."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from chalicelib.core.base.errors import InvalidField, MessageTooLarge
from local.http1 import ReceiveBuffer, Steps, WaitFor, parse_head, read_body
from tests.local.serving import Running, endpoint_in, in_raw, running

DELETION = b"DELETE /topics/kept HTTP/1.1\r\nHost: localhost\r\nX-More: 1\r\n\r\n"
PUT = b'PUT /topics/%s HTTP/1.1\r\nHost: localhost\r\nContent-Length: 13\r\n\r\n{"queues": 3}'


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with running() as server:
        yield server


def put(name: str) -> bytes:
    return PUT % name.encode()


@pytest.mark.parametrize("size", range(1, len(DELETION)))
def test_a_request_whose_head_is_cut_anywhere_is_not_carried_out(server: Running, size: int) -> None:
    server.ask("PUT", "/topics/kept")
    assert server.say(DELETION[:size], ends=True) == b""
    assert server.ask("GET", "/topics/kept")[0] == 200


def test_a_request_whose_client_closes_within_its_head_is_not_carried_out(server: Running) -> None:
    server.ask("PUT", "/topics/kept")
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        connection.sendall(DELETION[:-2])
    assert server.ask("GET", "/topics/kept")[0] == 200


def test_a_whole_head_is_carried_out_though_its_client_sends_no_more(server: Running) -> None:
    server.ask("PUT", "/topics/given-up")
    assert b" 204 " in server.say(DELETION.replace(b"kept", b"given-up"), ends=True)
    assert server.ask("GET", "/topics/given-up")[0] == 404


def test_a_put_that_loses_its_length_does_not_lose_its_settings(server: Running) -> None:
    before_the_length = put("unset").partition(b"Content-Length")[0]
    assert server.say(before_the_length, ends=True) == b""
    assert server.ask("GET", "/topics/unset")[0] == 404


def test_a_cut_request_behind_a_whole_one_is_not_carried_out(server: Running) -> None:
    server.ask("PUT", "/topics/kept")
    answers = server.say(put("before-the-cut") + DELETION[:-2], ends=True)
    assert answers.count(b"HTTP/1.1 ") == 1
    assert server.ask("GET", "/topics/before-the-cut")[0] == 200
    assert server.ask("GET", "/topics/kept")[0] == 200


def test_lines_may_end_without_a_carriage_return(server: Running) -> None:
    assert b" 201 " in server.say(put("bare").replace(b"\r\n", b"\n"), ends=True)
    assert json.loads(server.ask("GET", "/topics/bare")[2])["queues"] == 3


@pytest.mark.parametrize("line", ["DELETE /topics/kept", "GET /topics/kept", "GET", "GET /topics/kept HTTP/0.9", ""])
def test_a_request_line_without_a_version_that_is_spoken_is_refused(server: Running, line: str) -> None:
    server.ask("PUT", "/topics/kept")
    assert in_raw(server.say(f"{line}\r\n\r\n".encode())) == (400, "InvalidField")
    assert server.ask("GET", "/topics/kept")[0] == 200


@pytest.mark.parametrize(
    "line",
    [
        b"nonsense",
        b"Content-Length : 13",
        b" folded",
        b"\tfolded",
        b": no name",
        b"From somebody",
        b"a\rb: c",
        b"a: b\rc",
        b"a: \0",
        b"a: \x0b",
        b"a: \x1b[2J",
        b"a: \x7f",
        b"\x0bTransfer-Encoding: chunked",
        b"Transfer-Encoding: \x0bchunked",
        b"Content-Length: \x0b13",
    ],
)
def test_a_line_that_is_not_a_header_is_refused_and_does_not_end_headers(server: Running, line: bytes) -> None:
    raw = put("unset").replace(b"Content-Length", line + b"\r\nContent-Length")
    assert in_raw(server.say(raw)) == (400, "InvalidField")
    assert server.ask("GET", "/topics/unset")[0] == 404


@pytest.mark.parametrize(
    "line",
    [
        b"DELETE\x0b/topics/kept HTTP/1.1",
        b"DELETE /topics/kept\x0bHTTP/1.1",
        b"DELETE /topics/kept HTTP/1.1\x0b",
        b"DELETE\t/topics/kept HTTP/1.1",
        b"DELETE  /topics/kept HTTP/1.1",
        b"DELETE /topics/kept  HTTP/1.1",
        b"DELETE /topics/kept HTTP/1.1 ",
        b" DELETE /topics/kept HTTP/1.1",
        b"DELETE /topics/kept\r HTTP/1.1",
        b"\rDELETE /topics/kept HTTP/1.1",
        b"DELETE /topics/kept HTTP/1.1\r",
        b"DELETE /topics/kept#\x01 HTTP/1.1",
        b"DEL(ETE /topics/kept HTTP/1.1",
        b"DELETE /topics/kept http/1.1",
        b"DELETE /topics/kept HTTP/1.11",
        b"DELETE /topics/kept HTTP/2.0",
    ],
)
def test_a_request_line_that_others_could_read_otherwise_is_refused(server: Running, line: bytes) -> None:
    server.ask("PUT", "/topics/kept")
    assert in_raw(server.say(line + b"\r\nHost: localhost\r\n\r\n")) == (400, "InvalidField")
    assert server.ask("GET", "/topics/kept")[0] == 200


@pytest.mark.parametrize(
    "hosts",
    [
        b"",
        b"Host: localhost\r\nHost: b\r\n",
        b"Host: localhost\r\nhost: a\r\n",
        b"Host: a b\r\n",
        b"Host: a/b\r\n",
        b"Host: u@a\r\n",
    ],
)
def test_a_request_of_today_names_one_host(server: Running, hosts: bytes) -> None:
    assert in_raw(server.say(b"GET /health HTTP/1.1\r\n" + hosts + b"\r\n")) == (400, "InvalidField")


@pytest.mark.parametrize("host", [b"localhost:8000", b"[::1]:8000", b"", b"xn--a.localhost"])
def test_a_host_may_have_a_port(server: Running, host: bytes) -> None:
    assert b" 200 " in server.say(b"GET /health HTTP/1.1\r\nConnection: close\r\nHost: %s\r\n\r\n" % host)


def test_an_empty_line_before_a_request_is_ignored(server: Running) -> None:
    assert b" 200 " in server.say(b"\r\nGET /health HTTP/1.0\r\n\r\n")
    assert in_raw(server.say(b"\r\n\r\nGET /health HTTP/1.0\r\n\r\n")) == (400, "InvalidField")


CHUNKS = b"PUT /topics/unset HTTP/1.%d\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n%s"


@pytest.mark.parametrize(
    "body",
    [
        b"2;a\rb\r\n{}\r\n0\r\n\r\n",
        b"2;a\n{}\r\n0\r\n\r\n",
        b"2\n{}\r\n0\r\n\r\n",
        b"2\x0b\r\n{}\r\n0\r\n\r\n",
        b"2;\x0b\r\n{}\r\n0\r\n\r\n",
        b"2;\0\r\n{}\r\n0\r\n\r\n",
        b"2 \r\n{}\r\n0\r\n\r\n",
        b" 2\r\n{}\r\n0\r\n\r\n",
        b"+2\r\n{}\r\n0\r\n\r\n",
        b"0x2\r\n{}\r\n0\r\n\r\n",
        b"2_\r\n{}\r\n0\r\n\r\n",
        b";a\r\n{}\r\n0\r\n\r\n",
        b"\r\n{}\r\n0\r\n\r\n",
        b"2\r\r\n{}\r\n0\r\n\r\n",
        b"00000000000000002\r\n{}\r\n0\r\n\r\n",
        b"2\r\n{}\n0\r\n\r\n",
        b"2\r\n{}\r\r\n0\r\n\r\n",
        b"2\r\n{}\r\n0\n\r\n",
        b"2\r\n{}\r\n0\r\n\n",
        b"2\r\n{}\r\n0\r\nno trailer\r\n\r\n",
        b"2\r\n{}\r\n0\r\na : b\r\n\r\n",
        b"2\r\n{}\r\n0\r\na: b\r\n folded\r\n\r\n",
        b"2\r\n{}\r\n0\r\na: \x0b\r\n\r\n",
        b"2\r\n{}\r\n0\r\na: b\n\r\n",
    ],
)
def test_a_chunk_that_others_could_read_otherwise_is_refused(server: Running, body: bytes) -> None:
    assert in_raw(server.say(CHUNKS % (1, body))) == (400, "InvalidField")
    assert server.ask("GET", "/topics/unset")[0] == 404


@pytest.mark.parametrize(
    "coding", ["Chunked, chunked", "chunked, gzip", "xchunked", "identity", "chunked\r\nTransfer-Encoding: x", ""]
)
def test_a_coding_of_the_body_but_chunks_is_refused(server: Running, coding: str) -> None:
    raw = (CHUNKS % (1, b"0\r\n\r\n")).replace(b"chunked", coding.encode())
    assert in_raw(server.say(raw)) == (400, "InvalidField")


def test_chunks_are_refused_in_the_version_that_has_none(server: Running) -> None:
    assert in_raw(server.say(CHUNKS % (0, b"2\r\n{}\r\n0\r\n\r\n"))) == (400, "InvalidField")


def test_nobody_waits_to_send_in_the_version_that_has_no_waiting(server: Running) -> None:
    head = b"PUT /topics/old HTTP/1.0\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n"
    assert server.say(head + b"{}").startswith(b"HTTP/1.1 201")


@pytest.mark.parametrize("header", [b"x: " + b"a" * 70_000, b"x: 1\r\n" * 101, (b"x: " + b"a" * 1_000 + b"\r\n") * 80])
def test_a_head_that_is_too_large_is_refused(server: Running, header: bytes) -> None:
    assert in_raw(server.say(b"GET /health HTTP/1.1\r\nHost: localhost\r\n" + header + b"\r\n\r\n")) == (
        400,
        "InvalidField",
    )


@pytest.mark.parametrize(
    ("target", "wanted"),
    [
        ("/topics/" + "%" * 10_233 + "/messages", "the path and the query have more than 10240 characters"),
        ("/topics?limit=" + "%41" * 10_000, "the path and the query have more than 10240 characters"),
        ("/topics?" + "&a" * 1_000, "the query has more than 1000 parameters"),
    ],
)
def test_a_target_that_takes_long_to_decode_is_refused(server: Running, target: str, wanted: str) -> None:
    answer = server.say(f"GET {target} HTTP/1.0\r\n\r\n".encode())
    assert in_raw(answer) == (400, "InvalidField")
    assert wanted.encode() in answer
    assert b"parameter 'a'" in server.say(f"GET /topics?{'&a' * 999} HTTP/1.0\r\n\r\n".encode())


def test_too_many_headers_are_refused_before_the_last_has_come(server: Running) -> None:
    answer = server.say(b"GET /health HTTP/1.1\r\nHost: localhost\r\n" + b"x:1\r\n" * 101)
    assert in_raw(answer) == (400, "InvalidField")
    assert b"more than 99 headers" in answer
    assert b" 200 " in server.say(b"GET /health HTTP/1.0\r\n" + b"x:1\r\n" * 99 + b"\r\n")


def test_a_connection_that_is_to_be_closed_is_closed(server: Running) -> None:
    raw = b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: x, Close\r\n\r\n"
    assert b"connection: close" in server.say(raw).lower()
    assert b" 200 " in server.say(b"GET /health HTTP/1.0\r\n\r\n")


def test_pipelined_requests_are_answered_in_their_order(server: Running) -> None:
    raw = b"".join(put(f"line-{number}") for number in range(5)) + b"GET /topics/line-4 HTTP/1.0\r\n\r\n"
    answers = server.say(raw).split(b"HTTP/1.1 ")[1:]
    assert [answer[:3] for answer in answers] == [b"201"] * 5 + [b"200"]
    assert [f'"line-{number}"'.encode() in answer for number, answer in enumerate(answers[:5])] == [True] * 5


def test_the_endpoint_of_the_store_answers_no_cut_request_either(server: Running) -> None:
    port = urlsplit(endpoint_in(server.banner)).port
    assert port is not None
    named = b"Host: localhost\r\nX-Amz-Target: DynamoDB_20120810.ListTables\r\n"
    whole = b"POST / HTTP/1.1\r\n" + named + b"Content-Length: 2\r\n\r\n{}"
    store = Running(server.process, f"http://127.0.0.1:{port}")
    assert b" 200 " in store.say(whole, ends=True)
    for size in range(1, len(whole)):
        assert store.say(whole[:size], ends=True) == b"", whole[:size]


TALK = b"".join(
    [
        put("whole"),
        b"GET /health HTTP/1.1\nHost: localhost\r\n\n",
        b"PUT /topics/a HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"4;x=y\r\n{}\r\n\r\n1\r\n \r\n0\r\nX: y\r\n\r\n",
        b"GET /last HTTP/1.0\r\n\r\n",
    ]
)
"""Requests one behind the other, with bodies of all kinds."""
HEARD = [("/topics/whole", b'{"queues": 3}'), ("/health", None), ("/topics/a", b"{}\r\n "), ("/last", None)]


def requests_in(incoming: ReceiveBuffer, heard: list[tuple[str, bytes | None]]) -> Steps[None]:
    while True:
        head = parse_head((yield from incoming.head()))
        body = yield from read_body(head.headers, incoming, 100, lambda _size: iter(()))  # type: ignore[arg-type,return-value]
        heard.append((head.target, body))


@pytest.mark.parametrize("size", [1, 2, 3, 5, 7, 50, len(TALK)])
def test_requests_are_the_same_in_whichever_pieces_they_come(size: int) -> None:
    incoming, heard = ReceiveBuffer(), list[tuple[str, bytes | None]]()
    reading = requests_in(incoming, heard)
    for start in range(0, len(TALK), size):
        incoming.add(TALK[start : start + size])
        assert next(reading) is WaitFor.INPUT
    assert heard == HEARD
    incoming.has_ended = True
    with pytest.raises(EOFError):
        next(reading)


def test_a_value_of_blanks_is_no_work_for_minutes() -> None:
    began = time.perf_counter()
    with pytest.raises(InvalidField):
        parse_head(b"GET / HTTP/1.1\r\nHost: localhost\r\na:" + b" " * 60_000 + b"\0\r\n\r\n")
    assert time.perf_counter() - began < 1


def test_chunks_that_come_together_count_together() -> None:
    incoming = ReceiveBuffer()
    incoming.add(b"6\r\nabcdef\r\n6\r\nabcdef\r\n0\r\n\r\n")
    with pytest.raises(MessageTooLarge):
        list(read_body({"transfer-encoding": "chunked"}, incoming, 10, lambda _size: iter(())))  # type: ignore[arg-type,return-value]
