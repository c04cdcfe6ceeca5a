"""Requests as SDKs sent them, all in one order, with the keys `AKIDEXAMPLE` and `a-secret-key`: boto3 1.44, the SDKs
for JavaScript 3.1168, Java 2.33 and Go (v2) 1.42, AWS CLI 1.46, and 1.29.80, the last one in the query protocol."""

from __future__ import annotations

import json
import re
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.model import ListShape, MapShape, Shape, StructureShape

from chalicelib import wiring
from chalicelib.doors.sqs.actions import ACTIONS
from chalicelib.doors.sqs.sigv4 import signed
from local.server import request_of
from tests.sqs.query_client import QuerySqs
from tests.support.client import Client

FOLDER = Path(__file__).parent / "recorded"
SDKS = sorted(path.stem for path in FOLDER.iterdir())

REFUSED = {
    "GetQueueUrl": "AWS.SimpleQueueService.NonExistentQueue",
    "CancelMessageMoveTask": "ResourceNotFoundException",
}
TYPES = {"string": str, "integer": int, "long": int, "boolean": bool, "blob": str}
SERVICE = boto3.client("sqs", region_name="us-east-1").meta.service_model

_HANDLE = re.compile(r"\bMz[\w-]{60,}")


def recorded(sdk: str) -> list[Any]:
    requests: list[Any] = json.loads((FOLDER / f"{sdk}.json").read_text())
    return requests


@cache
def answers(sdk: str) -> list[tuple[str, str, Any]]:
    """The name of each action, the code of its error, and its answer in JSON. Handles were of another deployment: in
    their order, they become those that are received here."""
    client, requests = Client(), recorded(sdk)
    theirs, own, found = dict.fromkeys(_HANDLE.findall(str(requests))), list[str](), []
    for sent in requests:
        body, target = sent["body"], sent["headers"].get("x-amz-target", "")
        for handle, received in zip(theirs, own, strict=False):
            body = body.replace(handle, received)
        answer = client.ask(sent["method"], sent["target"], raw=body.encode(), **sent["headers"])
        answer = answer if target else QuerySqs(client).translated(answer)
        own += [message["ReceiptHandle"] for message in (answer.json or {}).get("Messages", ())]
        action = target.partition(".")[2] or body.partition("&")[0].removeprefix("Action=")
        found.append((action, answer.headers.get("x-amzn-query-error", "").partition(";")[0], answer.json))
    wiring.use(None)
    return found


@pytest.mark.parametrize("sdk", SDKS)
def test_a_signature_is_that_of_its_secret(sdk: str) -> None:
    for sent in recorded(sdk):
        made_at = datetime.strptime(sent["headers"]["x-amz-date"], "%Y%m%dT%H%M%S%z")
        request = request_of(sent["method"], sent["target"], sent["headers"], sent["body"].encode())
        found = signed(request, "us-east-1", int(made_at.timestamp() * 1000))
        assert found.access_key_id == "AKIDEXAMPLE"
        assert found.is_proved_by("a-secret-key")
        assert not found.is_proved_by("another-secret-key")


@pytest.mark.parametrize("sdk", SDKS)
def test_every_sdk_names_what_it_signs_in_order_and_once(sdk: str) -> None:
    for sent in recorded(sdk):
        [names] = re.findall("SignedHeaders=([^,]*)", sent["headers"]["authorization"])
        assert names.split(";") == sorted({*names.lower().split(";")})


@pytest.mark.parametrize("sdk", [sdk for sdk in SDKS if sdk != "boto3"])
def test_every_sdk_gets_the_same_answers(sdk: str) -> None:
    assert answers(sdk) == answers("boto3")


def test_every_action_is_answered_as_its_sdk_expects() -> None:
    found = answers("boto3")
    assert {action for action, _, _ in found} == {*SERVICE.operation_names}
    refused = {action: code for action, code, _ in found if code}
    unknown = dict.fromkeys({*SERVICE.operation_names} - ACTIONS.keys(), "InvalidAction")
    assert refused == {**REFUSED, **unknown}
    for action, code, answer in found:
        if not code:
            _check(SERVICE.operation_model(action).output_shape, answer or {}, action)
    sent = next(answer for action, _, answer in found if action == "SendMessage")
    received = next(answer for action, _, answer in found if action == "ReceiveMessage")["Messages"]
    assert [message["Body"] for message in received] == ['grüß "x" <&> \r\n+%', "1", "3"]
    assert received[0]["MD5OfMessageAttributes"] == sent["MD5OfMessageAttributes"]


def _check(shape: Shape | None, value: Any, path: str) -> None:
    """The value has the type of its shape, and no members that the shape lacks."""
    if isinstance(shape, StructureShape):
        assert value.keys() <= shape.members.keys(), path
        for name, member in value.items():
            _check(shape.members[name], member, f"{path}.{name}")
    elif isinstance(shape, ListShape):
        for each in value:
            _check(shape.member, each, path)
    elif isinstance(shape, MapShape):
        for name, each in value.items():
            _check(shape.value, each, f"{path}.{name}")
    else:
        assert type(value) is TYPES[shape.type_name] if shape else not value, path
