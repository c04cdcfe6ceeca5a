"""Reads a table from any DynamoDB endpoint, in pages, by several threads."""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from spark.errors import BadInput
from spark.exporting.typed_json import Typed

_CONNECT_SECONDS, _READ_SECONDS, _TRIES = 3, 60, 5
_REFUSED_KEY = (
    *("UnrecognizedClientException", "InvalidSignatureException", "AccessDeniedException"),
    *("MissingAuthenticationTokenException", "IncompleteSignatureException"),
)
_PAGES_AHEAD = 2
"""Pages of a megabyte that each thread reads ahead, so that memory stays bounded for tables of any size."""

Page = list[Typed]


@dataclass(frozen=True)
class Table:
    """`keys`: the names of the attributes of its primary key. `items`: the number of items, if known."""

    client: Any
    endpoint: str
    name: str
    keys: tuple[str, ...]
    items: int

    @classmethod
    def open(cls, endpoint: str, name: str) -> Table:
        """Raises `BadInput` if the endpoint does not respond, or has no such table."""
        client = _client(endpoint)
        try:
            about = client.describe_table(TableName=name)["Table"]
        except (ClientError, BotoCoreError, ValueError) as error:
            raise _said(error, endpoint, name) from error
        keys = tuple(key["AttributeName"] for key in sorted(about["KeySchema"], key=lambda key: key["KeyType"]))
        return cls(client, endpoint, name, keys, about.get("ItemCount", 0))

    def pages(self, segments: int) -> Iterator[Page]:
        """All items, read by `segments` threads at once. Raises `BadInput` if the endpoint fails."""
        pages: queue.Queue[Page | Exception | None] = queue.Queue(segments * _PAGES_AHEAD)
        stopping = threading.Event()
        for segment in range(segments):
            arguments = (pages, stopping, segment, segments)
            threading.Thread(target=self._scan, args=arguments, name=f"scan-{segment}", daemon=True).start()
        left = segments
        try:
            while left:
                page = pages.get()
                if isinstance(page, Exception):
                    raise _said(page, self.endpoint, self.name) from page
                if page is None:
                    left -= 1
                else:
                    yield page
        finally:
            stopping.set()
            while not pages.empty():  # threads that wait for room end
                pages.get_nowait()

    def _scan(
        self, pages: queue.Queue[Page | Exception | None], stopping: threading.Event, segment: int, segments: int
    ) -> None:
        start: dict[str, Any] = {}
        try:
            while not stopping.is_set():
                page = self.client.scan(
                    TableName=self.name, Segment=segment, TotalSegments=segments, ConsistentRead=True, **start
                )
                pages.put(page["Items"])
                if "LastEvaluatedKey" not in page:
                    break
                start = {"ExclusiveStartKey": page["LastEvaluatedKey"]}
            pages.put(None)
        except Exception as error:  # noqa: BLE001 - the reader of the pages raises it
            pages.put(error)


def _client(endpoint: str) -> Any:
    """Signs with the access key of the environment, which `ACCESS=on make run` requires. Otherwise sets placeholders,
    since emulators check neither credentials nor region but boto3 requires them."""
    config = Config(
        connect_timeout=_CONNECT_SECONDS,
        read_timeout=_READ_SECONDS,
        retries={"total_max_attempts": _TRIES, "mode": "standard"},
        max_pool_connections=64,
    )
    given: dict[str, Any] = {}
    if ".amazonaws.com" not in endpoint and "AWS_ACCESS_KEY_ID" not in os.environ:
        given = {"aws_access_key_id": "local", "aws_secret_access_key": "local"}
    region = boto3.Session().region_name or "us-east-1"
    try:
        return boto3.client("dynamodb", endpoint_url=endpoint, region_name=region, config=config, **given)
    except ValueError as error:
        raise BadInput(f"{endpoint!r} is not an endpoint URL: {error}") from error


def _said(error: Exception, endpoint: str, name: str) -> BadInput:
    if isinstance(error, ClientError) and error.response["Error"]["Code"] == "ResourceNotFoundException":
        return BadInput(f"there is no table {name!r} at {endpoint}")
    advice = ""
    if isinstance(error, ClientError) and error.response["Error"]["Code"] in _REFUSED_KEY:
        advice = "; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY to an access key that may read all of it"
    return BadInput(f"{endpoint} cannot be read: {' '.join(str(error).split())}{advice}")
