"""An SQS server as a contender: by its JSON protocol over the light client, and by boto3."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from http.client import HTTPException
from itertools import count
from queue import SimpleQueue
from typing import Any

import boto3
from botocore import xform_name
from botocore.config import Config

from benchmarks.http_client import Connection

Ask = Callable[..., Any]
"""Takes the name of an action and its parameters."""

_REGION = "us-east-1"
_TIMEOUT_SECONDS = 30


class Sqs:
    def __init__(self, ask: Ask, queue: str) -> None:
        self._ask = ask
        self._url = ask("CreateQueue", QueueName=queue)["QueueUrl"]

    def send(self, bodies: Sequence[str]) -> None:
        if len(bodies) == 1:
            self._ask("SendMessage", QueueUrl=self._url, MessageBody=bodies[0])
            return
        entries = [{"Id": str(place), "MessageBody": body} for place, body in enumerate(bodies)]
        self._ask("SendMessageBatch", QueueUrl=self._url, Entries=entries)

    def take(self, count: int) -> list[str]:
        answer = self._ask("ReceiveMessage", QueueUrl=self._url, MaxNumberOfMessages=count)
        return [message["ReceiptHandle"] for message in answer.get("Messages", [])]

    def settle(self, receipts: list[str]) -> None:
        if len(receipts) == 1:
            self._ask("DeleteMessage", QueueUrl=self._url, ReceiptHandle=receipts[0])
            return
        entries = [{"Id": str(place), "ReceiptHandle": receipt} for place, receipt in enumerate(receipts)]
        self._ask("DeleteMessageBatch", QueueUrl=self._url, Entries=entries)


class SqsCalls:
    """Requests and replies over two queues. A thread of the callers' process receives all replies and hands each to its
    caller, as clients of such queues do."""

    def __init__(self, port: int, name: str) -> None:
        self._port = port
        ask = by_light_client(port)
        self._requests, self._replies = (
            ask("CreateQueue", QueueName=f"{name}-{kind}")["QueueUrl"] for kind in ("requests", "replies")
        )
        self._waiting: dict[str, SimpleQueue[str]] = {}
        self._ids = count()
        threading.Thread(target=self._receive, daemon=True).start()

    def caller(self) -> Callable[[str], str]:
        ask = by_light_client(self._port)
        heard = SimpleQueue[str]()

        def call(body: str) -> str:
            correlation_id = str(next(self._ids))
            self._waiting[correlation_id] = heard
            ask("SendMessage", QueueUrl=self._requests, MessageBody=f"{correlation_id} {body}")
            return heard.get(timeout=_TIMEOUT_SECONDS)

        return call

    def work(self, stop: threading.Event) -> None:
        ask = by_light_client(self._port)
        while not stop.is_set():
            messages = _received(ask, self._requests)
            for message in messages:
                ask("SendMessage", QueueUrl=self._replies, MessageBody=message["Body"])
            _delete(ask, self._requests, messages)

    def _receive(self) -> None:
        ask = by_light_client(self._port)
        with suppress(OSError, HTTPException):  # until the server stops
            while True:
                messages = _received(ask, self._replies)
                for message in messages:
                    correlation_id, _, body = message["Body"].partition(" ")
                    if heard := self._waiting.pop(correlation_id, None):  # a message may come twice
                        heard.put(body)
                _delete(ask, self._replies, messages)


def _received(ask: Ask, url: str) -> list[dict[str, str]]:
    answer = ask("ReceiveMessage", QueueUrl=url, MaxNumberOfMessages=10, WaitTimeSeconds=1)
    messages: list[dict[str, str]] = answer.get("Messages", [])
    return messages


def _delete(ask: Ask, url: str, messages: Sequence[dict[str, str]]) -> None:
    entries = [{"Id": str(at), "ReceiptHandle": message["ReceiptHandle"]} for at, message in enumerate(messages)]
    if entries:
        ask("DeleteMessageBatch", QueueUrl=url, Entries=entries)


def by_light_client(port: int) -> Ask:
    """Unsigned: moto reads only the service and the region of a signature."""
    scope = f"Credential=test/20261121/{_REGION}/sqs/aws4_request"
    authorization = f"AWS4-HMAC-SHA256 {scope}, SignedHeaders=host, Signature=0"
    connection = Connection(port, is_kept=True, authorization=authorization)

    def ask(action: str, **parameters: Any) -> Any:
        headers = {"content-type": "application/x-amz-json-1.0", "x-amz-target": f"AmazonSQS.{action}"}
        return connection.ask("POST", "/", parameters, headers)

    return ask


def by_boto3(port: int) -> Ask:
    client: Any = boto3.client(
        "sqs",
        endpoint_url=f"http://127.0.0.1:{port}",
        region_name=_REGION,
        aws_access_key_id="test",
        aws_secret_access_key="test",  # noqa: S106 - no server measured here checks it
        config=Config(retries={"total_max_attempts": 1}),
    )

    def ask(action: str, **parameters: Any) -> Any:
        return getattr(client, xform_name(action))(**parameters)

    return ask
