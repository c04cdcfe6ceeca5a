"""The proxy fails requests as set, and counts the faults."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from uuid import uuid4

import pytest
from botocore.exceptions import ConnectionClosedError
from mypy_boto3_dynamodb import DynamoDBClient

from chalicelib.core.store.dynamodb import boto
from tests.load.proxy import ALL, KINDS, NONE, Faults, Proxy
from tests.load.worker import TABLE
from tests.support.emulators import client_of


@contextmanager
def proxied(dynoxide: str, faults: Faults) -> Iterator[tuple[Proxy, DynamoDBClient]]:
    proxy = Proxy(dynoxide, faults, seed=1)
    with proxy.running() as endpoint, closing(client_of(endpoint)) as client:
        yield proxy, client


@pytest.fixture
def direct(dynoxide: str) -> Iterator[DynamoDBClient]:
    with closing(client_of(dynoxide)) as client:
        boto.ensure(client, TABLE)
        yield client


@pytest.fixture
def name() -> str:
    """The key of an item that does not exist."""
    return uuid4().hex


def add_one(client: DynamoDBClient, name: str) -> None:
    client.update_item(
        TableName=TABLE,
        Key={"pk": {"S": name}, "sk": {"S": "a"}},
        UpdateExpression="ADD counted :one",
        ExpressionAttributeValues={":one": {"N": "1"}},
    )


def times_added(client: DynamoDBClient, name: str) -> int:
    item = client.get_item(TableName=TABLE, Key={"pk": {"S": name}, "sk": {"S": "a"}}, ConsistentRead=True).get("Item")
    return int(item["counted"]["N"]) if item else 0


def test_without_faults_all_passes_through_and_connections_are_kept(
    dynoxide: str, direct: DynamoDBClient, name: str
) -> None:
    with proxied(dynoxide, NONE) as (proxy, client):
        for _ in range(3):
            add_one(client, name)
        assert times_added(client, name) == 3
    assert proxy.did.total() == 0
    assert proxy.connections == 1
    assert times_added(direct, name) == 3


@pytest.mark.parametrize(
    ("faults", "at_once", "later"),
    [(Faults(lose_request=1.0), 0, 0), (Faults(lose_reply=1.0), 1, 1), (Faults(late=1.0), 0, 1)],
    ids=["lose_request", "lose_reply", "late"],
)
def test_a_connection_closes_before_or_after_a_request_was_applied(
    dynoxide: str, direct: DynamoDBClient, name: str, faults: Faults, at_once: int, later: int
) -> None:
    with proxied(dynoxide, faults) as (proxy, client):
        with pytest.raises(ConnectionClosedError):
            add_one(client, name)
        assert times_added(direct, name) == at_once
    assert times_added(direct, name) == later
    assert [getattr(faults, kind) for kind in proxy.did] == [1.0]
    assert proxy.did.total() == 1


def test_a_throttled_request_is_not_applied(dynoxide: str, direct: DynamoDBClient, name: str) -> None:
    with (
        proxied(dynoxide, Faults(throttle=1.0)) as (proxy, client),
        pytest.raises(client.exceptions.ProvisionedThroughputExceededException),
    ):
        add_one(client, name)
    assert times_added(direct, name) == 0
    assert proxy.did == {"throttle": 1}


def test_a_zombie_is_applied_once_more_after_its_answer(dynoxide: str, direct: DynamoDBClient, name: str) -> None:
    with proxied(dynoxide, Faults(zombie=1.0)) as (proxy, client):
        add_one(client, name)
        assert times_added(direct, name) == 1
    assert times_added(direct, name) == 2
    assert proxy.did == {"zombie": 1}


def test_a_read_is_never_applied_late(dynoxide: str, direct: DynamoDBClient, name: str) -> None:
    with proxied(dynoxide, Faults(zombie=0.5, late=0.5)) as (proxy, client):
        assert times_added(client, name) == 0
    assert proxy.did.total() == 0


def test_a_delayed_request_takes_its_time_and_is_applied(dynoxide: str, direct: DynamoDBClient, name: str) -> None:
    with proxied(dynoxide, Faults(delay=1.0)) as (proxy, client):
        add_one(client, name)
    assert times_added(direct, name) == 1
    assert proxy.did == {"delay": 1}


def test_every_kind_of_fault_has_its_share(dynoxide: str) -> None:
    proxy = Proxy(dynoxide, ALL, seed=1)
    for _ in range(2_000):
        proxy._luck(is_write=True)
    for kind in KINDS:
        assert getattr(ALL, kind) / 2 < proxy.did[kind] / 2_000 < getattr(ALL, kind) * 2
