"""`decant dead`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from decant.cli import options
from decant.cli.failures import many, note
from decant.cli.output import Out
from decant.errors import MessageNotFound

if TYPE_CHECKING:
    from decant.client import Decant

IDS_MAX = 256


@click.group()
def dead() -> None:
    """List, show, redrive and purge the dead letters of a group."""


@dead.command()
@options.group
@options.limited
@options.writing("message_id", "dead_at_ms", "attempts", "reason", "key", "tag", "body", kind="DeadMessage")
@options.calling
def ls(topic: str, group: str, limit: int | None, out: Out, mq: Decant) -> None:
    """List dead letters, with the reason of each.

    \b
    decant dead ls orders billing
    decant dead ls orders billing -o jsonl > dead.jsonl
    """
    out.whole(options.first(mq.each(mq.api.list_dead, topic, group), limit))


@dead.command()
@options.group
@click.argument("message_id")
@options.writing()
@options.calling
def show(topic: str, group: str, message_id: str, out: Out, mq: Decant) -> None:
    """Show a dead letter.

    \b
    decant dead show orders billing "$ID"
    """
    for message in mq.each(mq.api.list_dead, topic, group, limit=1_000):
        if message["message_id"] == message_id:
            return out.one(message)
    raise MessageNotFound(404, {"code": "MessageNotFound", "detail": f"{group} has no dead letter {message_id!r}"})


@dead.command()
@options.group
@click.argument("message_ids", nargs=-1)
@click.option("--all", "is_all", is_flag=True, help="All that are there.")
@options.calling
def redrive(topic: str, group: str, message_ids: tuple[str, ...], is_all: bool, mq: Decant) -> None:
    """Have dead letters delivered again, to this group only.

    \b
    decant dead redrive orders billing "$ID"
    decant dead redrive orders billing --all
    """
    if is_all == bool(message_ids):
        raise click.UsageError("give ids of dead letters, or --all")
    redriven = 0
    try:
        for start in range(0, len(message_ids), IDS_MAX):
            part = message_ids[start : start + IDS_MAX]
            redriven += mq.api.redrive_dead(topic, group, message_ids=part)["redriven"]
        while is_all:
            answer = mq.api.redrive_dead(topic, group)
            redriven += answer["redriven"]
            is_all = answer["remaining"] > 0 and answer["redriven"] > 0
    finally:
        note(f"redrove {many(redriven, 'dead letter')}")


@dead.command()
@options.group
@options.destructive
@options.calling
def purge(topic: str, group: str, yes: bool, mq: Decant) -> None:
    """Throw all dead letters of a group away. Other groups keep the messages.

    \b
    decant dead purge orders billing --yes
    """
    options.demand(group, f"throws all dead letters of the group {group} of {topic} away", yes)
    purged = 0
    try:
        while part := mq.api.purge_dead(topic, group)["purged"]:
            purged += part
    finally:
        note(f"purged {many(purged, 'dead letter')}")
