"""The embedded store answers as unmended moto does, keeps every update, and forgets what it need not remember."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from typing import Any, cast
from uuid import uuid4

import boto3
import pytest
from botocore.exceptions import ClientError
from hypothesis import given, settings
from hypothesis import strategies as st
from moto.dynamodb.models import dynamodb_backends
from moto.dynamodb.models.dynamo_type import DynamoType, Item
from moto.dynamodb.models.table import Table
from mypy_boto3_dynamodb import DynamoDBClient

from local import embedded

SCHEMA: Any = {
    "KeySchema": [{"AttributeName": "pk", "KeyType": "HASH"}, {"AttributeName": "sk", "KeyType": "RANGE"}],
    "AttributeDefinitions": [{"AttributeName": name, "AttributeType": "S"} for name in ("pk", "sk")],
    "BillingMode": "PAY_PER_REQUEST",
}
SORT_KEYS = st.sampled_from("abcdefghij")
SIZES = st.sampled_from([1, 1, 1, 200_000, 390_000])


@pytest.fixture
def client() -> DynamoDBClient:
    embedded.start()
    client: DynamoDBClient = boto3.client("dynamodb")
    return client


@pytest.fixture
def table(client: DynamoDBClient) -> Iterator[str]:
    name = f"t-{uuid4()}"
    client.create_table(TableName=name, **SCHEMA)
    yield name
    client.delete_table(TableName=name)


def model(name: str) -> Table:
    return next(region.tables[name] for region in dynamodb_backends["123456789012"].values() if name in region.tables)


def key(sk: str, pk: str = "p") -> dict[str, Any]:
    return {"pk": {"S": pk}, "sk": {"S": sk}}


@st.composite
def queries(draw: st.DrawFn) -> tuple[Any, ...]:
    low, high = sorted((draw(SORT_KEYS), draw(SORT_KEYS)))
    start = draw(st.none() | st.builds(key, SORT_KEYS, st.sampled_from(["p", "p", "other"])))
    limit = draw(st.none() | st.integers(1, 6))
    bounds = [DynamoType({"S": low}), DynamoType({"S": high})]
    return DynamoType({"S": "p"}), "BETWEEN", bounds, limit, start, draw(st.booleans()), [], None


@settings(max_examples=400, deadline=None)
@given(st.dictionaries(SORT_KEYS, SIZES), st.sets(SORT_KEYS), st.lists(queries(), min_size=1, max_size=4))
def test_a_query_answers_as_it_would_on_the_whole_table(
    sizes: dict[str, int], removed: set[str], asked: list[tuple[Any, ...]]
) -> None:
    embedded.start()
    table = cast("Any", Table)("t", "123456789012", "us-east-1", SCHEMA["KeySchema"], SCHEMA["AttributeDefinitions"])
    for sk, size in sizes.items():
        table.put_item({**key(sk), "data": {"S": "x" * size}})
        table.put_item({**key(sk, pk="other"), "data": {"S": "x"}})
        table.query(*asked[0])
    for sk in removed:
        table.delete_item(DynamoType({"S": "p"}), DynamoType({"S": sk}))
    for query in asked:
        assert table.query(*query) == Table.query.__wrapped__(table, *query)  # type: ignore[attr-defined]


@st.composite
def scans(draw: st.DrawFn) -> tuple[Any, ...]:
    start = draw(st.none() | st.builds(key, SORT_KEYS, st.sampled_from(["p", "other", "third"])))
    segments = draw(st.sampled_from([(None, None), (0, 2), (1, 2)]))
    return {}, draw(st.none() | st.integers(1, 6)), start, None, None, False, None, segments


@settings(max_examples=300, deadline=None)
@given(st.dictionaries(SORT_KEYS, SIZES), st.sets(SORT_KEYS), st.lists(scans(), min_size=1, max_size=4))
def test_a_scan_answers_as_it_would_on_the_whole_table(
    sizes: dict[str, int], removed: set[str], asked: list[tuple[Any, ...]]
) -> None:
    embedded.start()
    table = cast("Any", Table)("t", "123456789012", "us-east-1", SCHEMA["KeySchema"], SCHEMA["AttributeDefinitions"])
    for sk, size in sizes.items():
        for pk in ("p", "other", "third"):
            table.put_item({**key(sk, pk), "data": {"S": "x" * size}})
    for sk in removed:
        table.delete_item(DynamoType({"S": "p"}), DynamoType({"S": sk}))
    for scan in asked:
        whole = Table.scan.__wrapped__(table, *scan)  # type: ignore[attr-defined]
        assert table.scan(*scan) == whole


def test_pages_of_a_query_follow_each_other(client: DynamoDBClient, table: str) -> None:
    for number in random.sample(range(25), 25):
        client.put_item(TableName=table, Item=key(f"{number:02d}"))
    pages = client.get_paginator("query").paginate(
        TableName=table,
        KeyConditionExpression="pk = :pk AND sk BETWEEN :low AND :high",
        ExpressionAttributeValues={":pk": {"S": "p"}, ":low": {"S": "03"}, ":high": {"S": "20"}},
        ScanIndexForward=False,
        PaginationConfig={"PageSize": 4},
    )
    assert [item["sk"]["S"] for page in pages for item in page["Items"]] == [f"{n:02d}" for n in range(20, 2, -1)]


def test_no_update_of_many_threads_is_lost(client: DynamoDBClient, table: str) -> None:
    def add() -> None:
        for _ in range(50):
            client.update_item(
                TableName=table,
                Key=key("counter"),
                UpdateExpression="ADD hits :one",
                ExpressionAttributeValues={":one": {"N": "1"}},
            )

    threads = [threading.Thread(target=add) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert client.get_item(TableName=table, Key=key("counter"))["Item"]["hits"] == {"N": "400"}


def test_a_transaction_takes_effect_as_a_whole(client: DynamoDBClient, table: str) -> None:
    client.put_item(TableName=table, Item=key("old"))
    client.put_item(TableName=table, Item={**key("kept"), "n": {"N": "1"}})
    client.transact_write_items(
        TransactItems=[
            {"Put": {"TableName": table, "Item": key("new")}},
            {"Delete": {"TableName": table, "Key": key("old")}},
            {
                "Update": {
                    "TableName": table,
                    "Key": key("kept"),
                    "UpdateExpression": "SET n = n + :n",
                    "ExpressionAttributeValues": {":n": {"N": "1"}},
                }
            },
        ]
    )
    assert stored(client, table) == [{**key("kept"), "n": {"N": "2"}}, key("new")]


def test_a_refused_transaction_leaves_everything_as_it_was(client: DynamoDBClient, table: str) -> None:
    client.put_item(TableName=table, Item={**key("a"), "n": {"N": "1"}, "data": {"B": b"\xff\x00"}})
    update: Any = {"TableName": table, "Key": key("a"), "UpdateExpression": "SET n = :n", **values(n=2)}
    put: Any = {"TableName": table, "Item": key("b"), "ConditionExpression": "attribute_exists(pk)"}
    with pytest.raises(ClientError) as refused:
        client.transact_write_items(TransactItems=[{"Update": update}, {"Put": put}])
    reasons = refused.value.response["CancellationReasons"]
    assert [reason["Code"] for reason in reasons] == ["None", "ConditionalCheckFailed"]
    assert stored(client, table) == [{**key("a"), "n": {"N": "1"}, "data": {"B": b"\xff\x00"}}]


def test_bytes_come_back_from_every_action(client: DynamoDBClient, table: str) -> None:
    item: Any = {**key("a"), "data": {"B": bytes(range(256))}, "list": {"L": [{"B": b"\xff"}, {"BS": [b"\x00"]}]}}
    client.put_item(TableName=table, Item=item)
    assert client.get_item(TableName=table, Key=key("a"))["Item"] == item
    batch = client.batch_get_item(RequestItems={table: {"Keys": [key("a")]}})
    assert batch["Responses"][table] == [item]
    assert stored(client, table) == [item]
    update: Any = {"TableName": table, "Key": key("a"), "UpdateExpression": "SET n = :n", "ReturnValues": "ALL_NEW"}
    assert client.update_item(**update, **values(n=1))["Attributes"] == {**item, "n": {"N": "1"}}
    with pytest.raises(ClientError) as refused:
        client.delete_item(
            TableName=table,
            Key=key("a"),
            ConditionExpression="attribute_not_exists(pk)",
            ReturnValuesOnConditionCheckFailure="ALL_OLD",
        )
    assert refused.value.response["Item"] == {**item, "n": {"N": "1"}}  # type: ignore[typeddict-item]


def test_an_expression_serves_again_for_other_names_values_and_items(client: DynamoDBClient, table: str) -> None:
    """It is parsed once, so that nothing of one use may show in the next."""
    for sk, name, text in (("a", "x", "one"), ("b", "y", "two"), ("a", "z", "three")):
        client.update_item(
            TableName=table,
            Key=key(sk),
            UpdateExpression="SET #n = if_not_exists(#n, :m), seen = list_append(if_not_exists(seen, :l), :m)",
            ConditionExpression="attribute_not_exists(#n) AND (attribute_not_exists(seen) OR size(seen) < :two)",
            ExpressionAttributeNames={"#n": name},
            ExpressionAttributeValues={":l": {"L": []}, ":m": {"L": [{"S": text}]}, ":two": {"N": "2"}},
        )
    one, two, three = ({"L": [{"S": text}]} for text in ("one", "two", "three"))
    seen: Any = {"L": [{"S": "one"}, {"S": "three"}]}
    assert stored(client, table) == [
        {**key("a"), "x": one, "z": three, "seen": seen},
        {**key("b"), "y": two, "seen": two},
    ]


def test_a_list_that_was_appended_to_another_keeps_its_own_elements(client: DynamoDBClient, table: str) -> None:
    client.put_item(TableName=table, Item={**key("a"), "next": {"L": [{"N": "0"}]}, "leases": {"M": {}}})
    claim: Any = {
        "TableName": table,
        "Key": key("a"),
        "UpdateExpression": "SET leases.#t = list_append(#n, :one), #n[0] = #n[0] + :three",
        "ExpressionAttributeValues": {":one": {"L": [{"N": "1"}]}, ":three": {"N": "3"}},
        "ReturnValues": "ALL_NEW",
    }
    for token in ("s", "t"):
        after = client.update_item(**claim, ExpressionAttributeNames={"#n": "next", "#t": token})["Attributes"]
    leases: Any = {"s": {"L": [{"N": "0"}, {"N": "1"}]}, "t": {"L": [{"N": "3"}, {"N": "1"}]}}
    assert after == {**key("a"), "next": {"L": [{"N": "6"}]}, "leases": {"M": leases}}


def test_attributes_are_set_as_they_are_given_and_leave_the_others(client: DynamoDBClient, table: str) -> None:
    client.put_item(TableName=table, Item={**key("a"), "old": {"S": "old"}, "end": {"N": "1"}})
    new: Any = {
        "end": {"N": "2"},
        "data": {"B": b"\0\xff"},
        "list": {"L": [{"N": "1"}]},
        "map": {"M": {"x": {"S": "y"}}},
    }
    after = assign(client, table, new)
    assert after == stored(client, table)[0] == {**key("a"), "old": {"S": "old"}, **new}


@pytest.mark.parametrize("attributes", [{"sk": {"S": "b"}}, {"text": {"S": "x" * 410_000}}])
def test_a_value_that_is_not_an_attribute_is_refused(client: DynamoDBClient, table: str, attributes: Any) -> None:
    client.put_item(TableName=table, Item=key("a"))
    with pytest.raises(ClientError, match=r"Cannot update attribute sk|exceeded the maximum allowed size"):
        assign(client, table, attributes)
    assert stored(client, table) == [key("a")]


def test_items_that_are_gone_are_forgotten(client: DynamoDBClient, table: str) -> None:
    for number in range(20):
        client.put_item(TableName=table, Item={**key("a"), "n": {"N": str(number)}})
    stored(client, table)
    assert Item.instances_tracked == []  # type: ignore[attr-defined]
    assert len(model(table)) == 1


def test_starting_twice_keeps_what_is_stored(client: DynamoDBClient, table: str) -> None:
    client.put_item(TableName=table, Item=key("a"))
    embedded.start()
    assert stored(client, table) == [key("a")]


def assign(client: DynamoDBClient, table: str, attributes: dict[str, Any]) -> dict[str, Any]:
    """Sets attributes of item `a` as a `Set` of the service does. What the item is then."""
    return client.update_item(
        TableName=table,
        Key=key("a"),
        UpdateExpression=f"SET {', '.join(f'#{place} = :{place}' for place in range(len(attributes)))}",
        ExpressionAttributeNames={f"#{place}": name for place, name in enumerate(attributes)},
        ExpressionAttributeValues={f":{place}": value for place, value in enumerate(attributes.values())},
        ReturnValues="ALL_NEW",
    )["Attributes"]


def values(**numbers: int) -> dict[str, Any]:
    return {"ExpressionAttributeValues": {f":{name}": {"N": str(number)} for name, number in numbers.items()}}


def stored(client: DynamoDBClient, table: str) -> list[dict[str, Any]]:
    return client.query(
        TableName=table,
        KeyConditionExpression="pk = :pk AND sk BETWEEN :low AND :high",
        ExpressionAttributeValues={":pk": {"S": "p"}, ":low": {"S": "0"}, ":high": {"S": "z"}},
    )["Items"]
