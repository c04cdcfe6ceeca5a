"""`decant export` and `decant copy`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from decant.cli import options, sources
from decant.cli.failures import many, note
from decant.cli.output import Out, Progress, encoded
from decant.cli.peek import Reading
from decant.cli.send import Sending
from decant.cli.values import Position

if TYPE_CHECKING:
    from decant.client import Decant

START = options.position("earliest", "latest")
BATCH = 256


def stored(mq: Decant, topic: str, start: Position, progress: Progress) -> Iterator[Any]:
    """The messages of a topic that are stored when this begins, queue by queue."""
    reading = Reading(mq, topic, start.place and start.place[0])
    first = {queue["queue"]: queue["first_offset"] for queue in reading.queues()}
    begins = {
        number: _begin(mq, topic, start, number, first.get(number, 0), end) for number, end in reading.ends.items()
    }
    progress.total = sum(max(end - begins[number], 0) for number, end in reading.ends.items())
    done = 0
    for number, end in reading.ends.items():
        for message in reading.between(number, begins[number], end):
            yield message
            done += 1
            progress.at(done)


def _begin(mq: Decant, topic: str, start: Position, number: int, first: int, end: int) -> int:
    """The offset to begin with."""
    if start.newest is not None:
        return max(first, end - start.newest)
    if start.place:
        return max(first, start.place[1])
    if start.name:
        return first if start.name == "earliest" else end
    found = mq.api.read_messages(topic, queue=number, at_ms=start.at_ms, limit=1)["messages"]
    return found[0]["offset"] if found else end


@click.command()
@options.topic
@click.option("--from", "start", type=START, default="earliest", show_default=True, help="As that of peek.")
@click.option("--to", "path", type=click.Path(path_type=Path), help="A file, which appears when it is whole.")
@options.calling
def export(topic: str, start: Position, path: Path | None, mq: Decant) -> None:
    """Write the messages of a topic as JSON Lines, queue by queue: `decant send -f` reads them.

    \b
    decant export orders --to orders.jsonl
    decant export orders --from -1h > orders.jsonl
    """
    progress = Progress("messages")
    messages = stored(mq, topic, start, progress)
    try:
        if path is None:
            out = Out((), "jsonl")
            out.many(messages)
        else:
            note(f"wrote {many(_write(path, messages), 'message')} to {path}")
    finally:
        progress.end()


def _write(path: Path, messages: Iterator[Any]) -> int:
    """Writes a file beside, and moves it there once it is whole. Returns how many messages it has."""
    part = path.with_name(f"{path.name}.part")
    count = 0
    try:
        with part.open("wb") as file:
            for message in messages:
                file.write(encoded(sources.line_of(message)))
                count += 1
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    return count


@click.command()
@options.topic
@click.argument("target", type=options.Name("topic"), metavar="TOPIC2")
@click.option("--from", "start", type=START, default="earliest", show_default=True, help="As that of peek.")
@click.option("--to-url", metavar="URL", help="Where TOPIC2 is, with the token in DECANT_TOKEN.")
@click.option("--to-context", metavar="NAME", help="The context that TOPIC2 is in.")
@options.calling
def copy(topic: str, target: str, start: Position, to_url: str | None, to_context: str | None, mq: Decant) -> None:
    """Copy the messages of a topic into another, which must be there: bodies, keys, tags and properties.

    Messages of one key keep their order. Repeated within five minutes, it stores nothing twice.

    \b
    decant copy orders archive
    decant copy orders archive --from -1h
    """
    from decant.cli.service import client

    progress = Progress("messages")
    with client(to_url, to_context) if to_url or to_context else nullcontext(mq) as other:
        sending = Sending(other, target, None, progress, prints_failed=False)
        copies = (_copy(message) for message in stored(mq, topic, start, progress))
        code = sending.all(sources.batches(copies))
    if code == 0:
        note(f"copied {many(sending.sent, 'message')} to {target}")
    raise SystemExit(code)


def _copy(message: Any) -> sources.Json:
    return {**sources.sendable(message), "dedup_id": f"copy-{message['message_id']}"}
