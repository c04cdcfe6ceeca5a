"""`lambda:STACK` invokes functions in place of HTTP."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError, NoCredentialsError, ReadTimeoutError

import app
from chalicelib import wiring
from decant import (
    AsyncDecant,
    Decant,
    Forbidden,
    NotDecant,
    OutcomeUnknown,
    SettingError,
    TopicNotFound,
    Unreachable,
)
from decant.functions import FUNCTIONS
from tests.support.client import Client


class Lambda:
    """Plays Lambda: invokes what it is given."""

    def __init__(self, invoked: Any) -> None:
        self.invoked = invoked
        self.calls: list[tuple[str, Any]] = []
        self.configs: list[Any] = []

    def client(self, name: str, config: Any) -> Lambda:
        assert name == "lambda"
        self.configs.append(config)
        return self

    def invoke(self, FunctionName: str, Payload: bytes) -> Any:  # noqa: N803 - names of AWS
        self.calls.append((FunctionName, json.loads(Payload)))
        result = self.invoked(FunctionName, json.loads(Payload))
        return result if "Payload" in result else {"Payload": io.BytesIO(json.dumps(result).encode())}


def played(monkeypatch: pytest.MonkeyPatch, invoked: Any) -> Lambda:
    aws = Lambda(invoked)
    monkeypatch.setattr("boto3.client", aws.client)
    return aws


def raises(error: Exception) -> Any:
    def invoked(_function: str, _event: Any) -> Any:
        raise error

    return invoked


def client_error(code: str) -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": "so"}}, "Invoke")


def test_each_operation_with_a_function_is_invoked_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    aws = played(monkeypatch, lambda *_: {"messages": [{"message_id": "m", "queue": 0, "offset": 0}]})
    Decant("lambda:decant-prod").send("orders", "hello", key="k")
    Decant("lambda:decant-prod", "dct_t").api.pop("orders", "billing", wait_ms=5)
    assert aws.calls == [
        ("decant-prod-produce", {"messages": [{"body": "hello", "key": "k"}], "topic": "orders"}),
        ("decant-prod-pop", {"wait_ms": 5, "topic": "orders", "group": "billing", "token": "dct_t"}),
    ]


def test_without_boto3_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "boto3", None)
    with pytest.raises(SettingError, match="pip install boto3"):
        Decant("lambda:decant-prod").send("orders", "hello")


def test_boto3_repeats_nothing_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    aws = played(monkeypatch, lambda *_: {"messages": [], "acked": 0, "failed": []})
    Decant("lambda:decant-prod").api.pop("orders", "billing")
    assert [config.retries for config in aws.configs] == [{"total_max_attempts": 1}]


@pytest.fixture
def _app() -> Iterator[None]:
    wiring.use(Client().api)
    yield
    wiring.use(None)


@pytest.mark.usefixtures("_app")
def test_the_functions_are_those_of_the_app(monkeypatch: pytest.MonkeyPatch) -> None:
    played(monkeypatch, lambda function, event: getattr(app, function.rpartition("-")[2])(event, None))
    mq = Decant("lambda:decant-prod")
    assert all(callable(getattr(app, name)) for name in FUNCTIONS)
    with pytest.raises(TopicNotFound, match="nowhere"):
        mq.send("nowhere", "hello")


def test_asyncio_invokes_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    import asyncio

    aws = played(monkeypatch, lambda *_: {"acked": 1, "failed": []})

    async def main() -> Any:
        async with AsyncDecant("lambda:decant-prod") as mq:
            return await mq.api.ack("orders", "billing", receipts=["r"])

    assert asyncio.run(main()) == {"acked": 1, "failed": []}
    assert aws.calls[0][0] == "decant-prod-ack"


def test_an_operation_without_a_function_says_so() -> None:
    with pytest.raises(SettingError, match="get_topic has no function"):
        Decant("lambda:decant-prod").api.get_topic("orders")


@pytest.mark.parametrize(
    ("error", "kind", "text"),
    [
        (client_error("AccessDeniedException"), Forbidden, "AccessDenied"),
        (client_error("ResourceNotFoundException"), NotDecant, "no function decant-prod-produce"),
        (NoCredentialsError(), SettingError, "credentials"),
        (EndpointConnectionError(endpoint_url="https://x"), Unreachable, "https://x"),
        (ReadTimeoutError(endpoint_url="https://x"), OutcomeUnknown, "timeout"),
    ],
)
def test_what_aws_refuses_is_one_clear_error(
    monkeypatch: pytest.MonkeyPatch, error: Exception, kind: type[Exception], text: str
) -> None:
    played(monkeypatch, raises(error))
    with pytest.raises(kind, match=text):
        Decant("lambda:decant-prod", timeout=0.2).send("orders", "hello")


def test_a_throttled_invocation_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [
        raises(client_error("TooManyRequestsException")),
        lambda *_: {"messages": [{"message_id": "m", "queue": 0, "offset": 0}]},
    ]
    aws = played(monkeypatch, lambda *event: answers.pop(0)(*event))
    assert Decant("lambda:decant-prod").send("orders", "hello").id == "m"
    assert len(aws.calls) == 2


def test_a_function_that_fails_or_runs_out_of_time_may_have_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    failed = {"FunctionError": "Unhandled", "Payload": io.BytesIO(b'{"errorMessage": "Task timed out"}')}
    aws = played(monkeypatch, lambda *_: failed)
    with pytest.raises(OutcomeUnknown, match="Task timed out"):
        Decant("lambda:decant-prod").send("orders", "hello")
    assert len(aws.calls) == 1


@pytest.mark.parametrize("payload", [b"null", b"[]", b"rubbish", b'{"error": 1}'])
def test_a_function_of_somebody_else_is_named(monkeypatch: pytest.MonkeyPatch, payload: bytes) -> None:
    played(monkeypatch, lambda *_: {"Payload": io.BytesIO(payload)})
    with pytest.raises(NotDecant, match="lambda:decant-prod"):
        Decant("lambda:decant-prod").send("orders", "hello")
