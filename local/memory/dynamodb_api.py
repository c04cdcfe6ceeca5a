"""The memory store as a DynamoDB endpoint: the JSON of requests and responses. It only reads."""

from __future__ import annotations

import base64
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any
from zlib import crc32

import orjson

from chalicelib.core.base.fields import shown
from chalicelib.core.store import Keys, Range
from chalicelib.core.store.dynamodb.expressions import typed_item
from chalicelib.core.table.keys import signing_key
from chalicelib.core.table.writes import Item, Key, key_of
from local.memory.key_condition import KeyRange, Unreadable, key_range
from local.memory.sizes import bytes_of
from local.memory.store import MemoryStore

SCANS_MAX = 64
"""Scans whose lists the API keeps from page to page."""

_Segment = tuple[int, int]

PAGE_BYTES_MAX = 1 << 20
BATCH_BYTES_MAX = 16 << 20
BATCH_KEYS_MAX = 100
SEGMENTS_MAX = 1_000_000
LIMIT_MAX = 2**31 - 1
EXPRESSION_CHARS_MAX = 4_096
"""Limits of DynamoDB."""
ITEMS_AT_ONCE = 100
"""Items read under one lock of the store, so that other requests need not wait."""

WITHHELD = signing_key()
"""The item that the API never shows, with access control or without: anyone who reads it can make receipts and secret
access keys, and no reader needs it. A folder without access control today may have it tomorrow."""

_TYPE = "application/x-amz-json-1.0"
_PLACES = {"KeyConditionExpression", "ExpressionAttributeNames", "ExpressionAttributeValues", "ScanIndexForward"}
_PAGE = {"TableName", "Limit", "ExclusiveStartKey", "ConsistentRead", "Select"}
_PARAMETERS = {
    "Scan": _PAGE | {"Segment", "TotalSegments"},
    "Query": _PAGE | _PLACES,
    "GetItem": {"TableName", "Key", "ConsistentRead"},
    "BatchGetItem": {"RequestItems"},
    "DescribeTable": {"TableName"},
    "ListTables": {"Limit", "ExclusiveStartTableName"},
}
"""The supported parameters of each call. Others are refused: an answer that ignored a filter would look filtered."""

Json = dict[str, Any]


class Refusal(Exception):
    def __init__(self, message: str, code: str = "ValidationException") -> None:
        super().__init__(message)
        self.code = code


