"""AWS inside this process: moto, with one lock around its DynamoDB, whose updates read, then write, and would get
lost."""

from __future__ import annotations

import functools
import os
import threading
from contextlib import suppress
from typing import Any

import boto3
from moto import mock_aws
from moto.dynamodb.responses import DynamoHandler

from chalicelib.core.base.runtime import system
from chalicelib.core.store.dynamodb import boto
from chalicelib.core.store.dynamodb.store import DynamoStore


@functools.cache
def start() -> None:
    """Starts it once, until the process ends. Clients that are made afterwards use it."""
    if "AWS_ACCESS_KEY_ID" not in os.environ:
        os.environ.update(AWS_ACCESS_KEY_ID="test", AWS_SECRET_ACCESS_KEY="test")
    os.environ.setdefault("AWS_DEFAULT_REGION", os.environ.get("AWS_REGION", "us-east-1"))
    mock_aws(config={"core": {"mock_credentials": False}}).start()
    act, lock = DynamoHandler.call_action, threading.Lock()

    def one_at_a_time(handler: DynamoHandler) -> Any:
        with lock:
            return act(handler)

    DynamoHandler.call_action = one_at_a_time  # type: ignore[method-assign]


@functools.cache
def store(name: str) -> DynamoStore:
    """A store on a table and a bucket of this name."""
    start()
    boto3.client("s3").create_bucket(Bucket=name)
    made = DynamoStore(boto.Boto(boto.connect("dynamodb")), name, system(), boto.connect("s3"), name)
    empty(name)
    return made


def empty(name: str) -> None:
    """Makes the table anew. moto sorts a whole table for a query, and copies it for a transaction: keep tables
    small."""
    client = _client()
    with suppress(client.exceptions.ResourceNotFoundException):
        client.delete_table(TableName=name)
    boto.ensure(client, name)


@functools.cache
def _client() -> Any:
    start()
    return boto3.client("dynamodb")
