"""The storage port on one DynamoDB table, with S3 for payloads that are too big for items."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from chalicelib.core.base import deadline
from chalicelib.core.base.errors import StoreUnavailable
from chalicelib.core.base.runtime import Runtime
from chalicelib.core.store import Outcome, Range, Read
from chalicelib.core.store.dynamodb.boto import translated
from chalicelib.core.store.dynamodb.client import Client
from chalicelib.core.store.dynamodb.expressions import Expressions, plain_item, typed, typed_item
from chalicelib.core.store.dynamodb.requests import Ask, Failed, Retrier, Trying, at_once, run
from chalicelib.core.table.writes import Item, Key, Refused, Write, key_of

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

T = TypeVar("T")

_GET_MAX = 100
"""Keys in one BatchGetItem."""
_PUT_MAX = 25
"""Requests in one BatchWriteItem."""
_TOKEN_CHARS = 32
"""DynamoDB recognizes a repeated transaction by its token for ten minutes."""
_METERED = {"ReturnConsumedCapacity": "TOTAL"}
"""Asks DynamoDB to report the cost in every response, which is free."""


class DynamoStore:
    """Implements `chalicelib.core.store.Store`."""

    def __init__(
        self,
        client: Client,
        table: str,
        runtime: Runtime,
        s3: S3Client | None = None,
        bucket: str | None = None,
    ) -> None:
        self._client = client
        self._table = table
        self._runtime = runtime
        self._requests = Retrier(runtime)
        self._s3: Any = s3
        self._bucket = bucket

    is_full = False

    @property
    def keeps_blobs(self) -> bool:
        return self._bucket is not None

    def read(self, reads: Sequence[Read]) -> list[list[Item]]:
        chunks: list[tuple[int, Trying[list[Item]]]] = []
        for place, read in enumerate(reads):
            if isinstance(read, Range):
                chunks.append((place, self._range(read)))
            else:
                unique = list(dict.fromkeys(read.keys))
                chunks += [(place, self._keys(keys, read.strong)) for keys in _chunked(unique, _GET_MAX)]
        answers: list[list[Item]] = [[] for _ in reads]
        for (place, _), items in zip(chunks, self._run([chunk for _, chunk in chunks]), strict=True):
            answers[place] += items
        return [_ordered(read, items) for read, items in zip(reads, answers, strict=True)]

    def write(self, write: Write) -> Item:
        return self._one(self._write(write))

    def write_each(self, writes: Sequence[Write]) -> list[Outcome]:
        return self._run([self._outcome(write) for write in writes])

    def write_together(self, writes: Sequence[Write]) -> None:
        items = [self._transacted(write) for write in writes]
        token = self._runtime.name(_TOKEN_CHARS)
        asked = {"TransactItems": items, "ClientRequestToken": token}
        try:
            self._one(self._requests.write(self._asking("TransactWriteItems", asked)))
        except Failed as failed:
            for write, reason in zip(writes, failed.reasons, strict=True) if failed.reasons else ():
                if reason["Code"] == "ConditionalCheckFailed":
                    _landed(write, reason.get("Item"))
                    return
            raise
        deadline.has_written()

    def put_all(self, items: Sequence[Item]) -> None:
        self._write_batch([{"PutRequest": {"Item": typed_item(item)}} for item in items])

    def remove_all(self, keys: Sequence[Key]) -> None:
        self._write_batch([{"DeleteRequest": {"Key": typed_item(key._asdict())}} for key in keys])

    def put_blob(self, name: str, data: bytes) -> None:
        self._one(self._requests.put(_asking_s3(lambda: self._s3.put_object(Bucket=self._bucket, Key=name, Body=data))))

    def get_blob(self, name: str) -> bytes | None:
        def get() -> bytes:
            return bytes(self._s3.get_object(Bucket=self._bucket, Key=name)["Body"].read())

        try:
            return self._one(self._requests.read(_asking_s3(get)))
        except Failed as failed:
            if failed.code != "NoSuchKey":
                raise
            return None

    def remove_blobs(self, names: Sequence[str]) -> None:
        for name in names:
            self._one(self._requests.put(_asking_s3(partial(self._s3.delete_object, Bucket=self._bucket, Key=name))))

    def _run(self, tryings: Sequence[Trying[T]]) -> list[T]:
        return run(tryings, self._runtime)

    def _one(self, trying: Trying[T]) -> T:
        return self._run([trying])[0]

    def _asking(self, action: str, parameters: dict[str, Any]) -> Ask[Any]:
        return partial(self._client.ask, action, {**parameters, **_METERED})

    def _keys(self, keys: Sequence[Key], strong: bool) -> Trying[list[Item]]:
        items: list[Item] = []

        def get(asked: Any) -> Trying[Any]:
            answer = yield from self._requests.read(self._asking("BatchGetItem", {"RequestItems": asked}))
            items.extend(plain_item(item) for item in answer["Responses"].get(self._table, []))
            return answer.get("UnprocessedKeys")

        typed_keys = [typed_item(key._asdict()) for key in keys]
        yield from self._requests.until_taken(get, {self._table: {"Keys": typed_keys, "ConsistentRead": strong}})
        return items

    def _range(self, read: Range) -> Trying[list[Item]]:
        query: dict[str, Any] = {
            "TableName": self._table,
            "KeyConditionExpression": "pk = :pk AND sk BETWEEN :low AND :high",
            "ExpressionAttributeValues": {":pk": typed(read.pk), ":low": typed(read.low), ":high": typed(read.high)},
            "ConsistentRead": read.strong,
            "ScanIndexForward": not read.descending,
        }
        items: list[Item] = []
        while True:
            if read.limit is not None:
                query["Limit"] = read.limit - len(items)
            answer = yield from self._requests.read(self._asking("Query", query))
            items += [plain_item(item) for item in answer["Items"]]
            if "LastEvaluatedKey" not in answer or len(items) == read.limit:
                return items
            query["ExclusiveStartKey"] = answer["LastEvaluatedKey"]

    def _write(self, write: Write) -> Trying[Item]:
        action, parameters = "DeleteItem", self._parameters(write)
        if not write.is_removal:
            action, parameters["ReturnValues"] = "UpdateItem", "ALL_NEW"
        try:
            answer = yield from self._requests.write(self._asking(action, parameters))
        except Failed as failed:
            if failed.code != "ConditionalCheckFailedException":
                raise
            return _landed(write, failed.item)
        deadline.has_written()
        return plain_item(answer.get("Attributes", {}))

    def _transacted(self, write: Write) -> dict[str, Any]:
        verb = "Delete" if write.is_removal else "Update"
        return {verb: self._parameters(write)}

    def _parameters(self, write: Write) -> dict[str, Any]:
        on_refusal = {"ReturnValuesOnConditionCheckFailure": "ALL_OLD"} if write.guards else {}
        key = typed_item(write.key._asdict())
        return {"TableName": self._table, "Key": key, **on_refusal, **Expressions().parameters(write)}

    def _outcome(self, write: Write) -> Trying[Outcome]:
        try:
            return (yield from self._write(write))
        except (Refused, StoreUnavailable) as trouble:
            return trouble

    def _write_batch(self, requests: Sequence[dict[str, Any]]) -> None:
        self._run([self._write_chunk(chunk) for chunk in _chunked(requests, _PUT_MAX)])

    def _write_chunk(self, requests: Sequence[dict[str, Any]]) -> Trying[None]:
        def put(asked: Any) -> Trying[Any]:
            answer = yield from self._requests.put(self._asking("BatchWriteItem", {"RequestItems": asked}))
            return answer.get("UnprocessedItems")

        yield from self._requests.until_taken(put, {self._table: list(requests)})


def _chunked(things: Sequence[T], most: int) -> list[Sequence[T]]:
    return [things[at : at + most] for at in range(0, len(things), most)]


def _asking_s3(request: Callable[[], T]) -> Ask[T]:
    """boto3's client has its own timeouts."""
    return lambda _timeout_ms: at_once(lambda: translated(request))


def _landed(write: Write, refused_by: Any) -> Item:
    """The current item, if the rejected write has already landed in it. Raises Refused otherwise."""
    before = plain_item(refused_by or {})
    if not write.landed(before):
        raise Refused(before) from None
    return before


def _ordered(read: Read, items: list[Item]) -> list[Item]:
    """The items in the order of the keys; repeated keys give repeated items."""
    if isinstance(read, Range):
        return items
    by_key = {key_of(item): item for item in items}
    return [by_key[key] for key in read.keys if key in by_key]
