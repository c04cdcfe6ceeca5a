"""`python -m local` as a newcomer, a shell and an odd HTTP client meet it: a real process on a real port."""

from __future__ import annotations

import http.client
import json
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from email.message import Message

import pytest

from chalicelib.core.base.limits import REQUEST_BYTES_MAX
from local.server import request_of
from tests.local.serving import ANSWER_SECONDS, Running, environment, in_raw, launched, refusal, running
from tests.support.emulators import ROOT, client_of, dynoxide, free_port


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with running() as server:
        yield server


def problem_of(answer: tuple[int, Message, bytes]) -> tuple[int, str]:
    status, headers, body = answer
    assert headers["content-type"] == "application/problem+json"
    assert json.loads(body)["status"] == status
    return status, json.loads(body)["code"]


def test_a_request_has_its_query_as_it_was_sent() -> None:
    assert request_of("GET", "/topics?b=x%7Cy+z&a=", {}, None).raw_query == "b=x%7Cy+z&a="
    assert request_of("GET", "/topics", {}, None).raw_query == ""


# -- the newcomer -----------------------------------------------------------------------------------------------------


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not here")
def test_the_lines_that_it_prints_work_when_pasted(server: Running) -> None:
    lines = [line.strip() for line in server.banner.splitlines() if "curl" in line]
    assert len(lines) == 4
    answers = [subprocess.check_output(["/bin/sh", "-c", line], text=True) for line in lines]
    assert json.loads(answers[3])["messages"][0]["body"] == "hello"


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not here")
def test_with_access_on_it_demands_the_token_that_it_prints_once() -> None:
    with dynoxide() as endpoint:
        with running(ACCESS="on", AWS_ENDPOINT_URL_DYNAMODB=endpoint) as server:
            assert problem_of(server.ask("GET", "/topics")) == (401, "Unauthenticated")
            assert server.ask("GET", "/health")[0] == 200
            assert "AWS_SECRET_ACCESS_KEY" not in server.banner  # the signing key is in the table
            lines = [line.strip() for line in server.banner.splitlines() if "curl" in line or "TOKEN=" in line]
            pasted = subprocess.check_output(["/bin/sh", "-c", "\n".join(lines)], text=True)
            assert '"body":"hello"' in pasted
            token = lines[0].removeprefix("TOKEN=")
        with running(ACCESS="on", AWS_ENDPOINT_URL_DYNAMODB=endpoint) as again:
            assert "TOKEN=\n" in again.banner
            assert again.ask("GET", "/topics", authorization=f"Bearer {token}")[0] == 200


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"ACCESS": "yes"}, "ACCESS must be on or off"),
        ({"DECANT_ACCESS": "open"}, "DECANT_ACCESS must be one of"),
        ({"DECANT_ACCESS": "iam"}, "no IAM lets callers in here"),
    ],
)
def test_an_unknown_access_is_refused_in_one_line(settings: dict[str, str], named: str) -> None:
    process = launched(PORT="0", **settings)
    _, errors = process.communicate(timeout=ANSWER_SECONDS)
    assert (process.returncode, errors.count("\n")) == (1, 1)
    assert named in errors


def test_the_server_says_which_store_it_uses(server: Running) -> None:
    assert "store: memory, gone when this process ends" in server.banner


def test_an_endpoint_gets_its_table() -> None:
    with dynoxide() as endpoint, running(AWS_ENDPOINT_URL_DYNAMODB=endpoint, DECANT_TABLE="mine") as server:
        assert endpoint in server.banner
        assert server.ask("PUT", "/topics/orders")[0] == 201
        assert client_of(endpoint).list_tables()["TableNames"] == ["mine"]


def test_help_names_the_environment() -> None:
    process = launched("--help")
    printed, _ = process.communicate(timeout=ANSWER_SECONDS)
    assert process.returncode == 0
    for name in ("PORT", "DATA", "AWS_ENDPOINT_URL_DYNAMODB", "DECANT_TABLE", "DECANT_STORE", "ACCESS", "LOG"):
        assert name in printed


