"""Moves dead messages into the topic that their group's `dead_letters` names. The group then has no letters for them.

| failure | result |
| --- | --- |
| a caller crashes before its transaction | nothing has happened but unused payloads: the next caller does the same |
| a caller crashes after it | the messages wait in the topic and are due: its next pop, or a sweep, delivers them |
| two callers move one message | one transaction takes it out of its lease, the other is rejected |
| the topic is deleted, or made again | the transaction is rejected: the messages stay with their group |

One transaction takes the messages out of their leases and stores each as a delayed one that is due at once, so a
message is always in one place, and is delivered there once (see `delays.decision`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace

from chalicelib.core.base.errors import StoreUnavailable, TopicNotFound
from chalicelib.core.base.limits import BODY_BYTES_MAX
from chalicelib.core.base.message import Message, Stored
from chalicelib.core.catalogue import topic as topics
from chalicelib.core.catalogue.catalogue import Env
from chalicelib.core.catalogue.group import Group
from chalicelib.core.catalogue.topic import DELAYS, Topic
from chalicelib.core.cursors.cursor import Cursor
from chalicelib.core.cursors.cursor_writes import bury, write
from chalicelib.core.cursors.lease import Lease, runs
from chalicelib.core.delays import Delays
from chalicelib.core.delays.decision import wait
from chalicelib.core.log import Log
from chalicelib.core.log.reader import Want, entries, entry_at, within_reach
from chalicelib.core.log.segment import Segment
from chalicelib.core.producing.produce import queue_of_key
from chalicelib.core.table import keys
from chalicelib.core.table.writes import Refused, Write

Chosen = list[tuple[Lease, list[int]]]

MOVED_BYTES_MAX = 2 * BODY_BYTES_MAX
"""Messages that move together, unless one entry has more, since the instance holds all of them in memory."""

ID, SENT, SOURCE, ORIGIN, COUNT = "sqs:id", "sqs:sent", "sqs:source", "sqs:origin", "sqs:count"
REASON = "decant.reason"
"""Properties of a moved message: its first id, when it was first sent, the last group that gave it up and its place
there, how often it was delivered in total, and why it was given up."""


_LOST_BODY = "the content of this message was lost"
"""A delivered body is not empty."""


class Mover:
    def __init__(self, env: Env, log: Log, delays: Delays, stored: Callable[[Topic], None]) -> None:
        self._store, self._runtime, self._catalogue = env.store, env.runtime, env.catalogue
        self._reader, self._payloads = log.reader, log.payloads
        self._delays, self._promoter = delays.writer, delays.promoter
        self._stored = stored

    def target(self, group: Group) -> Topic | None:
        """The topic of the group's dead messages. None: the topic does not exist."""
        with suppress(TopicNotFound):
            return self._catalogue.topic(group.dead_topic or "")
        return None

    def move(self, group: Group, cursor: Cursor, chosen: Chosen, reason: str) -> Chosen:
        """Moves the first of these messages, as many as `MOVED_BYTES_MAX` allows, and returns them. None: a lease has
        changed, or the topic is gone. A message that the log no longer has only leaves its lease."""
        topic = self.target(group)
        if topic is None:
            return []
        chosen, found = self._read(group, cursor, chosen)
        attempts = {lease.start + index: lease.attempt for lease, indexes in chosen for index in indexes}
        moved = [_moved(stored, group, attempts[stored.offset], reason) for stored in found]
        try:
            self.send(cursor, chosen, topic, moved)
        except (Refused, TopicNotFound):
            self._catalogue.forget(topic.name)
            return []
        return chosen

    def send(
        self, cursor: Cursor, chosen: Chosen, topic: Topic, messages: Sequence[Message], also: Sequence[Write] = ()
    ) -> None:
        """Takes the chosen messages out of their leases and stores the given messages in the topic, in one transaction
        with further writes. Raises Refused, TopicNotFound, StoreUnavailable."""
        writers = topic.writers(self._runtime.now())
        placed = [(_queue(message, cursor, writers), message) for message in messages]
        self._write(cursor, chosen, topic, placed, also)
        self._deliver(topic, Counter(queue for queue, _ in placed))

    def _write(
        self,
        cursor: Cursor,
        chosen: Chosen,
        topic: Topic,
        placed: Sequence[tuple[int, Message]],
        also: Sequence[Write],
    ) -> None:
        """The topic already has delayed messages, so the write only demands that it is still this topic."""
        waiting = self._delays.waiting(placed)
        stored = self._delays.entries(topic, waiting) if waiting else []
        waits = [
            wait(topic.id, message.queue, message.due_ms, entry) for message, entry in zip(waiting, stored, strict=True)
        ]
        leaving = write(cursor, bury(chosen, 0))
        self._store.write_together([leaving, topics.begin(topic, DELAYS), *also, *waits])

    def _deliver(self, topic: Topic, counts: Counter[int]) -> None:
        """If this fails, the next pop or sweep does it."""
        with suppress(StoreUnavailable, TopicNotFound):
            for queue, count in counts.items():
                while count > 0 and (promoted := self._promoter.promote(topic, queue)):
                    count -= promoted
            self._stored(topic)

    def _read(self, group: Group, cursor: Cursor, chosen: Chosen) -> tuple[Chosen, list[Stored]]:
        """The first of these messages, and those of them that are in the log."""
        log = keys.log(group.topic_id, cursor.queue)
        wanted = sorted(lease.start + index for lease, indexes in chosen for index in indexes)
        wants = [Want(log, run.start, len(run), None) for run in runs(wanted)]
        chains = self._reader.chains(wants, strong=True)
        by_base = {segment.base: segment for chain in chains for segment in chain}
        chain = [by_base[base] for base in sorted(by_base)]
        present = [offset for offset in wanted if entry_at(chain, offset)]
        reached = within_reach(chain, present, MOVED_BYTES_MAX)
        first_left = present[len(reached)] if len(reached) < len(present) else None
        kept = [
            (lease, own)
            for lease, indexes in chosen
            if (own := [index for index in indexes if first_left is None or lease.start + index < first_left])
        ]
        return kept, self._messages(group.topic_id, cursor.queue, chain, reached)

    def _messages(self, topic_id: str, queue: int, chain: Sequence[Segment], offsets: Sequence[int]) -> list[Stored]:
        """A message whose payload is missing is `LOST`."""
        wanted = {*offsets}
        placed = [
            (offset, first, entry)
            for first, entry in entries(chain)
            for offset in range(first, first + entry.count)
            if offset in wanted
        ]
        by_id = self._payloads.messages(topic_id, {entry.id: entry for _, _, entry in placed}.values())
        return [
            Stored(by_id[entry.id][offset - first], queue, offset, entry.id, entry.stored_at_ms)
            for offset, first, entry in placed
        ]


