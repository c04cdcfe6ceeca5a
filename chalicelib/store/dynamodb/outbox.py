"""A message as a part of somebody else's transaction."""

from __future__ import annotations

from typing import Any

from chalicelib.store.dynamodb.values import typed_item
from chalicelib.table.writes import Item


def put(table: str, item: Item) -> dict[str, Any]:
    """One of the `TransactItems` of `TransactWriteItems`. A new item: it fails where it is there already."""
    return {
        "Put": {
            "TableName": table,
            "Item": typed_item(item),
            "ConditionExpression": "attribute_not_exists(pk)",
        }
    }
