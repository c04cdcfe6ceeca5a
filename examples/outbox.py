"""Stores an order and sends a message in one transaction of DynamoDB: both, or neither.

    DECANT_TABLE=decant-dev .venv/bin/python -m examples.outbox

The transaction writes into Decant's table, so it needs credentials for the account and region of that table, where a
table `orders` is too. `pip install 'decant-mq[deploy]'` has what it needs.
"""

from typing import Any

import boto3

from decant import outbox


def store(dynamodb: Any, number: str, customer: str) -> None:
    """Raises what `transact_write_items` does, if the order is there already: then no message is sent."""
    order = {"id": {"S": number}, "state": {"S": "paid"}}
    dynamodb.transact_write_items(
        TransactItems=[
            {"Put": {"TableName": "orders", "Item": order, "ConditionExpression": "attribute_not_exists(id)"}},
            outbox.item("orders", f"order {number} paid", key=customer),
        ]
    )


if __name__ == "__main__":
    store(boto3.client("dynamodb"), "4711", "customer-7")
