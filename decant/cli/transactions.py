"""`decant transaction`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from decant.cli import options
from decant.cli.failures import note
from decant.cli.output import Out

if TYPE_CHECKING:
    from decant.client import Decant


@click.group()
def transaction() -> None:
    """List, commit and roll back transactions that nobody has decided."""


@transaction.command()
@options.topic
@options.limited
@options.writing("transaction_id", "created_at_ms", "rollback_at_ms", "checks", "messages")
@options.calling
def ls(topic: str, limit: int | None, out: Out, mq: Decant) -> None:
    """List the undecided transactions of a topic, oldest first.

    \b
    decant transaction ls orders
    """
    out.whole(options.first(mq.each(mq.api.list_transactions, topic), limit))


@transaction.command()
@options.topic
@click.argument("transaction_id")
@options.writing("message_id", "queue", "offset")
@options.calling
def commit(topic: str, transaction_id: str, out: Out, mq: Decant) -> None:
    """Deliver the messages of a transaction.

    \b
    decant transaction commit orders "$TRANSACTION"
    """
    out.whole(mq.api.commit_transaction(topic, transaction_id)["messages"])


@transaction.command()
@options.topic
@click.argument("transaction_id")
@options.calling
def rollback(topic: str, transaction_id: str, mq: Decant) -> None:
    """Drop the messages of a transaction.

    \b
    decant transaction rollback orders "$TRANSACTION"
    """
    mq.api.rollback_transaction(topic, transaction_id)
    note(f"rolled back {transaction_id}")