class DynamoApi:
    """`table`: the name that the store's one table has here."""

    def __init__(self, store: MemoryStore, table: str) -> None:
        self._store = store
        self._table = table
        self._partitions = Partitions(store.partitions)
        self._operations: dict[str, Callable[[Json], Json]] = {
            "Scan": self._scan,
            "Query": self._query,
            "GetItem": self._get,
            "BatchGetItem": self._batch_get,
            "DescribeTable": self._describe,
            "ListTables": self._list,
        }

    def answer(self, operation: str, body: bytes) -> tuple[int, bytes, str]:
        """Status, body and type of the answer. Credentials and region are ignored: there is one table."""
        try:
            status, content = 200, self._operations[operation](_parameters(operation, body))
        except Refusal as refusal:
            kind = f"com.amazonaws.dynamodb.v20120810#{refusal.code}"
            status, content = 400, {"__type": kind, "message": str(refusal)}
        return status, orjson.dumps(content, default=_in_base64), _TYPE

    def _scan(self, given: Json) -> Json:
        self._demand_table(given.get("TableName"))
        total, segment = _number(given, "TotalSegments", 1, SEGMENTS_MAX), _number(given, "Segment", 0, SEGMENTS_MAX)
        if (total is None) != (segment is None) or (segment or 0) >= (total or 1):
            raise Refusal("Segment and TotalSegments must come together, and Segment must be less than TotalSegments")
        start = _start(given)
        names = self._partitions.after(start.pk if start else None, segment or 0, total or 1)
        last = {start.pk: start.sk} if start else {}
        items = (item for pk in names for item in self._walk(KeyRange(pk), last.get(pk)))
        answer = self._page(given, items)
        if "LastEvaluatedKey" not in answer:
            self._partitions.forget(segment or 0, total or 1)
        return answer

    def _query(self, given: Json) -> Json:
        self._demand_table(given.get("TableName"))
        names, values = given.get("ExpressionAttributeNames") or {}, given.get("ExpressionAttributeValues") or {}
        expression, forward = given.get("KeyConditionExpression"), given.get("ScanIndexForward")
        if not isinstance(expression, str) or not isinstance(names, dict) or not isinstance(values, dict):
            raise Refusal("a Query needs a KeyConditionExpression, its names and values as maps")
        if len(expression) > EXPRESSION_CHARS_MAX:
            raise Refusal(f"KeyConditionExpression must have at most {EXPRESSION_CHARS_MAX} characters")
        if odd := [name for name in names.values() if not isinstance(name, str)]:
            raise Refusal(f"ExpressionAttributeNames must be strings; one is {shown(odd[0])}")
        if not isinstance(forward, bool | None):
            raise Refusal(f"ScanIndexForward must be true or false; it is {shown(forward)}")
        texts = {name: _text(name, value) for name, value in values.items()}
        try:
            wanted = key_range(expression, names, texts)
        except Unreadable as error:
            raise Refusal(f"KeyConditionExpression: {error}") from error
        start = _start(given)
        if start and start.pk != wanted.pk:
            raise Refusal("ExclusiveStartKey is of another partition")
        is_descending = forward is False
        return self._page(given, self._walk(wanted, start.sk if start else None, is_descending))

    def _get(self, given: Json) -> Json:
        self._demand_table(given.get("TableName"))
        items = self._read(_key("Key", given.get("Key")))
        return {"Item": typed_item(items[0])} if items else {}

    def _batch_get(self, given: Json) -> Json:
        tables = given.get("RequestItems")
        if not isinstance(tables, dict) or len(tables) != 1:
            raise Refusal("RequestItems must name one table")
        [[table, asked]] = tables.items()
        self._demand_table(table)
        _demand_known("BatchGetItem", asked, {"Keys", "ConsistentRead"})
        if not isinstance(asked.get("Keys"), list):
            raise Refusal(f"Keys must be a list; it is {shown(asked.get('Keys'))}")
        keys = [_key("Keys", key) for key in asked["Keys"]]
        if not 1 <= len(set(keys)) == len(keys) <= BATCH_KEYS_MAX:
            raise Refusal(f"Keys must be 1 to {BATCH_KEYS_MAX} different keys; they are {len(keys)}")
        found, rest = self._until_full(keys)
        unprocessed = {table: {**asked, "Keys": [typed_item(key._asdict()) for key in rest]}} if rest else {}
        return {"Responses": {table: [typed_item(item) for item in found]}, "UnprocessedKeys": unprocessed}

    def _until_full(self, keys: list[Key]) -> tuple[list[Item], list[Key]]:
        """The items of as many keys as an answer has room for, and the keys that are left."""
        found: list[Item] = []
        left = BATCH_BYTES_MAX
        for place, key in enumerate(keys):
            items = self._read(key)
            left -= sum(map(bytes_of, items))
            if left < 0:
                return found, keys[place:]
            found += items
        return found, []

    def _read(self, key: Key) -> list[Item]:
        return [] if key == WITHHELD else self._store.read([Keys([key], strong=True)])[0]

    def _describe(self, given: Json) -> Json:
        self._demand_table(given.get("TableName"))
        keys, types = {"pk": "HASH", "sk": "RANGE"}, {"pk": "S", "sk": "S"}
        about = {
            "TableName": self._table,
            "TableStatus": "ACTIVE",
            "KeySchema": [{"AttributeName": name, "KeyType": kind} for name, kind in keys.items()],
            "AttributeDefinitions": [{"AttributeName": name, "AttributeType": kind} for name, kind in types.items()],
            "BillingModeSummary": {"BillingMode": "PAY_PER_REQUEST"},
            "ItemCount": self._store.count(),
        }
        return {"Table": about}

    def _list(self, given: Json) -> Json:
        _number(given, "Limit", 1, BATCH_KEYS_MAX)
        after = given.get("ExclusiveStartTableName", "")
        if not isinstance(after, str):
            raise Refusal(f"ExclusiveStartTableName must be a string; it is {shown(after)}")
        return {"TableNames": [self._table] if self._table > after else []}

    def _walk(self, wanted: KeyRange, after: str | None, is_descending: bool = False) -> Iterator[Item]:
        """Yields the items behind the sort key `after`, each in its newest state."""
        withheld = WITHHELD.sk if wanted.pk == WITHHELD.pk else None
        while True:
            low = wanted.low if after is None or is_descending else max(after, wanted.low)
            high = wanted.high if after is None or not is_descending else min(after, wanted.high)
            read = Range(wanted.pk, low, high, ITEMS_AT_ONCE, is_descending, strong=True)
            items = self._store.read([read])[0]
            yield from (item for item in items if item["sk"] not in (after, wanted.without, withheld))
            if len(items) < ITEMS_AT_ONCE:
                return
            after = items[-1]["sk"]

    def _page(self, given: Json, items: Iterator[Item]) -> Json:
        """As many items as a page has room for. A page that ends early says where."""
        limit, chosen = _number(given, "Limit", 1, LIMIT_MAX), given.get("Select", "ALL_ATTRIBUTES")
        if chosen not in ("ALL_ATTRIBUTES", "COUNT"):
            raise Refusal(f"Select must be ALL_ATTRIBUTES or COUNT here; it is {shown(chosen)}")
        page: list[Item] = []
        left, is_full = PAGE_BYTES_MAX, False
        for item in islice(items, limit):
            left -= bytes_of(item)
            if is_full := left < 0:
                break
            page.append(item)
        answer: Json = {"Count": len(page), "ScannedCount": len(page)}
        if is_full or len(page) == limit:
            answer["LastEvaluatedKey"] = typed_item(key_of(page[-1])._asdict())
        return answer | ({"Items": [typed_item(item) for item in page]} if chosen != "COUNT" else {})

    def _demand_table(self, name: Any) -> None:
        if not isinstance(name, str):
            raise Refusal(f"TableName must be a string; it is {shown(name)}")
        if name != self._table:
            raise Refusal(f"Requested resource not found: Table: {name} not found", "ResourceNotFoundException")


