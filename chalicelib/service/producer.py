"""Producing: messages to queues, packed into one entry for each, appended side by side."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from chalicelib.errors import StoreUnavailable
from chalicelib.log import Entry, entry
from chalicelib.message import ENTRY_ID_BYTES, Message, message_id
from chalicelib.packing import pack
from chalicelib.runtime import Runtime
from chalicelib.service.log_writer import LogWriter
from chalicelib.topic import Topic


@dataclass(frozen=True, slots=True)
class Produced:
    """What became of one message: where it is, or why it is not stored."""

    queue: int
    message_id: str | None = None
    offset: int | None = None
    error: StoreUnavailable | None = None


class Producer:
    def __init__(self, runtime: Runtime, writer: LogWriter) -> None:
        self._runtime = runtime
        self._writer = writer
        self._sticky: dict[str, int] = {}

    def produce(self, topic: Topic, messages: Sequence[tuple[Message, int | None]]) -> list[Produced]:
        """Stores messages, those of one queue under consecutive offsets, and answers in the order given.

        Raises StoreUnavailable only when none was stored (or, with `outcome="unknown"`, none that we know of)."""
        unkeyed = self._unkeyed_queue(topic)
        queues = [_queue(topic, message, asked, unkeyed) for message, asked in messages]
        by_queue: dict[int, list[int]] = {}
        for place, queue in enumerate(queues):
            by_queue.setdefault(queue, []).append(place)
        entries = [(queue, self._entry([messages[place][0] for place in places])) for queue, places in by_queue.items()]
        results = self._writer.append(topic, entries)
        _raise_if_none_stored(results)
        produced: list[Produced | None] = [None] * len(messages)
        for (queue, made), places, result in zip(entries, by_queue.values(), results, strict=True):
            for index, place in enumerate(places):
                produced[place] = _produced(queue, made, index, result)
        return [each for each in produced if each is not None]

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


def _raise_if_none_stored(results: Sequence[int | StoreUnavailable]) -> None:
    troubles = [result for result in results if isinstance(result, StoreUnavailable)]
    if len(troubles) == len(results):
        raise next((each for each in troubles if each.outcome_unknown), troubles[0])


def _produced(queue: int, made: Entry, index: int, result: int | StoreUnavailable) -> Produced:
    if isinstance(result, StoreUnavailable):
        return Produced(queue, error=result)
    return Produced(queue, message_id(made.id, queue, result + index), result + index)
