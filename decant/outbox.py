"""A message in a DynamoDB transaction of your own: both are stored, or neither.

    from decant import outbox

    dynamodb.transact_write_items(
        TransactItems=[
            {"Put": {"TableName": "orders", "Item": order}},
            outbox.item("orders", "4711 paid", key="customer-7"),
        ]
    )

It runs the service's own code over its table: the extra `deploy`, `DECANT_TABLE`, and AWS credentials for the account
and region of that table are needed.
"""

from __future__ import annotations

from typing import Any, TypeVar, Unpack

from decant.messages import Options, Outgoing
from decant.payloads import Topic, topic_of

T = TypeVar("T")


def item(topic: str | Topic[T], value: T, **options: Unpack[Options]) -> dict[str, Any]:
    """The message as an item for `TransactItems`. `options`: those of a send. Use each in one transaction, within 15
    minutes. Raises the errors of the service, and ModuleNotFoundError without the extra."""
    chosen = topic_of(topic)
    message = Outgoing(value, **options).as_json(chosen)
    try:
        from chalicelib.hooks import outbox_item

        return outbox_item(chosen.name, message)
    except ModuleNotFoundError as error:
        missing = f"decant.outbox needs {error.name}: pip install 'decant-mq[deploy]'"
        raise ModuleNotFoundError(missing, name=error.name) from error