class Partitions:
    """Lets scans read in pages, side by side, while others write. Partitions are sorted by name, so that a scan meets
    each one that exists throughout exactly once. The list of a scan only saves time: any page can make it again."""

    def __init__(self, names: Callable[[], list[str]]) -> None:
        self._names = names
        self._kept: dict[_Segment, list[str]] = {}

    def after(self, start: str | None, segment: int, total: int) -> Iterator[str]:
        """The partitions of the segment, from `start` on. None: a scan begins."""
        known = None if start is None else self._kept.get((segment, total))
        names = self._sorted(segment, total) if known is None else known
        return (names[place] for place in range(bisect_left(names, start or ""), len(names)))

    def forget(self, segment: int, total: int) -> None:
        """The scan of the segment has come to its end."""
        self._kept.pop((segment, total), None)

    def _sorted(self, segment: int, total: int) -> list[str]:
        names = sorted(name for name in self._names() if crc32(name.encode()) % total == segment)
        if len(self._kept) >= SCANS_MAX:
            self._kept.clear()
        self._kept[segment, total] = names
        return names


def _parameters(operation: str, body: bytes) -> Json:
    try:
        given = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise Refusal(f"the body is not JSON: {error}", "SerializationException") from error
    return _demand_known(operation, given, _PARAMETERS[operation])


def _demand_known(operation: str, given: Any, known: set[str]) -> Json:
    if not isinstance(given, dict):
        raise Refusal(f"the parameters of {operation} must be a map; they are {shown(given)}", "SerializationException")
    if unknown := sorted(given.keys() - known):
        allowed = ", ".join(sorted(known))
        raise Refusal(f"{operation} is not carried out with {', '.join(unknown)} here, but with {allowed}")
    if not isinstance(given.get("ConsistentRead"), bool | None):
        raise Refusal(f"ConsistentRead must be true or false; it is {shown(given['ConsistentRead'])}")
    return given


def _number(given: Json, name: str, least: int, most: int) -> int | None:
    value = given.get(name)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise Refusal(f"{name} must be a number from {least} to {most}; it is {shown(value)}")
    return value


def _start(given: Json) -> Key | None:
    key = given.get("ExclusiveStartKey")
    return None if key is None else _key("ExclusiveStartKey", key)


def _key(name: str, given: Any) -> Key:
    if not isinstance(given, dict) or given.keys() != {"pk", "sk"}:
        raise Refusal(f"{name} must have pk and sk; it is {shown(given)}")
    return Key(_text(name, given["pk"]), _text(name, given["sk"]))


def _text(name: str, given: Any) -> str:
    """A string in typed JSON: keys have no other type."""
    if not isinstance(given, Mapping) or given.keys() != {"S"} or not isinstance(given["S"], str):
        raise Refusal(f"{name} must be a string, as {{'S': 'text'}}; it is {shown(given)}")
    text: str = given["S"]
    return text


def _in_base64(value: bytes) -> str:
    return base64.b64encode(value).decode()
