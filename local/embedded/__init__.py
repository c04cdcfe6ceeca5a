"""DynamoDB and S3 inside this process, for laptops and tests: moto, patched from outside.

The behaviour of moto 5.2, the patch, and the time of one call over boto3, with 40 000 items in 4 partitions:

    updates         read, then write, unguarded; some get lost: one action at a time
    query           sorts every item of the table: sees one slice of one partition                  270 ms, now 1.6 ms
    scan            sorts every item of the table, for each megabyte: sees that one
    transaction     copies the whole table, to roll back: copies the items that it names           6400 ms, now 2.3 ms
    expressions     are read again and again: are read once                                4.5 ms in a claim, now 2.2 ms
    a new item      its attributes are set through the same: they are just set                      3.0 ms, now 0.6 ms
    answers         look up every value under several names: the JSON as it stands          3.2 ms in a get, now 1.3 ms
    memory          keeps every item ever made or copied, for a dashboard: keeps none
"""

from __future__ import annotations

import base64
import functools
import json
import os
import threading
from collections.abc import Callable
from typing import Any

from moto import mock_aws
from moto.core import responses
from moto.dynamodb.comparisons import ConditionExpressionParser
from moto.dynamodb.models import DynamoDBBackend
from moto.dynamodb.models.dynamo_type import DynamoType, Item
from moto.dynamodb.models.table import Table
from moto.dynamodb.parsing.ast_nodes import DepthFirstTraverser, Node  # type: ignore[attr-defined]
from moto.dynamodb.parsing.expressions import UpdateExpressionParser  # type: ignore[attr-defined]
from moto.dynamodb.responses import DynamoHandler, DynamoResult

from local.embedded import expressions, tables

_ITEM_ACTIONS = {"GetItem", "BatchGetItem", "Query", "Scan", "PutItem", "UpdateItem", "DeleteItem"}

_starting = threading.Lock()
_started = threading.Event()

Original = Callable[..., Any]


def start() -> None:
    """Starts the embedded DynamoDB and S3, once. Clients created afterwards use them; they end with the process."""
    with _starting:
        if not _started.is_set():
            _set_placeholders()
            mock_aws(config={"core": {"mock_credentials": False}}).start()
            _mend()
            _started.set()


def _set_placeholders() -> None:
    """Settings that boto3 requires, though moto does not check them."""
    if "AWS_ACCESS_KEY_ID" not in os.environ:
        os.environ.update(AWS_ACCESS_KEY_ID="embedded", AWS_SECRET_ACCESS_KEY="embedded")  # noqa: S106
    os.environ.setdefault("AWS_DEFAULT_REGION", os.environ.get("AWS_REGION", "us-east-1"))


def _mend() -> None:
    for model in (Item, Table):
        _replace(model, "instances_tracked", lambda _: _Forgetful())
    _replace(Table, "__init__", tables.with_partitions)
    _replace(Table, "query", tables.query_a_slice)
    _replace(Table, "scan", tables.scan_a_page)
    _replace(DynamoDBBackend, "transact_write_items", tables.transact_on_copies)
    _replace(DynamoDBBackend, "update_item", expressions.assigned_at_once)
    _replace(UpdateExpressionParser, "make", expressions.parsed_once)
    _replace(ConditionExpressionParser, "_lex_condition_expression", expressions.lexed_once)
    _replace(DepthFirstTraverser, "traverse_node_recursively", lambda _: expressions.visited_by_kind)
    _replace(Node, "__deepcopy__", lambda _: expressions.copied_node)
    _replace(DynamoType, "__deepcopy__", lambda _: expressions.copied_value)
    _replace(DynamoType, "to_regular_json", lambda _: expressions.plain_value)
    _replace(DynamoHandler, "call_action", _one_at_a_time)
    _replace(DynamoResult, "execute_result", _answer_as_it_stands)
    _replace(responses, "method_names_from_class", functools.cache)


def _replace(owner: Any, name: str, mend: Callable[[Any], Any]) -> None:
    setattr(owner, name, mend(getattr(owner, name, None)))


class _Forgetful(list[Any]):
    """Replaces the list in which moto collects every object that it makes."""

    def append(self, element: Any) -> None:
        pass


def _one_at_a_time(original: Original) -> Original:
    lock = threading.Lock()

    @functools.wraps(original)
    def call_action(handler: DynamoHandler) -> Any:
        with lock:
            return original(handler)

    return call_action


def _answer_as_it_stands(original: Original) -> Original:
    """The result of an item action is the wire's JSON already, but for its bytes."""

    def in_base64(value: bytes) -> str:
        return base64.b64encode(value).decode()

    @functools.wraps(original)
    def execute_result(self: DynamoResult, context: responses.ActionContext) -> Any:
        if context.operation_model.name not in _ITEM_ACTIONS:
            return original(self, context)
        return 200, {"Content-Type": "application/x-amz-json-1.0"}, json.dumps(self.result, default=in_base64)

    return execute_result
