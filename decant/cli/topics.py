"""`decant topic`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from decant import operations
from decant.cli import options
from decant.cli.failures import note
from decant.cli.output import Out

if TYPE_CHECKING:
    from decant.client import Decant


@click.group()
def topic() -> None:
    """List, show, set and remove topics."""


@topic.command()
@options.limited
@options.writing("topic", "queues", "retention_ms", "max_depth", "created_at_ms")
@options.calling
def ls(limit: int | None, out: Out, mq: Decant) -> None:
    """List the topics.

    \b
    decant topic ls
    """
    out.whole(options.first(mq.each(mq.api.list_topics), limit))


@topic.command()
@options.topic
@options.writing()
@options.calling
def show(topic: str, out: Out, mq: Decant) -> None:
    """Show a topic: its settings, groups and queues.

    \b
    decant topic show orders
    """
    out.one(mq.api.get_topic(topic))


@topic.command("set")
@options.topic
@click.argument("settings", nargs=-1, metavar="[NAME=VALUE]...")
@options.writing()
@options.calling
def set_(topic: str, settings: tuple[str, ...], out: Out, mq: Decant) -> None:
    """Create a topic, or change the settings that are given.

    Values are JSON, text, or durations such as 7d. `decant api GET /openapi.json` has all names.

    \b
    decant topic set orders queues=8 retention_ms=7d
    """
    call = operations.put_topic(topic)
    out.one(mq.call(call._replace(body=options.given_settings(settings) or None)))


@topic.command()
@options.topic
@options.destructive
@options.calling
def rm(topic: str, yes: bool, mq: Decant) -> None:
    """Remove a topic, with its messages and groups.

    \b
    decant topic rm orders --yes
    """
    options.demand(topic, f"removes the topic {topic} with its messages and groups", yes)
    mq.api.delete_topic(topic)
    note(f"removed topic {topic}")
