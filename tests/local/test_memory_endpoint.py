"""The endpoint of a store in memory: clients of DynamoDB read it as they read an emulator. It refuses the rest."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from boto3.dynamodb.conditions import ConditionExpressionBuilder
from boto3.dynamodb.conditions import Key as Attribute
from boto3.dynamodb.types import TypeSerializer
from mypy_boto3_dynamodb import DynamoDBClient

from chalicelib.core.store.dynamodb import boto
from chalicelib.core.store.dynamodb.expressions import typed_item
from chalicelib.core.table.writes import Key
from local import endpoint
from local.memory.dynamodb_api import ITEMS_AT_ONCE, DynamoApi
from local.memory.store import MemoryStore
from tests.support.emulators import client_of

TABLE = "decant"
ITEMS: list[dict[str, Any]] = [
    *({"pk": f"p{number % 7}", "sk": f"{number:03d}", "n": number, "b": b"\x00\xff"} for number in range(60)),
    *({"pk": "large", "sk": f"{number:02d}", "data": b"x" * 300_000} for number in range(9)),
    {"pk": "all", "sk": "types", "l": [1, -2, True, "é"], "m": {"a": {}}, "s": ""},
]


@pytest.fixture(scope="module")
def store() -> MemoryStore:
    store = MemoryStore()
    store.put_all(ITEMS)
    return store


@pytest.fixture(scope="module")
def ours(store: MemoryStore) -> Iterator[DynamoDBClient]:
    offered = endpoint.Endpoint(0, DynamoApi(store, TABLE).answer, lambda *_: None)
    serving = endpoint.start(offered)
    yield client_of(offered.url)
    offered.shutdown()
    serving.join()
    offered.server_close()


@pytest.fixture(scope="module")
def emulator(dynoxide: str) -> Iterator[DynamoDBClient]:
    client = client_of(dynoxide)
    boto.ensure(client, TABLE)
    for item in ITEMS:
        client.put_item(TableName=TABLE, Item=typed_item(item))
    yield client
    client.delete_table(TableName=TABLE)


def pages(client: DynamoDBClient, operation: str, **asked: Any) -> list[dict[str, Any]]:
    """All pages, but for what a client need not compare."""
    paginator: Any = client.get_paginator(operation)  # type: ignore[call-overload]
    found = list(paginator.paginate(TableName=TABLE, **asked))
    return [{name: page.get(name) for name in ("Items", "Count", "LastEvaluatedKey")} for page in found]


def query(condition: Any) -> dict[str, Any]:
    """The parameters that boto3 makes of a condition."""
    expression, names, values = ConditionExpressionBuilder().build_expression(condition, is_key_condition=True)
    typed = {name: TypeSerializer().serialize(value) for name, value in values.items()}
    return {
        "KeyConditionExpression": expression,
        "ExpressionAttributeNames": names,
        "ExpressionAttributeValues": typed,
    }


CONDITIONS = {
    "all": Attribute("pk").eq("p3"),
    "equal": Attribute("pk").eq("p3") & Attribute("sk").eq("010"),
    "below": Attribute("pk").eq("p3") & Attribute("sk").lt("017"),
    "at most": Attribute("pk").eq("p3") & Attribute("sk").lte("017"),
    "above": Attribute("pk").eq("p3") & Attribute("sk").gt("017"),
    "at least": Attribute("pk").eq("p3") & Attribute("sk").gte("017"),
    "between": Attribute("pk").eq("p3") & Attribute("sk").between("010", "024"),
    "beginning": Attribute("pk").eq("p3") & Attribute("sk").begins_with("02"),
    "nothing": Attribute("pk").eq("none"),
    "large": Attribute("pk").eq("large"),
}


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("condition", CONDITIONS.values(), ids=CONDITIONS)
def test_a_query_finds_what_the_emulator_finds(
    ours: DynamoDBClient, emulator: DynamoDBClient, condition: Any, descending: bool
) -> None:
    for limit in ({}, {"Limit": 3}):
        asked = {**query(condition), **limit, "ScanIndexForward": not descending}
        found = [item for page in pages(ours, "query", **asked) for item in page["Items"]]
        assert found == [item for page in pages(emulator, "query", **asked) for item in page["Items"]]


def test_a_page_ends_where_a_megabyte_does(ours: DynamoDBClient, emulator: DynamoDBClient) -> None:
    asked = query(CONDITIONS["large"])
    assert pages(ours, "query", **asked) == pages(emulator, "query", **asked)
    asked = {"KeyConditionExpression": "pk = :pk and sk>:sk", "Select": "COUNT", "ExpressionAttributeValues": {}}
    asked["ExpressionAttributeValues"] = {":pk": {"S": "large"}, ":sk": {"S": "03"}}
    assert sum(page["Count"] for page in pages(ours, "query", **asked)) == 5


@pytest.mark.parametrize("total", [1, 3, 100])
@pytest.mark.parametrize("limit", [None, 7])
def test_the_segments_of_a_scan_are_all_items_once(ours: DynamoDBClient, total: int, limit: int | None) -> None:
    found = []
    for segment in range(total):
        asked: dict[str, Any] = {"Segment": segment, "TotalSegments": total} | ({"Limit": limit} if limit else {})
        found += [item for page in pages(ours, "scan", **asked) for item in page["Items"]]
    expected = [typed_item(item) for item in ITEMS]
    assert sorted(map(repr, found)) == sorted(map(repr, expected))


def asked_of(store: MemoryStore, operation: str, **parameters: Any) -> tuple[int, Any]:
    status, content, _ = DynamoApi(store, TABLE).answer(operation, json.dumps(parameters).encode())
    return status, json.loads(content)


def test_a_scan_meets_what_stays_once_while_others_write() -> None:
    """The scan may meet or miss items that come and go meanwhile."""
    store, met = MemoryStore(), list[tuple[str, str]]()
    api, is_open = DynamoApi(store, TABLE), True
    where: dict[str, Any] = {}
    stays = [(f"p{number % 50}", f"{number:04d}") for number in range(3 * ITEMS_AT_ONCE)]
    goes = [(f"p{number}", "0") for number in range(50)] + [(f"q{number}", "0") for number in range(50)]
    store.put_all([{"pk": pk, "sk": sk} for pk, sk in (*stays, *goes)])
    while is_open:
        page = json.loads(api.answer("Scan", json.dumps({"TableName": TABLE, "Limit": 11, **where}).encode())[1])
        met += [(item["pk"]["S"], item["sk"]["S"]) for item in page["Items"]]
        where = {"ExclusiveStartKey": page.get("LastEvaluatedKey")}
        is_open = "LastEvaluatedKey" in page
        last = [met[-1]] if met[-1] not in stays else []
        store.remove_all([Key(*place) for place in (*last, *goes[:4])])
        del goes[:4]
        store.put_all([{"pk": f"n{len(met)}", "sk": "0"}, {"pk": f"p{len(met) % 50}", "sk": "~"}])
    assert len(met) == len(set(met))
    assert {*stays} <= {*met}


def test_items_are_read_by_key(ours: DynamoDBClient, emulator: DynamoDBClient) -> None:
    keys = [{"pk": {"S": "all"}, "sk": {"S": "types"}}, {"pk": {"S": "p1"}, "sk": {"S": "none"}}]
    for key in keys:
        read = ours.get_item(TableName=TABLE, Key=key).get("Item")
        assert read == emulator.get_item(TableName=TABLE, Key=key).get("Item")
    answer = ours.batch_get_item(RequestItems={TABLE: {"Keys": keys, "ConsistentRead": True}})
    assert answer["Responses"] == {TABLE: [typed_item(ITEMS[-1])]}
    assert answer["UnprocessedKeys"] == {}


def test_a_batch_that_is_too_large_says_which_keys_are_left() -> None:
    store = MemoryStore()
    store.put_all([{"pk": "a", "sk": f"{number:02d}", "data": b"x" * 400_000} for number in range(50)])
    keys = [{"pk": {"S": "a"}, "sk": {"S": f"{number:02d}"}} for number in range(50)]
    status, answer = asked_of(store, "BatchGetItem", RequestItems={TABLE: {"Keys": keys}})
    found = [{"pk": item["pk"], "sk": item["sk"]} for item in answer["Responses"][TABLE]]
    assert status == 200
    assert 30 < len(found) < 50
    assert found + answer["UnprocessedKeys"][TABLE]["Keys"] == keys


def test_the_table_is_described(ours: DynamoDBClient) -> None:
    assert ours.describe_table(TableName=TABLE)["Table"]["ItemCount"] == len(ITEMS)
    assert ours.list_tables()["TableNames"] == [TABLE]
    assert ours.list_tables(ExclusiveStartTableName=TABLE)["TableNames"] == []
    ours.get_waiter("table_exists").wait(TableName=TABLE)
    with pytest.raises(ours.exceptions.ResourceNotFoundException):
        ours.scan(TableName="other")


ONE = {"pk": {"S": "a"}, "sk": {"S": "b"}}
PK = {"KeyConditionExpression": "pk = :a", "ExpressionAttributeValues": {":a": {"S": "a"}}}
REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("Scan", {"FilterExpression": "n > :n"}, "not carried out with FilterExpression"),
    ("Scan", {"Select": "SPECIFIC_ATTRIBUTES"}, "Select must be"),
    ("Scan", {"Limit": 0}, "Limit must be a number from 1 to 2147483647; it is 0"),
    ("Scan", {"Limit": 2**63}, "Limit must be a number from 1 to 2147483647; it is 9223372036854775808"),
    ("Scan", {"Limit": True}, "Limit must be a number"),
    ("Scan", {"Segment": 1}, "Segment and TotalSegments"),
    ("Scan", {"Segment": 2, "TotalSegments": 2}, "Segment must be less"),
    ("Scan", {"ConsistentRead": 1}, "ConsistentRead must be true or false"),
    ("Scan", {"ExclusiveStartKey": {"pk": {"S": "a"}}}, "ExclusiveStartKey must have pk and sk"),
    ("Query", {"KeyConditions": {}}, "not carried out with KeyConditions"),
    ("Query", {}, "needs a KeyConditionExpression"),
    ("Query", {**PK, "KeyConditionExpression": "pk > :a"}, "must have pk = a value"),
    ("Query", {**PK, "KeyConditionExpression": "pk = :b"}, "ExpressionAttributeValues lacks ':b'"),
    ("Query", {**PK, "KeyConditionExpression": "#a = :a"}, "ExpressionAttributeNames lacks '#a'"),
    ("Query", {**PK, "KeyConditionExpression": "pk = :a AND n = :a"}, "may name pk and sk"),
    ("Query", {**PK, "KeyConditionExpression": "pk = :a OR sk = :a"}, "is too much"),
    ("Query", {**PK, "KeyConditionExpression": "(pk = :a"}, "')' is missing"),
    ("Query", {**PK, "KeyConditionExpression": "pk = ;"}, "cannot be read"),
    ("Query", {**PK, "KeyConditionExpression": "pk ="}, "ends too early"),
    ("Query", {**PK, "KeyConditionExpression": "pk <> :a"}, "'<>' is not an operator"),
    ("Query", {**PK, "ExpressionAttributeValues": {":a": {"N": "1"}}}, ":a must be a string"),
    ("Query", {**PK, "ExpressionAttributeNames": {"#p": {}}}, "ExpressionAttributeNames must be strings"),
    ("Query", {**PK, "KeyConditionExpression": "(" * 5_000}, "at most 4096 characters"),
    ("Query", {**PK, "KeyConditionExpression": "(" * 4_000}, "more than 20 parentheses"),
    ("Query", {**PK, "ScanIndexForward": "no"}, "ScanIndexForward must be"),
    ("Query", {**PK, "ExclusiveStartKey": {**ONE, "pk": {"S": "b"}}}, "of another partition"),
    ("GetItem", {"Key": {"pk": {"S": "a"}, "sk": {"N": "1"}}}, "Key must be a string"),
    ("GetItem", {"Key": ONE, "ProjectionExpression": "pk"}, "not carried out with ProjectionExpression"),
    ("BatchGetItem", {"RequestItems": {}}, "must name one table"),
    ("BatchGetItem", {"RequestItems": {TABLE: {"Keys": [ONE, ONE]}}}, "different keys"),
    ("BatchGetItem", {"RequestItems": {TABLE: {"Keys": [ONE], "AttributesToGet": []}}}, "AttributesToGet"),
    ("BatchGetItem", {"RequestItems": {TABLE: {}}}, "Keys must be a list; it is null"),
    ("BatchGetItem", {"RequestItems": {TABLE: {"Keys": 5}}}, "Keys must be a list; it is 5"),
    ("BatchGetItem", {"RequestItems": {TABLE: {"Keys": []}}}, "Keys must be 1 to 100"),
    ("ListTables", {"ExclusiveStartTableName": 1}, "must be a string"),
]


@pytest.mark.parametrize(("operation", "parameters", "named"), REFUSED)
def test_what_is_not_carried_out_is_refused_by_name(operation: str, parameters: dict[str, Any], named: str) -> None:
    table = {} if operation in ("BatchGetItem", "ListTables") else {"TableName": TABLE}
    status, answer = asked_of(MemoryStore(), operation, **table, **parameters)
    assert (status, answer["__type"].partition("#")[2]) == (400, "ValidationException")
    assert named in answer["message"]


@pytest.mark.parametrize("name", ["TableName", "Limit", "Select", "ConsistentRead", "ExclusiveStartKey", "Segment"])
def test_what_is_nested_deep_is_refused_as_other_values_are(name: str) -> None:
    deep = b"[" * 1_000 + b"]" * 1_000
    body = b'{"TableName": "decant", "%b": %b}' % (name.encode(), deep)
    status, _, _ = DynamoApi(MemoryStore(), TABLE).answer("Scan", body)
    assert status == 400


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b"\xff", b"[" * 1_000 + b"]" * 1_000])
def test_a_body_that_is_no_map_is_refused(body: bytes) -> None:
    status, content, _ = DynamoApi(MemoryStore(), TABLE).answer("Scan", body)
    assert (status, json.loads(content)["__type"].partition("#")[2]) == (400, "SerializationException")


def test_the_signing_key_is_in_no_answer(ours: DynamoDBClient, store: MemoryStore) -> None:
    store.put_all([{"pk": "service", "sk": sk, "value": b"secret"} for sk in ("before", "signing-key", "upon")])
    key, partition = {"pk": {"S": "service"}, "sk": {"S": "signing-key"}}, Attribute("pk").eq("service")
    equal, beside = partition & Attribute("sk").eq("signing-key"), partition & Attribute("sk").between("b", "v")
    assert "Item" not in ours.get_item(TableName=TABLE, Key=key, ConsistentRead=True)
    assert ours.batch_get_item(RequestItems={TABLE: {"Keys": [key]}})["Responses"] == {TABLE: []}
    for asked, count in ((partition, 2), (equal, 0), (beside, 2)):
        for more in ({}, {"ScanIndexForward": False}, {"Limit": 1}, {"Select": "COUNT"}):
            assert sum(page["Count"] for page in pages(ours, "query", **query(asked), **more)) == count
    found = [item for page in pages(ours, "scan") for item in page["Items"] if item["pk"] == key["pk"]]
    assert [item["sk"]["S"] for item in found] == ["before", "upon"]
    store.remove_all([Key("service", sk) for sk in ("before", "signing-key", "upon")])
