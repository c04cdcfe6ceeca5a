"""Requests as the SDKs for Python (`mq_http_sdk` 1.0.3), Node (`@aliyunmq/mq-http-sdk` 1.0.4) and Java
(`com.aliyun.mq:mq-http-sdk` 1.0.3) sent them, with the keys `AKIDEXAMPLE` and `a-secret-key`. The receipt handles are
of another deployment."""

from __future__ import annotations

import json
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

import pytest

from chalicelib import wiring
from chalicelib.core.base.limits import SECOND_MS
from chalicelib.doors.http.door import respond
from chalicelib.doors.mqhttp.signatures import signed
from local.server import request_of
from tests.mqhttp.client import elements_of, properties_of, root_of
from tests.support.client import Answer, Client

SDKS = ("python", "node", "java")

UNKNOWN = "ReceiptHandleError"
NO_HALF = "MessageNotExist"
ANSWERS = [
    ("publish", 201),
    ("publish", 201),
    ("consume", 200),
    ("ack", UNKNOWN),
    ("consume in order", 200),
    ("publish a half message", 201),
    ("consume a half message", 404),
    ("commit", NO_HALF),
    ("publish a half message", 201),
    ("roll back", NO_HALF),
]


def recorded(sdk: str) -> list[Any]:
    requests: list[Any] = json.loads((Path(__file__).parent / f"recorded_{sdk}.json").read_text())
    return requests


@pytest.fixture
def client() -> Any:
    client = Client()
    topic = client.topic("orders")
    topic.group("GID_x")
    topic.group("GID_o", ordered=True)
    yield client
    wiring.use(None)


def replayed(client: Client, sent: Any) -> Answer:
    wiring.use(client.api)
    client.clock.sleep(1)
    response = respond(request_of(sent["method"], sent["target"], sent["headers"], sent["body"].encode()))
    return Answer(response.status, response.headers, response.text.encode())


@pytest.mark.parametrize("sdk", SDKS)
def test_each_request_is_understood(client: Client, sdk: str) -> None:
    requests = recorded(sdk)
    assert len(requests) == len(ANSWERS)
    for (call, expected), sent in zip(ANSWERS, requests, strict=True):
        answer = replayed(client, sent)
        if isinstance(expected, str):
            codes = {elements_of(each)["ErrorCode"] for each in root_of(answer, "Errors")}
            assert (answer.status, codes) == (404, {expected}), call
        else:
            assert answer.status == expected, (call, answer)


@pytest.mark.parametrize("sdk", SDKS)
@pytest.mark.parametrize("raw_query", [True, False], ids=["as sent", "as a front tells it"])
def test_each_signature_is_right(sdk: str, raw_query: bool) -> None:
    for sent in recorded(sdk):
        request = request_of(sent["method"], sent["target"], sent["headers"], sent["body"].encode())
        told = request if raw_query else request._replace(query=sorted(request.query), raw_query=None)
        signature = signed(told, sent_at_ms(sent))
        assert signature.access_key_id == "AKIDEXAMPLE"
        assert [signature.is_proved_by(secret) for secret in ("a-secret-key", "another")] == [True, False]


def sent_at_ms(sent: Any) -> int:
    return int(parsedate_to_datetime(sent["headers"]["date"]).timestamp()) * SECOND_MS


@pytest.mark.parametrize("sdk", SDKS)
def test_a_recorded_message_is_read_as_it_was_meant(client: Client, sdk: str) -> None:
    publish, _, consume, *_ = recorded(sdk)
    replayed(client, publish)
    [taken] = map(elements_of, root_of(replayed(client, consume), "Messages"))
    assert taken["MessageBody"] == "grüß \r\n<&>]]>"
    assert taken["MessageTag"] == "paid"
    assert properties_of(taken) == {"KEYS": "k", "a": "b", "__SHARDINGKEY": "s"}
