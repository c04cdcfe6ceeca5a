"""Web pages of other sites reach nothing of a server without access control; other clients do."""

from __future__ import annotations

import json
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from local import startup
from tests.local.serving import Running, endpoint_in, running

Headers = dict[str, str]

PRODUCE = json.dumps({"messages": [{"body": "a"}]})
LINK = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with running() as server:
        server.ask("PUT", "/topics/orders")
        yield server


def produced(server: Running, headers: Headers) -> int:
    own = {name: value.replace("OWN", f"127.0.0.1:{server.port}") for name, value in headers.items()}
    return server.ask("POST", "/topics/orders/messages", PRODUCE, **own)[0]


@pytest.mark.parametrize(
    "headers",
    [
        {"Sec-Fetch-Site": "cross-site", "Content-Type": "text/plain"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "CROSS-SITE"},
        {"Origin": "https://pages.example", "Content-Type": "text/plain"},
        {"Origin": "null"},
        {"Origin": ""},
        {"Origin": "http://127.0.0.1:1"},
        {"Origin": "http://localhost"},
        {"Origin": "http://OWN.pages.example"},
        {"Origin": "http://[::1"},
        {"Host": "pages.example"},
        {"Host": "pages.example:8000", "Origin": "http://pages.example:8000", "Sec-Fetch-Site": "same-origin"},
        {"Host": "localhost.pages.example"},
        {"Host": "127.0.0.1.pages.example"},
        {"Host": "0.0.0.0:8000"},
        {"Host": "10.0.0.7"},
        LINK,
    ],
)
def test_a_page_of_another_site_is_refused(server: Running, headers: Headers) -> None:
    before = server.ask("GET", "/topics/orders")[2]
    assert produced(server, headers) == 403
    assert server.ask("GET", "/topics/orders")[2] == before


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Sec-Fetch-Site": "none"},
        {"Sec-Fetch-Site": "same-origin", "Origin": "http://OWN"},
        {"Host": "localhost:8000", "Origin": "http://LOCALHOST:8000"},
        {"Host": "sqs.eu-west-1.localhost:8000"},
        {"Host": "[::1]:8000"},
        {"Host": "127.1.2.3"},
        {"Content-Type": "text/plain"},
    ],
)
def test_a_client_that_is_no_page_of_another_site_passes(server: Running, headers: Headers) -> None:
    assert produced(server, headers) == 200


def test_a_client_that_names_no_host_passes(server: Running) -> None:
    assert server.say(b"GET /health HTTP/1.0\r\n\r\n").startswith(b"HTTP/1.1 200")


def test_a_refusal_says_what_is_wrong_and_what_helps(server: Running) -> None:
    status, headers, body = server.ask("GET", "/health", Origin="https://pages.example")
    assert (status, headers["Content-Type"]) == (403, "application/problem+json")
    problem = json.loads(body)
    assert problem["code"] == "Forbidden"
    for word in ("'origin'", "127.0.0.1", "pages.example", "ACCESS=on"):
        assert word in problem["detail"]


def test_a_link_to_a_page_is_followed_and_to_an_action_is_not(server: Running) -> None:
    assert server.ask("GET", "/openapi.json", **LINK)[0] == 200
    assert server.ask("POST", "/topics/orders/messages", PRODUCE, **LINK)[0] == 403
    for dest in ("iframe", "image", "object"):
        assert server.ask("GET", "/openapi.json", **{**LINK, "Sec-Fetch-Dest": dest})[0] == 403
    for path in ("/?Action=ListQueues", "/?%41ction=ListQueues", "/000000000000/orders?Action=PurgeQueue"):
        assert server.ask("GET", path, **LINK)[0] == 403


def test_a_page_reads_nothing_of_the_endpoint_of_the_store(server: Running) -> None:
    port = urlsplit(endpoint_in(server.banner)).port
    store = Running(server.process, f"http://127.0.0.1:{port}")
    target = {"X-Amz-Target": "DynamoDB_20120810.ListTables"}
    assert store.ask("POST", "/", "{}", **target)[0] == 200
    for headers in ({"Host": "pages.example"}, {"Origin": "https://pages.example"}, {"Sec-Fetch-Site": "cross-site"}):
        assert store.ask("POST", "/", "{}", **target, **headers)[0] == 403


def test_where_tokens_are_needed_the_token_alone_counts() -> None:
    with running(ACCESS="on") as server:
        token = next(line.partition("=")[2] for line in server.banner.splitlines() if "TOKEN=" in line)
        headers = {"Host": "queue.example", "Origin": "https://pages.example", "Sec-Fetch-Site": "cross-site"}
        assert server.ask("GET", "/topics", Authorization=f"Bearer {token}", **headers)[0] == 200
        assert server.ask("GET", "/topics", **headers)[0] == 401


@pytest.mark.parametrize(
    ("host", "named"), [("fd00::5", "[fd00::5]"), ("MQ.example", "mq.example"), ("0.0.0.0", "10.0.0.7")]
)
def test_a_server_knows_the_address_that_it_listens_on(host: str, named: str) -> None:
    assert startup.own_names(host).has(named)
    assert not startup.own_names(host).has("pages.example")
