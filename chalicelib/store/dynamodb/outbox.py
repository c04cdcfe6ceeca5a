"""A message as part of the caller's own transaction."""

from __future__ import annotations

from typing import Any

from chalicelib.store.dynamodb.values import typed_item
from chalicelib.table.writes import Item


def put(table: str, item: Item) -> dict[str, Any]:
    """One of the `TransactItems` of `TransactWriteItems`. It fails if the item already exists."""
    return {
        "Put": {
            "TableName": table,
            "Item": typed_item(item),
            "ConditionExpression": "attribute_not_exists(pk)",
        }
    }
