"""`decant delayed`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from decant.cli import options
from decant.cli.failures import note
from decant.cli.output import Out

if TYPE_CHECKING:
    from decant.client import Decant


@click.group()
def delayed() -> None:
    """List and cancel messages that wait for their time."""


@delayed.command()
@options.topic
@options.limited
@options.writing("message_id", "deliver_at_ms", "key", "tag", "body", kind="DelayedMessage")
@options.calling
def ls(topic: str, limit: int | None, out: Out, mq: Decant) -> None:
    """List the messages that wait, by their time.

    \b
    decant delayed ls orders
    """
    out.whole(options.first(mq.each(mq.api.list_delayed, topic), limit))


@delayed.command()
@options.topic
@click.argument("message_ids", nargs=-1, required=True)
@options.calling
def cancel(topic: str, message_ids: tuple[str, ...], mq: Decant) -> None:
    """Cancel messages that wait. The answer is final.

    \b
    decant delayed cancel orders "$ID"
    """
    for message_id in message_ids:
        mq.api.cancel_delayed(topic, message_id)
        note(f"cancelled {message_id}")
