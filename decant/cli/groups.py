"""`decant group`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from decant import operations
from decant.cli import options
from decant.cli.failures import many, note
from decant.cli.output import Json, Out
from decant.cli.values import Position

if TYPE_CHECKING:
    from decant.client import Decant

COUNTS = ("ready", "in_flight", "retrying", "delayed", "dead", "lag")


@click.group()
def group() -> None:
    """List, show, set, move, pause and remove groups."""


@group.command()
@options.topic
@options.limited
@options.writing("group", *COUNTS, "paused", "ordered", "mode")
@options.calling
def ls(topic: str, limit: int | None, out: Out, mq: Decant) -> None:
    """List the groups of a topic with their progress.

    \b
    decant group ls orders
    """
    out.whole(options.first(mq.each(mq.api.list_groups, topic), limit))


@group.command()
@options.group
@options.writing()
@options.calling
def show(topic: str, group: str, out: Out, mq: Decant) -> None:
    """Show the settings of a group, and its progress in each queue.

    \b
    decant group show orders billing
    """
    out.one(mq.api.get_group(topic, group))


@group.command("set")
@options.group
@click.argument("settings", nargs=-1, metavar="[NAME=VALUE]...")
@options.writing()
@options.calling
def set_(topic: str, group: str, settings: tuple[str, ...], out: Out, mq: Decant) -> None:
    """Create a group, or change the settings that are given.

    Values are JSON, text, or durations such as 10s. A dot leads into an object: push.url=https://...

    \b
    decant group set orders billing max_attempts=5 invisible_ms=1m
    decant group set orders audit ordered=key backoff_ms=10s,1m,10m
    """
    out.one(_put(mq, topic, group, options.given_settings(settings)))


def _put(mq: Decant, topic: str, group: str, settings: Json) -> Any:
    return mq.call(operations.put_group(topic, group)._replace(body=settings or None))


@group.command()
@options.group
@options.destructive
@options.calling
def rm(topic: str, group: str, yes: bool, mq: Decant) -> None:
    """Remove a group, with its progress and its dead letters.

    \b
    decant group rm orders billing --yes
    """
    options.demand(group, f"removes the group {group} of {topic} with its progress and dead letters", yes)
    mq.api.delete_group(topic, group)
    note(f"removed group {group} of {topic}")


@group.command()
@options.group
@options.calling
def pause(topic: str, group: str, mq: Decant) -> None:
    """Have pops and pushes of a group deliver nothing.

    \b
    decant group pause orders billing
    """
    _put(mq, topic, group, _known(mq, topic, group, paused=True))
    note(f"paused group {group} of {topic}")


@group.command()
@options.group
@options.calling
def resume(topic: str, group: str, mq: Decant) -> None:
    """End the pause of a group.

    \b
    decant group resume orders billing
    """
    _put(mq, topic, group, _known(mq, topic, group, paused=False))
    note(f"resumed group {group} of {topic}")


def _known(mq: Decant, topic: str, group: str, **settings: Any) -> Json:
    """The settings, for a group that exists: a PUT would make it."""
    mq.api.get_group(topic, group)
    return settings


@group.command()
@options.group
@click.option("--watch", is_flag=True, help="Print again every --every, until Ctrl-C.")
@click.option("--every", type=options.DURATION, default="2s", show_default=True)
@options.writing("at_ms", *COUNTS)
@options.calling
def stats(topic: str, group: str, watch: bool, every: int, out: Out, mq: Decant) -> None:
    """Print how many messages of a group are ready, in flight, retrying, delayed and dead.

    \b
    decant group stats orders billing
    decant group stats orders billing --watch
    """
    try:
        while True:
            progress: Any = mq.api.get_group(topic, group)
            counts = {name: progress[name] for name in COUNTS}
            out.many([{"at_ms": time.time_ns() // 1_000_000, "topic": topic, "group": group, **counts}])
            if not watch:
                return
            time.sleep(max(every, 100) / 1_000)
    finally:
        out.end()


# -- reset ------------------------------------------------------------------------------------------------------------


@group.command()
@options.group
@click.option(
    "--to",
    "target",
    required=True,
    type=options.position("earliest", "latest", "now"),
    help="earliest, latest, now (waiting messages too), -1h, a time, or QUEUE:OFFSET.",
)
@click.option("--dry-run", is_flag=True, help="Tell how many messages come again or are skipped, and do nothing.")
@options.destructive
@options.writing("queue", "from", "to", "again", "skipped")
@options.calling
def reset(topic: str, group: str, target: Position, dry_run: bool, yes: bool, out: Out, mq: Decant) -> None:
    """Move a group: to replay messages, or to skip them.

    Waiting retries are dropped. Dead letters stay.

    \b
    decant group reset orders billing --to -1h --dry-run
    decant group reset orders billing --to earliest --yes
    """
    if target.newest is not None:
        raise click.UsageError("--to -10 is for peek; a group moves to an offset of each queue: 0:42")
    if dry_run:
        progress: Any = mq.api.get_group(topic, group)
        moves = planned(mq, topic, progress, target)
        again, skipped = (sum(move[name] for move in moves) for name in ("again", "skipped"))
        retries = many(progress["retrying"], "retry")
        note(f"{many(again, 'message')} would come again, {skipped} would be skipped, {retries} dropped")
        out.whole(moves)
        return
    options.demand(group, f"moves the group {group} of {topic} and drops its waiting retries", yes)
    moved: Any = mq.api.reset_group(topic, group, to=target.as_reset())
    note(f"moved group {group} of {topic}: {many(moved['ready'], 'message')} ready")


def planned(mq: Decant, topic: str, progress: Any, target: Position) -> list[Json]:
    """For each queue, what a reset would do. `again`: messages that were delivered before. `skipped`: messages that
    were not, or are in flight."""
    moves = []
    offsets = {queue["queue"]: queue for queue in mq.api.get_topic(topic)["queue_offsets"]}
    for queue in progress["queues"]:
        number, at = queue["queue"], queue["next_offset"]
        to = _offset(mq, topic, number, offsets.get(number, {"first_offset": 0, **queue}), target)
        if to is None:
            continue
        behind = queue["in_flight"] if to >= at else 0
        moves.append(
            {"queue": number, "from": at, "to": to, "again": max(at - to, 0), "skipped": max(to - at, 0) + behind}
        )
    return moves


def _offset(mq: Decant, topic: str, number: int, queue: Any, target: Position) -> int | None:
    """The offset that the queue is moved to. None: it is not moved."""
    if target.place:
        return target.place[1] if target.place[0] == number else None
    if target.at_ms is None:
        return int(queue["first_offset"] if target.name == "earliest" else queue["end_offset"])
    found = mq.api.read_messages(topic, queue=number, at_ms=target.at_ms, limit=1)["messages"]
    return found[0]["offset"] if found else int(queue["end_offset"])
