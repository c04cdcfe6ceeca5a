"""Produce: assigns messages to queues, packs one entry per queue, and appends the entries in parallel."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from chalicelib.base import deadline
from chalicelib.base.errors import StoreUnavailable
from chalicelib.base.limits import HOP_MS_MAX, HOP_MS_MIN, TRANSACTION_ITEMS_MAX
from chalicelib.base.message import ENTRY_ID_BYTES, Message, Produced
from chalicelib.catalogue.env import Env
from chalicelib.catalogue.topic import Topic
from chalicelib.delays.writer import DelayWriter
from chalicelib.log import Log
from chalicelib.log.segment import Entry
from chalicelib.log.writer import Packed
from chalicelib.producing.dedup import Deduplication
from chalicelib.producing.new_message import Sent
from chalicelib.producing.queue_choice import QueueChoice
from chalicelib.table.writes import Item

HOPS_MAX = 3
"""Other queues on which an unkeyed message is tried. If four queues fail, the store does."""


@dataclass(eq=False, slots=True)
class Sending:
    """A message on its way into a queue, and its result once there is one. `asked`: the queue named by the request."""

    message: Message
    asked: int | None
    queue: int = 0
    result: Produced | None = None

    @property
    def is_deduplicated(self) -> bool:
        return self.message.dedup_id is not None

    @property
    def may_hop(self) -> bool:
        """Whether any queue will do."""
        return self.asked is None and self.message.key is None


class Producer:
    def __init__(self, env: Env, log: Log, delays: DelayWriter) -> None:
        self._runtime = env.runtime
        self._writer = log.writer
        self._deduplication = Deduplication(env, log, delays)
        self._delays = delays
        self._choice = QueueChoice(env.runtime, log.writer.is_crowded)

    def produce(self, topic: Topic, messages: Sequence[Sent]) -> list[Produced]:
        """Stores messages, those of one queue at consecutive offsets, and returns results in the given order.

        Raises StoreUnavailable only if none was stored (with `outcome="unknown"`: none that is known)."""
        sendings = _sendings(messages)
        own = list(dict.fromkeys(sendings))
        unkeyed = self._choice.unkeyed(topic)
        for each in own:
            each.queue = _queue(topic, each.message, each.asked, unkeyed)
        delayed = [each for each in own if each.message.deliver_at_ms is not None]
        if delayed:
            self._delay(topic, delayed)
        by_queue = _by_queue(each for each in own if each.message.deliver_at_ms is None)
        plain: dict[int, list[Sending]] = {}
        for queue, together in by_queue.items():
            if any(each.is_deduplicated for each in together):
                self._append_once(topic, queue, together)
            else:
                plain[queue] = together
        if plain:
            self._append(topic, plain, set(by_queue))
        results = [each.result for each in sendings if each.result]
        _raise_if_none_stored(results)
        return results

    def outbox_item(self, topic: Topic, message: Message, asked: int | None) -> Item:
        """A delayed message, due now at the earliest, as the item for the caller's own transaction. Stores its payload,
        if it has one. Raises TopicNotFound, StoreUnavailable."""
        queue = _queue(topic, message, asked, self._choice.unkeyed(topic))
        due_ms = message.deliver_at_ms or self._runtime.now()
        [entry_id] = self._delays.ids(1)
        return self._delays.item(topic, queue, replace(message, deliver_at_ms=due_ms), entry_id)

    def _delay(self, topic: Topic, delayed: Sequence[Sending]) -> None:
        """Stores delayed messages: those with dedup ids one by one, the others together."""
        named = list(zip(delayed, self._delays.ids(len(delayed)), strict=True))
        plain = [(each, entry_id) for each, entry_id in named if not each.is_deduplicated]
        if plain:
            results = self._delays.store(topic, [(each.queue, each.message, entry_id) for each, entry_id in plain])
            for (each, _), result in zip(plain, results, strict=True):
                each.result = result
        for each, entry_id in named:
            if each.is_deduplicated:
                each.result = self._deduplication.delay(topic, each.queue, each.message, entry_id)

    def _append_once(self, topic: Topic, queue: int, together: Sequence[Sending]) -> None:
        """Stores messages with dedup ids, and those that share their entries. They stay in their queue if it fails,
        since other callers may be completing the entry there."""
        for part in _parts(together):
            results = self._deduplication.append(topic, queue, [each.message for each in part])
            for each, result in zip(part, results, strict=True):
                each.result = result
                self._note(topic, result.queue, result.error)

    def _append(self, topic: Topic, by_queue: Mapping[int, list[Sending]], used: set[int]) -> None:
        """Stores one entry per queue, in parallel. Retries entries that were certainly not stored: messages that can go
        anywhere in a queue this call has not used yet, the others in their own if it did not have the whole time."""
        for hops_left in range(HOPS_MAX, -1, -1):
            may_hop = hops_left and any(each.may_hop for together in by_queue.values() for each in together)
            others = self._choice.others(topic, used) if may_hop else []
            with deadline.part_until(self._part_until_ms() if others else None):
                failed = self._append_each(topic, by_queue)
            if not failed or not others:
                break
            other = self._choice.hop(topic, others)
            used.add(other)
            for each in failed:
                each.queue = other if each.may_hop else each.queue
            by_queue = _by_queue(failed)

    def _append_each(self, topic: Topic, by_queue: Mapping[int, list[Sending]]) -> list[Sending]:
        """Tries once. Returns the messages that were certainly not stored."""
        packed = [self._packed(queue, together) for queue, together in by_queue.items()]
        firsts = self._writer.append(topic, packed)
        failed: list[Sending] = []
        for (queue, made, _), together, first in zip(packed, by_queue.values(), firsts, strict=True):
            error = first if isinstance(first, StoreUnavailable) else None
            self._note(topic, queue, error)
            for index, each in enumerate(together):
                each.result = Produced.stored(queue, made.id, index, first)
            failed += together if error and not error.outcome_unknown else []
        return failed

    def _part_until_ms(self) -> int:
        now = self._runtime.uptime()
        left_ms = deadline.give_up_at_ms(now) - now
        return now + max(min(HOP_MS_MAX, left_ms // 2), HOP_MS_MIN)

    def _note(self, topic: Topic, queue: int, error: StoreUnavailable | None) -> None:
        note = self._choice.failed if error else self._choice.worked
        note(topic.logs[queue])

    def _packed(self, queue: int, together: Sequence[Sending]) -> Packed:
        messages = [sending.message for sending in together]
        return queue, Entry.packed(self._runtime.entropy(ENTRY_ID_BYTES), messages, self._runtime.now()), messages


def queue_of_key(key: str, queues: int) -> int:
    """A hash that, unlike Python's own, is the same in every process and version."""
    return int.from_bytes(hashlib.blake2b(key.encode(), digest_size=8).digest(), "big") % queues


