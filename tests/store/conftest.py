"""The stores under contract. Each test has a partition of its own, so one table serves all of them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import uuid4

import pytest

from chalicelib.core.base.limits import READ_TIMEOUT_MS
from chalicelib.core.base.runtime import system
from chalicelib.core.store import Store
from chalicelib.core.store.dynamodb import boto, client
from chalicelib.core.store.dynamodb.requests import run
from chalicelib.core.store.dynamodb.store import DynamoStore
from chalicelib.core.table.writes import Key
from local.memory.store import MemoryStore
from tests.support import moto_aws

TABLE = "contract"


@pytest.fixture(scope="session")
def memory_store() -> Store:
    return MemoryStore(keeps_blobs=True)


@pytest.fixture
def moto_store() -> Store:
    """With an empty table for each test."""
    moto_aws.empty(TABLE)
    return moto_aws.store(TABLE)


@pytest.fixture(scope="session")
def dynoxide_store(dynoxide: str) -> Store:
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("AWS_ENDPOINT_URL_DYNAMODB", dynoxide)
        environment.setenv("AWS_DEFAULT_REGION", "us-east-1")
        environment.setenv("AWS_ACCESS_KEY_ID", "test")
        environment.setenv("AWS_SECRET_ACCESS_KEY", "test")
        boto.ensure(boto.connect("dynamodb"), TABLE)
        return DynamoStore(client.open_client(system(), os.environ), TABLE, system())


def transact(store: DynamoStore, items: Sequence[Mapping[str, Any]]) -> None:
    """A transaction of the owner of the table, past the store. Raises Failed."""
    run([store._client.ask("TransactWriteItems", {"TransactItems": items}, READ_TIMEOUT_MS)], system())


@pytest.fixture(params=["memory", "moto", "dynoxide"])
def store(request: pytest.FixtureRequest) -> Store:
    found: Store = request.getfixturevalue(f"{request.param}_store")
    return found


@pytest.fixture
def key() -> Key:
    """The key of an absent item, in a partition that no other test uses."""
    return Key(uuid4().hex, "a")
