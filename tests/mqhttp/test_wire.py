"""The wire of the door for MQ over HTTP: which requests are its own, queries, errors, log lines."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.mqhttp.client import Mq, Refused, message, receipt_handles, refusal_in
from tests.support.client import Client, Group
from tests.support.troubled_store import TroubledStore, broken, unavailable

PATH = "/topics/orders/messages"


def test_without_the_version_a_request_is_for_the_routes(mq: Mq, client: Client, group: Group) -> None:
    assert client.ask("POST", PATH, {"messages": [{"body": "a"}]}).status == 200
    assert client.get(PATH).status == 200
    refused = client.ask("DELETE", PATH)
    assert refused.problem == (405, "MethodNotAllowed")
    assert refused.headers["Allow"] == "GET, HEAD, POST"
    assert mq.ask("GET", query={"consumer": "billing"}).status == 200


def test_nothing_of_the_door_is_in_the_document(client: Client) -> None:
    assert "x-mq" not in json.dumps(client.get("/openapi.json").json).lower()


BILLING = {"consumer": "billing"}


@pytest.mark.parametrize(
    ("method", "query", "code", "text"),
    [
        ("GET", {}, "InvalidArgument", "parameter 'consumer' must be given"),
        ("DELETE", {"ns": "x"}, "InvalidArgument", "parameter 'consumer' must be given"),
        ("GET", {"consumer": "a b"}, "InvalidArgument", "group name 'a b' must match"),
        (
            "GET",
            {**BILLING, "numOfMessages": "0"},
            "InvalidArgument",
            "'numOfMessages' must be an integer from 1 to 16",
        ),
        (
            "GET",
            {**BILLING, "numOfMessages": "17"},
            "InvalidArgument",
            "'numOfMessages' must be an integer from 1 to 16",
        ),
        (
            "GET",
            {**BILLING, "numOfMessages": "x"},
            "InvalidArgument",
            "'numOfMessages' must be an integer from 1 to 16",
        ),
        ("GET", {**BILLING, "waitseconds": "31"}, "InvalidArgument", "'waitseconds' must be an integer from 0 to 30"),
        ("GET", {**BILLING, "waitseconds": "-1"}, "InvalidArgument", "'waitseconds' must be an integer from 0 to 30"),
        ("GET", {**BILLING, "trans": "x"}, "InvalidArgument", "'trans' must be one of 'order', 'pop', or missing"),
        (
            "DELETE",
            {**BILLING, "trans": ""},
            "InvalidArgument",
            "'trans' must be one of 'commit', 'rollback', or missing",
        ),
        ("GET", {**BILLING, "trans": "pop", "tag": "a"}, "InvalidArgument", "'tag' is not known here"),
        ("GET", {**BILLING, "max": "1"}, "InvalidQueryString", "parameter 'max' is not known here"),
        ("POST", BILLING, "InvalidQueryString", "parameter 'consumer' is not known here"),
        ("DELETE", {**BILLING, "tag": "a"}, "InvalidQueryString", "parameter 'tag' is not known here"),
        ("GET", {"consumer": ["a", "b"]}, "InvalidQueryString", "parameter 'consumer' must be given once, not 2 times"),
        ("GET", {**BILLING, "tag": b"\xc4\xe3"}, "InvalidQueryString", "parameter 'tag' must be UTF-8"),
        ("PUT", {}, "InvalidArgument", "the method must be one of POST, GET, DELETE; it is 'PUT'"),
    ],
)
def test_what_is_wrong_with_a_query_is_named(
    mq: Mq, group: Group, method: str, query: Any, code: str, text: str
) -> None:
    refused = mq.refused(method, receipt_handles("a") if method == "DELETE" else b"", query)
    assert (refused.status, refused.code) == (400, code)
    assert text in refused.message
    assert group.progress()["filter"] is None


@pytest.mark.parametrize("path", ["/", "/topics", "/topics/orders", "/topics//messages", PATH + "/", PATH + "/x", "/x"])
def test_there_is_one_path(mq: Mq, path: str) -> None:
    text = f"the path must be '/topics/<topic>/messages'; it is '{path}'"
    assert mq.refused("GET", path=path) == Refused(400, "InvalidArgument", text)


def test_a_consume_has_no_body(mq: Mq) -> None:
    assert mq.refused("GET", b"<a/>", BILLING).code == "InvalidArgument"


def test_parameters_come_in_any_order(mq: Mq) -> None:
    mq.publish("a", "x")
    query = [("tag", "x"), ("waitseconds", "0"), ("ns", "any"), ("numOfMessages", "1"), ("consumer", "billing")]
    assert mq.ask("GET", query=query).status == 200


def test_a_deployment_can_be_an_instance(mq: Mq, monkeypatch: pytest.MonkeyPatch) -> None:
    mq.publish("a")
    monkeypatch.setenv("DECANT_MQ_INSTANCE", "MQ_INST_1")
    for query in (BILLING, {**BILLING, "ns": "MQ_INST_2"}):
        refused = mq.refused("GET", query=query)
        assert (refused.status, refused.code) == (400, "InvalidArgument")
        assert "parameter 'ns' must be the instance of this deployment" in refused.message
    assert len(mq.consume(ns="MQ_INST_1")) == 1


def test_errors_say_where_they_come_from(mq: Mq) -> None:
    hosts: list[tuple[dict[str, Any], bytes]] = [
        ({}, b"http://mq.test"),
        ({"host": "mq.example:8000", "x-forwarded-proto": "https"}, b"https://mq.example:8000"),
        ({"host": "<&"}, b"http://localhost"),
    ]
    for headers, host in hosts:
        assert b"<HostId>" + host + b"</HostId>" in mq.ask("GET", **headers).raw


def test_what_xml_cannot_hold_is_replaced_in_errors(mq: Mq) -> None:
    refused = mq.refused("GET", query={"consumer": "a\uffff<&"})
    assert "group name 'a\ufffd<&' must match" in refused.message


@pytest.mark.parametrize(("trouble", "status"), [(unavailable("write"), 503), (broken("write"), 500)])
def test_trouble_of_the_store_is_an_error_of_the_server(trouble: Any, status: int) -> None:
    store = TroubledStore()
    client = Client(store)
    client.topic("orders").group("billing")
    store.before = trouble
    answer = Mq(client).ask("POST", message("a"))
    assert refusal_in(answer).code == "InternalServerError"
    assert answer.status == status
    assert answer.headers.get("Retry-After") == ("1" if status == 503 else None)
    assert b"broken" not in answer.raw


def test_each_call_writes_a_line(mq: Mq, client: Client) -> None:
    lines: list[dict[str, Any]] = []
    client.api.service.telemetry.log_to(lambda line: lines.append(json.loads(line)), "decant-dev")
    mq.publish("a")
    [taken] = mq.consume()
    mq.delete(taken["ReceiptHandle"])
    mq.refused("GET", query={"consumer": "none"})
    mq.ask("PUT")
    told = [
        (line["operation"], line.get("topic"), line.get("group"), line["status"], line.get("code")) for line in lines
    ]
    assert told == [
        ("mq_publish", "orders", None, 201, None),
        ("mq_consume", "orders", "billing", 200, None),
        ("mq_ack", "orders", "billing", 204, None),
        ("mq_consume", "orders", "none", 404, "GroupNotFound"),
        ("mq_unknown", "orders", None, 400, "InvalidArgument"),
    ]


@pytest.mark.parametrize(("agent", "end"), [("mq-python-sdk/1.0.3", "/"), ("mq-java-sdk/1.0.3(Linux/6)", "")])
def test_an_error_has_the_namespace_that_its_sdk_knows(mq: Mq, agent: str, end: str) -> None:
    headers: dict[str, Any] = {"user-agent": agent}
    answer = mq.ask("GET", query={"consumer": "none"}, **headers)
    assert f'<Error xmlns="http://mq.aliyuncs.com/doc/v1{end}">' in answer.raw.decode()
