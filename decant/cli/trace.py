"""`decant trace`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from decant.cli import options
from decant.cli.output import Out

if TYPE_CHECKING:
    from decant.client import Decant


@click.command()
@options.topic
@click.argument("message_id")
@options.writing()
@options.calling
def trace(topic: str, message_id: str, out: Out, mq: Decant) -> None:
    """Show what became of a message in each group, and the events that led there.

    \b
    decant trace orders "$ID"
    """
    out.one(mq.api.get_trace(topic, message_id))
