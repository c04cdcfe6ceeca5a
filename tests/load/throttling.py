"""The answers of DynamoDB when requests exceed the capacity of a partition key. An emulator never throttles."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from itertools import count
from typing import Any

from chalicelib.core.table.writes import Key
from tests.support.partitions import Partitions

_READS = ("Query", "GetItem", "BatchGetItem")
_ERROR = "com.amazonaws.dynamodb.v20120810#%s"
_TABLE = "arn:aws:dynamodb:us-east-1:000000000000:table/load"


class Throttling:
    """Every request costs a unit for each item that it writes, half of one for each that it reads. A batch is refused
    as a whole."""

    def __init__(self, partitions: Partitions) -> None:
        self._partitions = partitions
        self._lock = threading.Lock()
        self._numbers = count()

    def reply(self, request: bytes, now: int) -> bytes | None:
        """The refusal of a request, or None if it passes."""
        head, _, body = request.partition(b"\r\n\r\n")
        action = _action(head)
        asked, is_write = json.loads(body or b"{}"), action not in _READS
        with self._lock:
            keys = list(_keys(action, asked))
            throttled = [not self._partitions.admits(key, is_write, now) for key in keys]
            if any(throttled):
                return _answer(self._refusal(action, throttled, is_write))
            for key in keys:
                self._partitions.charge(key, is_write, now, 1 if is_write else 0.5)
        return None

    def _refusal(self, action: str, throttled: list[bool], is_write: bool) -> dict[str, Any]:
        """DynamoDB has two codes for it."""
        if action == "TransactWriteItems":
            reasons = [{"Code": "ThrottlingError" if each else "None"} for each in throttled]
            return {"__type": _ERROR % "TransactionCanceledException", "CancellationReasons": reasons}
        code = ("ProvisionedThroughputExceededException", "ThrottlingException")[next(self._numbers) % 2]
        reason = f"Table{'Write' if is_write else 'Read'}KeyRangeThroughputExceeded"
        reasons = [{"reason": reason, "resource": _TABLE}]
        return {"__type": _ERROR % code, "message": f"{reason} exceeded", "throttlingReasons": reasons}


def _action(head: bytes) -> str:
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.lower() == b"x-amz-target":
            return value.rpartition(b".")[2].strip().decode()
    return ""


def _keys(action: str, asked: Mapping[str, Any]) -> Iterator[Key]:
    """The keys of the items that the request is about; for a query, the first one."""
    if action == "Query":
        values = asked["ExpressionAttributeValues"]
        yield Key(values[":pk"]["S"], values[":low" if asked.get("ScanIndexForward", True) else ":high"]["S"])
    elif action == "TransactWriteItems":
        for write in asked["TransactItems"]:
            yield from map(_key, write.values())
    elif action in ("BatchGetItem", "BatchWriteItem"):
        for requests in asked["RequestItems"].values():
            each = requests["Keys"] if action == "BatchGetItem" else requests
            yield from map(
                _key,
                ({"Key": one} for one in each)
                if action == "BatchGetItem"
                else (request for one in each for request in one.values()),
            )
    elif action in ("UpdateItem", "DeleteItem", "PutItem", "GetItem"):
        yield _key(asked)


def _key(request: Mapping[str, Any]) -> Key:
    item = request["Key"] if "Key" in request else request["Item"]
    return Key(item["pk"]["S"], item["sk"]["S"])


def _answer(problem: Mapping[str, Any]) -> bytes:
    body = json.dumps(problem).encode()
    head = b"HTTP/1.1 400 Bad Request\r\ncontent-type: application/x-amz-json-1.0\r\ncontent-length: %d\r\n\r\n"
    return head % len(body) + body