# -- start and end ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_cleanly_even_during_a_long_poll(ending: signal.Signals) -> None:
    with running() as server:
        server.ask("PUT", "/topics/orders")
        server.ask("PUT", "/topics/orders/groups/billing")
        poll = http.client.HTTPConnection("127.0.0.1", server.port)
        poll.request("POST", "/topics/orders/groups/billing/pop", '{"wait_ms": 20000}')
        time.sleep(0.3)
        started = time.monotonic()
        assert server.end(ending) == (0, "")
        assert time.monotonic() - started < 1.5
        poll.close()


MISSED = """
import http.client, os, signal, sys, threading, time
from local import __main__

def end() -> None:
    while True:
        try:
            connection = http.client.HTTPConnection("127.0.0.1", int(os.environ["PORT"]))
            connection.request("GET", "/health")
            connection.getresponse().read()
            break
        except ConnectionError:
            time.sleep(0.05)
    time.sleep(0.5)
    signal.pthread_kill(threading.get_ident(), signal.SIGTERM)
    time.sleep(60)

threading.Thread(target=end, daemon=True).start()
os._exit(__main__.main([]))
"""
"""Ends the server by a signal that does not interrupt the wait of its main thread, as one that comes just before it."""


def test_a_signal_that_comes_just_before_it_waits_ends_it() -> None:
    settings = environment(PORT=str(free_port()))
    ended = subprocess.run([sys.executable, "-c", MISSED], cwd=ROOT, env=settings, capture_output=True, timeout=50)
    assert (ended.returncode, ended.stderr) == (0, b"")


def test_a_taken_port_is_one_clear_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert f"cannot listen on port {port}: it is taken" in refusal(PORT=port)


@pytest.mark.parametrize("port", ["http", "-1", "65536", "8000.5", "٣"])
def test_an_invalid_port_is_one_clear_line(port: str) -> None:
    assert "PORT must be a number from 0 to 65535" in refusal(PORT=port)


def test_an_unreachable_endpoint_is_one_clear_line() -> None:
    endpoint = f"http://127.0.0.1:{free_port()}"
    assert endpoint in refusal(PORT="0", AWS_ENDPOINT_URL_DYNAMODB=endpoint)


def test_an_invalid_endpoint_is_one_clear_line() -> None:
    assert "nonsense" in refusal(PORT="0", AWS_ENDPOINT_URL_DYNAMODB="nonsense")


@pytest.mark.parametrize("kind", ["sqlite", "moto"])
def test_an_unknown_store_is_one_clear_line(kind: str) -> None:
    assert f"DECANT_STORE must be one of dynamodb, memory; it is {kind!r}" in refusal(PORT="0", DECANT_STORE=kind)


def test_an_old_python_is_one_clear_line() -> None:
    old = "import sys; sys.version_info = (3, 10, 4, 'final', 0); import local"
    ended = subprocess.run([sys.executable, "-c", old], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (1, "decant: Python 3.11 or newer is needed, this is 3.10\n")


def test_requests_are_logged_when_asked_for() -> None:
    with running(LOG="1") as server:
        server.ask("GET", "/health")
        _, errors = server.end(signal.SIGTERM)
    assert '"GET /health HTTP/1.1" 200' in errors


DEFECT = """
import logging, os, sys, warnings
from chalicelib.core.admin.topics import Topics

def names(*_: object) -> None:
    logging.getLogger("some.library").warning("half a character: \\ud800")
    warnings.warn("old")
    raise KeyError("the inside")

Topics.names = names
from local import __main__
os._exit(__main__.main([]))
"""


def printed_beside_a_defect(**settings: str) -> tuple[Running, str, str]:
    """The server, and all that it printed but for the banner, on stdout and on stderr."""
    with running(("-c", DEFECT), **settings) as server:
        assert problem_of(server.ask("GET", "/health", traceparent=f"00-{TRACE_ID}-00f067aa0ba902b7-01"))[0] == 500
        server.process.send_signal(signal.SIGTERM)
        return server, *server.process.communicate(timeout=ANSWER_SECONDS)


TRACE_ID = "4bf92f3577b34da6a3ce929d0e0e4736"


def test_lines_of_json_have_stdout_for_themselves_defects_among_them() -> None:
    server, printed, errors = printed_beside_a_defect(LOG="json")
    assert ("Decant listens on" in server.banner, errors) == (True, "")
    library, python, defect, call = map(json.loads, printed.splitlines())
    assert (library["level"], library["message"]) == ("WARNING", "half a character: \ud800")
    assert "old" in python["message"]
    assert {"level": "ERROR", "operation": "get_health", "error": "KeyError"}.items() <= defect.items()
    assert "the inside" in defect["stack"]
    assert defect["defect"] == call["defect"]
    assert [line["trace_id"] for line in (library, python, defect, call)] == [TRACE_ID] * 4


def test_a_defect_is_told_on_stderr_where_no_lines_are_written() -> None:
    _, printed, errors = printed_beside_a_defect()
    assert printed == ""
    assert "decant: defect " in errors
    assert "KeyError: 'the inside'" in errors


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"LOG": "xml"}, "LOG must be 0, 1 or json; it is 'xml'"),
        ({"DECANT_LOG": "xml"}, "DECANT_LOG must be json or off; it is 'xml'"),
    ],
)
def test_an_unknown_log_is_refused_in_one_line(settings: dict[str, str], named: str) -> None:
    assert refusal(PORT="0", **settings) == f"decant: {named}\n"


