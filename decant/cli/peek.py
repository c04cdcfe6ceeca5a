"""`decant peek`."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

import click

from decant.cli import options
from decant.cli.output import Out
from decant.cli.values import Position

if TYPE_CHECKING:
    from decant.client import Decant

LOOK_S = 0.5
PAGE = 100


@click.command()
@options.topic
@click.option("-n", "--count", type=click.IntRange(1), default=10, show_default=True, help="How many messages.")
@click.option(
    "--from",
    "start",
    type=options.position("earliest", "latest"),
    help="earliest, latest, -10, -1h, a time, or QUEUE:OFFSET.  [default: the newest]",
)
@click.option("--key", help="Those with this key; the topic needs index_keys.")
@click.option("--id", "message_id", help="The message with this id.")
@click.option("--follow", is_flag=True, help="Go on with new messages, until Ctrl-C.")
@options.writing("message_id", "queue", "offset", "stored_at_ms", "key", "tag", "body", kind="Message")
@options.calling
def peek(
    topic: str,
    count: int,
    start: Position | None,
    key: str | None,
    message_id: str | None,
    follow: bool,
    out: Out,
    mq: Decant,
) -> None:
    """Read messages of a topic without leasing them: no group notices.

    \b
    decant peek orders
    decant peek orders --from earliest -n 100 -o jsonl
    decant peek orders --from 0:0 --template '{offset} {body}'
    decant peek orders --from -1h --follow
    """
    if message_id is not None:
        if key is not None or start or follow:
            raise click.UsageError("--id stands alone")
        return out.one(mq.api.get_message(topic, message_id))
    if key is not None and (start or follow):
        raise click.UsageError("--key excludes --from and --follow")
    if key is not None:
        return out.whole(islice(mq.each(mq.api.read_messages, topic, key=key, limit=min(count, PAGE)), count))
    start = start or Position(newest=count)
    reading = Reading(mq, topic, start.place and start.place[0])
    is_counted = start.newest is not None or not follow
    messages = reading.past(start, count if is_counted else None)
    if not follow:
        return out.whole(messages)
    try:
        out.many(messages)
        for found in reading.future():
            out.many(found)
    finally:
        out.end()


class Reading:
    """Reads a topic, or one queue of it, from a position on, and goes on from there. `ends`: for each queue, the next
    offset to read."""

    def __init__(self, mq: Decant, topic: str, only: int | None = None) -> None:
        self._mq, self._topic, self._only = mq, topic, only
        self.ends = {queue["queue"]: queue["end_offset"] for queue in self.queues()}

    def queues(self) -> list[Any]:
        queues: list[Any] = self._mq.api.get_topic(self._topic)["queue_offsets"]
        return [queue for queue in queues if self._only in (None, queue["queue"])]

    def past(self, start: Position, count: int | None) -> Iterable[Any]:
        """The messages that were stored when this began: `count` of them, or all."""
        if start.newest is not None:
            return self.newest(start.newest if count is None else min(start.newest, count))
        if start.name == "latest":
            return []
        place: dict[str, Any] = {} if start.at_ms is None else {"at_ms": start.at_ms}
        if start.place:
            place = {"queue": start.place[0], "offset": start.place[1]}
        every = self._mq.each(self._mq.api.read_messages, self._topic, limit=min(count or PAGE, PAGE), **place)
        stored = (message for message in every if message["offset"] < self.ends.get(message["queue"], 0))
        return islice(stored, count)

    def newest(self, count: int) -> list[Any]:
        """The newest messages of all queues, oldest first."""
        found: list[Any] = []
        for queue in self.queues():
            end = min(queue["end_offset"], self.ends.get(queue["queue"], 0))
            found += self.between(queue["queue"], max(queue["first_offset"], end - count), end)
        return sorted(found, key=_order)[-count:]

    def between(self, queue: int, offset: int, end: int) -> Iterator[Any]:
        """The messages of a queue from an offset up to another."""
        if offset >= end:
            return
        limit = min(end - offset, PAGE)
        for message in self._mq.each(self._mq.api.read_messages, self._topic, queue=queue, offset=offset, limit=limit):
            if message["offset"] >= end:
                return
            yield message

    def future(self) -> Iterator[list[Any]]:
        """The messages that are stored later, for ever."""
        while True:
            time.sleep(LOOK_S)
            found: list[Any] = []
            for queue in self.queues():
                number, first, end = queue["queue"], queue["first_offset"], queue["end_offset"]
                begin = self.ends.get(number, first)
                found += self.between(number, first if end < begin else begin, end)  # less: the topic was made anew
                self.ends[number] = end
            if found:
                yield sorted(found, key=_order)


def _order(message: Any) -> tuple[int, int, int]:
    return message["stored_at_ms"], message["queue"], message["offset"]