def _moved(stored: Stored, group: Group, attempt: int, reason: str) -> Message:
    """The message to send to the topic."""
    message = stored.message
    properties = {name: value for name, value in message.properties.items() if name != REASON}
    about = {
        SOURCE: group.dead_source,
        ORIGIN: f"{stored.queue}:{stored.offset}",
        COUNT: str(attempt + received_before(message)),
        **({REASON: reason} if reason else {}),
    }
    first = {ID: stored.message_id, SENT: str(message.sent_at_ms or stored.stored_at_ms)}
    whole = Message(_LOST_BODY, None, None, None, {}) if message.is_lost else message
    return _sent_again(whole, {**first, **properties, **about})


def as_new(message: Message) -> Message:
    """The message without the properties that moves of dead messages add."""
    added = {ID, SENT, SOURCE, ORIGIN, COUNT, REASON}
    return _sent_again(message, {n: text for n, text in message.properties.items() if n not in added})


def _sent_again(message: Message, properties: dict[str, str]) -> Message:
    """The message without its time to live and its request for a reply."""
    return replace(message, properties=properties, ttl_ms=None, correlation_id=None, reply_by_ms=None, sent_at_ms=None)


def received_before(message: Message) -> int:
    """How often the message was delivered before it moved. 0: it did not move, or its property is not from a move."""
    text = message.properties.get(COUNT, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _COUNT_DIGITS_MAX else 0


_COUNT_DIGITS_MAX = 9


def _queue(message: Message, cursor: Cursor, queues: int) -> int:
    """The queue of its key. Without a key, one queue for all messages of a source queue, so that they keep their
    order."""
    return cursor.queue % queues if message.key is None else queue_of_key(message.key, queues)
