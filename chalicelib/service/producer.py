"""Producing: messages to queues, packed into one entry for each, appended side by side."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from chalicelib.errors import StoreUnavailable
from chalicelib.log import Entry, entry
from chalicelib.message import ENTRY_ID_BYTES, Message, message_id
from chalicelib.packing import pack
from chalicelib.runtime import Runtime
from chalicelib.service.delays import Delays, Waiting
from chalicelib.service.log_writer import LogWriter
from chalicelib.topic import Topic
from chalicelib.writes import Item


@dataclass(frozen=True, slots=True)
class Produced:
    """What became of one message: where it is, where and until when it waits, or why it is not stored."""

    queue: int
    message_id: str | None = None
    offset: int | None = None
    error: StoreUnavailable | None = None
    deliver_at_ms: int | None = None


class Producer:
    def __init__(self, runtime: Runtime, writer: LogWriter, delays: Delays) -> None:
        self._runtime = runtime
        self._writer = writer
        self._delays = delays
        self._sticky: dict[str, int] = {}

    def produce(self, topic: Topic, messages: Sequence[tuple[Message, int | None]]) -> list[Produced]:
        """Stores messages, those of one queue under consecutive offsets, and answers in the order given.

        Raises StoreUnavailable only when none was stored (or, with `outcome="unknown"`, none that we know of)."""
        unkeyed = self._unkeyed_queue(topic)
        queues = [_queue(topic, message, asked, unkeyed) for message, asked in messages]
        pairs = [(queue, message) for queue, (message, _) in zip(queues, messages, strict=True)]
        waiting = [place for place, (_, message) in enumerate(pairs) if message.deliver_at_ms is not None]
        by_queue: dict[int, list[int]] = {}
        for place, (queue, message) in enumerate(pairs):
            if message.deliver_at_ms is None:
                by_queue.setdefault(queue, []).append(place)
        produced = self._appended(topic, pairs, by_queue)
        if waiting:
            kept = self._delays.store(topic, [pairs[place] for place in waiting])
            produced |= {place: _delayed(each) for place, each in zip(waiting, kept, strict=True)}
        _raise_if_none_stored(produced.values())
        return [produced[place] for place in range(len(messages))]

    def outbox_item(self, topic: Topic, message: Message, asked: int | None) -> Item:
        """A message that waits, at least until now, as the item that somebody else is to store in a transaction. Its
        payload, if it has one, is stored here. Raises TopicNotFound, StoreUnavailable."""
        queue = _queue(topic, message, asked, self._unkeyed_queue(topic))
        due_ms = message.deliver_at_ms or self._runtime.now()
        return self._delays.item(topic, queue, replace(message, deliver_at_ms=due_ms))

    def _appended(
        self, topic: Topic, pairs: Sequence[tuple[int, Message]], by_queue: Mapping[int, Sequence[int]]
    ) -> dict[int, Produced]:
        """What became of the messages at these places, queue by queue."""
        entries = [(queue, self._entry([pairs[place][1] for place in places])) for queue, places in by_queue.items()]
        results = self._writer.append(topic, entries)
        return {
            place: _produced(queue, made, index, result)
            for (queue, made), places, result in zip(entries, by_queue.values(), results, strict=True)
            for index, place in enumerate(places)
        }

    def _unkeyed_queue(self, topic: Topic) -> int:
        """An instance stays with one queue, so that writers do not meet, and hops when others are there too."""
        queue = self._sticky.get(topic.id)
        if queue is None or self._writer.is_crowded(topic.log(queue)):
            queue = self._sticky[topic.id] = self._runtime.choice(range(topic.queues))
        return queue

    def _entry(self, messages: list[Message]) -> Entry:
        return entry(self._runtime.entropy(ENTRY_ID_BYTES), len(messages), pack(messages), self._runtime.now())


def queue_of_key(key: str, queues: int) -> int:
    """A hash that is the same in every process and version, as Python's own is not."""
    return int.from_bytes(hashlib.blake2b(key.encode(), digest_size=8).digest(), "big") % queues


def _queue(topic: Topic, message: Message, asked: int | None, unkeyed: int) -> int:
    if asked is not None:
        return asked
    return unkeyed if message.key is None else queue_of_key(message.key, topic.queues)


def _raise_if_none_stored(results: Collection[Produced]) -> None:
    troubles = [each.error for each in results if each.error is not None]
    if len(troubles) == len(results):
        raise next((each for each in troubles if each.outcome_unknown), troubles[0])


def _produced(queue: int, made: Entry, index: int, result: int | StoreUnavailable) -> Produced:
    if isinstance(result, StoreUnavailable):
        return Produced(queue, error=result)
    return Produced(queue, message_id(made.id, queue, result + index), result + index)


def _delayed(waiting: Waiting) -> Produced:
    if waiting.error is not None:
        return Produced(waiting.queue, error=waiting.error)
    return Produced(waiting.queue, waiting.message_id, deliver_at_ms=waiting.due_ms)