# -- HTTP -------------------------------------------------------------------------------------------------------------


def test_a_kept_connection_answers_without_delay(server: Running) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=ANSWER_SECONDS)
    connection.connect()
    kept = connection.sock
    seconds = []
    for _ in range(100):
        started = time.perf_counter()
        connection.request("GET", "/openapi.json")
        connection.getresponse().read()
        seconds.append(time.perf_counter() - started)
    assert connection.sock is kept
    assert statistics.median(seconds) < 0.02  # headers and body apart would take 0.04
    connection.close()


def test_headers_and_body_come_in_one_piece(server: Running) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=ANSWER_SECONDS) as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert connection.recv(65_536).endswith(b"}\n")


def test_each_thread_sees_its_own_request(server: Running) -> None:
    found: dict[str, str] = {}

    def put(name: str) -> None:
        found[name] = json.loads(server.ask("PUT", f"/topics/{name}", '{"queues": 1}')[2])["topic"]

    threads = [threading.Thread(target=put, args=(f"topic-{number}",)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {f"topic-{number}": f"topic-{number}" for number in range(16)}


@pytest.mark.parametrize("headers", [{}, {"Authorization": "Bearer é"}])
@pytest.mark.parametrize("path", ["/nowhere", "/", "//", "/topics/a/b/c/d", "/health/x", "/%2e%2e", "/[", "*"])
def test_an_unknown_path_is_a_problem(server: Running, path: str, headers: dict[str, str]) -> None:
    assert problem_of(server.ask("GET", path, **headers)) == (404, "NotFound")


@pytest.mark.parametrize(
    "path",
    ["/health/", "//health", "///health", "/health//", "/topics/", "//x/topics", "/topics//messages", "/health#x"],
)
def test_a_path_with_something_too_much_is_a_problem(server: Running, path: str) -> None:
    answer = server.ask("GET", path)
    assert problem_of(answer) == (404, "NotFound")
    assert json.loads(answer[2])["detail"] == f"there is no path '{path}'"


@pytest.mark.parametrize("target", ["http://localhost/topics?limit=1", "HTTP://localhost:8000/topics"])
def test_a_target_may_name_the_host(server: Running, target: str) -> None:
    assert server.ask("GET", target)[0] == 200


def test_a_host_without_a_path_is_a_problem(server: Running) -> None:
    assert problem_of(server.ask("GET", "http://localhost")) == (404, "NotFound")


@pytest.mark.parametrize("method", ["PATCH", "OPTIONS", "TRACE", "CONNECT", "BREW"])
def test_a_method_that_a_path_does_not_know_is_a_problem(server: Running, method: str) -> None:
    answer = server.ask(method, "/topics/orders")
    assert problem_of(answer) == (405, "MethodNotAllowed")
    assert answer[1]["allow"] == "DELETE, GET, HEAD, PUT"
    assert problem_of(server.ask(method, "/nowhere")) == (404, "NotFound")


def test_head_has_no_body_and_leaves_the_connection_usable(server: Running) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=ANSWER_SECONDS)
    for path, status in (("/nowhere", 404), ("/health", 200)):
        connection.request("HEAD", path)
        headed = connection.getresponse()
        assert (headed.status, headed.read()) == (status, b"")
        connection.request("GET", path)
        got = connection.getresponse()
        assert int(headed.headers["content-length"]) == len(got.read()) > 0
    connection.close()


def test_an_answer_without_content_has_neither_length_nor_type(server: Running) -> None:
    server.ask("PUT", "/topics/short-lived")
    status, headers, body = server.ask("DELETE", "/topics/short-lived")
    assert (status, body) == (204, b"")
    assert "content-length" not in headers
    assert "content-type" not in headers


def test_chunks_are_put_together(server: Running) -> None:
    server.ask("PUT", "/topics/chunked")
    chunks = iter([b'{"messages": [{"body"', b': "in two chunks"}]}'])
    status, _, body = server.ask("POST", "/topics/chunked/messages", chunks)
    assert status == 200, body


@pytest.mark.parametrize("body", [b"\xff\xfe", b'{"messages": [{"body": "\xe4"}]}', b"{"])
def test_a_body_that_is_not_json_is_a_problem_of_the_app(server: Running, body: bytes) -> None:
    server.ask("PUT", "/topics/orders")
    assert problem_of(server.ask("POST", "/topics/orders/messages", body)) == (400, "InvalidJson")


CHUNKED = "Transfer-Encoding: chunked"


@pytest.mark.parametrize(
    ("header", "body"),
    [
        ("Content-Length: many", ""),
        ("Content-Length: -1", ""),
        ("Content-Length: +2", "{}"),
        ("Content-Length: 2\r\nContent-Length: 3", "{} "),
        (f"Content-Length: 2\r\n{CHUNKED}", "0\r\n\r\n"),
        ("Transfer-Encoding: gzip, chunked", "0\r\n\r\n"),
        (CHUNKED, "two\r\n{}\r\n0\r\n\r\n"),
        (CHUNKED, "-2\r\n{}\r\n0\r\n\r\n"),
        (CHUNKED, "1\r\n{}\r\n0\r\n\r\n"),
        (CHUNKED, "0;" + "x" * 2_000),
    ],
)
def test_a_body_of_unclear_length_is_refused_and_the_connection_closed(server: Running, header: str, body: str) -> None:
    raw = f"PUT /topics/a HTTP/1.1\r\nHost: localhost\r\n{header}\r\n\r\n{body}"
    assert in_raw(server.say(raw.encode())) == (400, "InvalidField")


@pytest.mark.parametrize("raw", [b"nonsense\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"GET /" + b"a" * 70_000])
def test_bytes_that_are_not_http_are_refused(server: Running, raw: bytes) -> None:
    assert in_raw(server.say(raw)) == (400, "InvalidField")


def test_a_request_that_announces_too_much_is_refused_before_it_comes(server: Running) -> None:
    announced = f"Content-Length: {REQUEST_BYTES_MAX + 1}\r\nExpect: 100-continue\r\n"
    raw = f"PUT /topics/a HTTP/1.1\r\nHost: localhost\r\n{announced}\r\n"
    assert in_raw(server.say(raw.encode())) == (413, "MessageTooLarge")


def test_a_request_that_sends_too_much_all_the_same_reads_why(server: Running) -> None:
    assert problem_of(server.ask("PUT", "/topics/a", bytes(REQUEST_BYTES_MAX + 1))) == (413, "MessageTooLarge")


def test_chunks_that_are_too_much_together_are_refused(server: Running) -> None:
    chunks = (bytes(1_000_000) for _ in range(REQUEST_BYTES_MAX // 1_000_000 + 1))
    assert problem_of(server.ask("PUT", "/topics/a", chunks)) == (413, "MessageTooLarge")


def test_a_client_that_waits_to_send_is_told_to_go_on(server: Running) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=ANSWER_SECONDS) as connection:
        connection.sendall(
            b"PUT /topics/waits HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n"
        )
        assert connection.recv(1_000).startswith(b"HTTP/1.1 100")
        connection.sendall(b"{}")
        assert connection.recv(10_000).startswith(b"HTTP/1.1 20")


def test_a_client_that_goes_away_leaves_no_trace() -> None:
    with running() as server:
        for raw in (b"PUT /topics/gone HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{", b"GET /he", b""):
            with socket.create_connection(("127.0.0.1", server.port)) as connection:
                connection.sendall(raw)
        assert server.ask("GET", "/topics/gone")[0] == 404
        assert server.end(signal.SIGTERM) == (0, "")
