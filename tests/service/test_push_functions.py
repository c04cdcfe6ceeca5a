"""Functions that are pushed to, and the push's own function, over boto3's client of Lambda."""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import boto3
import pytest
from botocore.exceptions import EndpointConnectionError
from botocore.response import StreamingBody
from botocore.stub import Stubber

from chalicelib import wiring
from chalicelib.push import outside
from chalicelib.push.outside import ConsumerResponse, Functions


@pytest.fixture
def lambda_client() -> Any:
    return boto3.client("lambda", "us-east-1", aws_access_key_id="a", aws_secret_access_key="b")


@pytest.fixture
def stub(lambda_client: Any) -> Iterator[Stubber]:
    with Stubber(lambda_client) as stubber:
        yield stubber
        stubber.assert_no_pending_responses()


@pytest.fixture
def calls(lambda_client: Any, stub: Stubber) -> Functions:
    return Functions(lambda _timeout_ms: lambda_client, "decant-dev-push")


def returns(stub: Stubber, returned: bytes, **more: Any) -> None:
    body = StreamingBody(io.BytesIO(returned), len(returned))
    expected = {"FunctionName": "bill", "InvocationType": "RequestResponse", "Payload": b"{}"}
    stub.add_response("invoke", {"StatusCode": 200, "Payload": body, **more}, expected)


@pytest.mark.parametrize("returned", [b"null", b'{"batchItemFailures": []}', b""])
def test_what_a_function_returns_is_the_answer(stub: Stubber, calls: Functions, returned: bytes) -> None:
    returns(stub, returned)
    assert calls.invoke("bill", b"{}", 500) == ConsumerResponse(200, returned)


@pytest.mark.parametrize(
    ("returned", "told"),
    [
        (b'{"errorMessage": "no stock", "errorType": "ValueError"}', "no stock"),
        (b'{"errorType": "x"}', '"{'),
        (b"[]", '"[]"'),
        (b"\xff", "\ufffd"),
    ],
)
def test_a_function_that_raises_gave_no_answer(stub: Stubber, calls: Functions, returned: bytes, told: str) -> None:
    returns(stub, returned, FunctionError="Unhandled")
    answer = calls.invoke("bill", b"{}", 500)
    assert answer.status is None
    assert answer.trouble.startswith("the function failed: ")
    assert told in answer.trouble


def test_a_function_that_cannot_be_called_gave_no_answer(stub: Stubber, calls: Functions) -> None:
    stub.add_client_error("invoke", "TooManyRequestsException", "Rate Exceeded.", 429)
    assert "Rate Exceeded" in calls.invoke("bill", b"{}", 500).trouble


UNREACHED = EndpointConnectionError(endpoint_url="https://lambda")


def out_of_reach(error: Exception) -> Functions:
    def invoke(**_asked: Any) -> Any:
        raise error

    return Functions(lambda _timeout_ms: SimpleNamespace(invoke=invoke), "decant-dev-push")


@pytest.mark.parametrize("error", [UNREACHED, OSError("cut off")])
def test_lambda_that_is_not_reached_gave_no_answer(error: Exception) -> None:
    assert out_of_reach(error).invoke("bill", b"{}", 500).trouble == f"no answer: {error}"


def test_what_is_too_long_is_no_answer(stub: Stubber, calls: Functions, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outside, "ANSWER_BYTES_MAX", 3)
    returns(stub, b"123")
    assert calls.invoke("bill", b"{}", 500) == ConsumerResponse(200, b"123")
    returns(stub, b"null")
    assert calls.invoke("bill", b"{}", 500).trouble == "the function returned more than 3 bytes"


def test_each_time_out_has_a_client_of_its_own() -> None:
    made: list[int] = []

    def connect(timeout_ms: int) -> Any:
        made.append(timeout_ms)
        client = boto3.client("lambda", "us-east-1", aws_access_key_id="a", aws_secret_access_key="b")
        Stubber(client).activate()
        return client

    calls = Functions(connect, None)
    for timeout_ms in (500, 700, 500):
        assert calls.invoke("bill", b"{}", timeout_ms).status is None
    assert made == [500, 700]


def test_first_calls_at_once_connect_one_after_another() -> None:
    """Connecting imports boto3, and one that imports it meanwhile may see half of it."""
    together, met = threading.Barrier(2), list[bool]()

    def connect(_timeout_ms: int) -> Any:
        try:
            together.wait(timeout=0.1)
            met.append(True)
        except threading.BrokenBarrierError:
            met.append(False)
        raise EndpointConnectionError(endpoint_url="https://lambda")

    calls = Functions(connect, None)
    callers = [threading.Thread(target=calls.invoke, args=["bill", b"{}", timeout_ms]) for timeout_ms in (500, 700)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert met == [False, False]


def test_a_wake_invokes_the_push_and_does_not_wait(stub: Stubber, calls: Functions) -> None:
    event = json.dumps({"topic": "orders", "is_staying": False}, separators=(",", ":")).encode()
    expected = {"FunctionName": "decant-dev-push", "InvocationType": "Event", "Payload": event}
    stub.add_response("invoke", {"StatusCode": 202}, expected)
    calls.wake("orders", False)


def test_a_wake_that_fails_is_left_to_the_schedule(
    stub: Stubber, calls: Functions, caplog: pytest.LogCaptureFixture
) -> None:
    stub.add_client_error("invoke", "ResourceNotFoundException", "no such function", 404)
    calls.wake("orders", False)
    out_of_reach(UNREACHED).wake("orders", False)
    assert caplog.text.count("the push of topic orders was not woken") == 2


def test_without_a_function_for_the_push_nobody_is_woken() -> None:
    Functions(lambda _timeout_ms: pytest.fail("called"), None).wake("orders", False)


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({}, None),
        ({"AWS_LAMBDA_FUNCTION_NAME": "decant-dev"}, None),
        ({"AWS_LAMBDA_FUNCTION_NAME": "decant-dev", "DECANT_PUSH_FUNCTION": "calls"}, "calls"),
    ],
)
def test_the_push_that_the_stage_names_is_woken(
    monkeypatch: pytest.MonkeyPatch, settings: dict[str, str], name: str | None
) -> None:
    for variable in ("AWS_LAMBDA_FUNCTION_NAME", "DECANT_PUSH_FUNCTION"):
        monkeypatch.delenv(variable, raising=False)
    for variable, value in settings.items():
        monkeypatch.setenv(variable, value)
    assert wiring.settings.push_function == name


def test_beside_a_store_in_memory_there_are_no_functions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DECANT_STORE", "memory")
    answer = wiring.outside_of(wiring.settings, wiring.parts).invoke("bill", b"{}", 1_000)
    assert answer == ConsumerResponse.missing("there are no functions beside a store in memory")


def test_a_deployed_function_has_no_store_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_LAMBDA_FUNCTION_NAME", "decant-prod")
    monkeypatch.setenv("DECANT_STORE", "memory")
    with pytest.raises(ValueError, match="DECANT_STORE must be one of dynamodb; it is 'memory'"):
        wiring.open_store(wiring.settings, wiring.parts)