def _queue(topic: Topic, message: Message, asked: int | None, unkeyed: int) -> int:
    if asked is not None:
        return asked
    return unkeyed if message.key is None else queue_of_key(message.key, topic.queues)


def _sendings(messages: Iterable[Sent]) -> list[Sending]:
    """One for each message, the same one for all messages with the same dedup id."""
    by_id: dict[str, Sending] = {}
    sendings: list[Sending] = []
    for message, asked in messages:
        sending = Sending(message, asked)
        sendings.append(sending if message.dedup_id is None else by_id.setdefault(message.dedup_id, sending))
    return sendings


def _by_queue(sendings: Iterable[Sending]) -> dict[int, list[Sending]]:
    by_queue: dict[int, list[Sending]] = {}
    for each in sendings:
        by_queue.setdefault(each.queue, []).append(each)
    return by_queue


def _parts(sendings: Sequence[Sending]) -> Iterator[list[Sending]]:
    """The messages in order, split where a part would have more dedup ids than one transaction can claim."""
    part: list[Sending] = []
    ids = 0
    for each in sendings:
        if ids + each.is_deduplicated > TRANSACTION_ITEMS_MAX:
            yield part
            part, ids = [], 0
        part.append(each)
        ids += each.is_deduplicated
    yield part


def _raise_if_none_stored(results: Sequence[Produced]) -> None:
    errors = [each.error for each in results if each.error]
    if len(errors) == len(results):
        raise next((each for each in errors if each.outcome_unknown), errors[0])
