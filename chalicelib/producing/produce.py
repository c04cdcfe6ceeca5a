"""Produce: assigns messages to queues, packs one entry per queue, and appends the entries in parallel."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from chalicelib.base import deadline
from chalicelib.base.errors import StoreUnavailable
from chalicelib.base.limits import HOP_MS_MAX, HOP_MS_MIN, TRANSACTION_ITEMS_MAX
from chalicelib.base.message import ENTRY_ID_BYTES, Message, delayed_id, message_id
from chalicelib.catalogue.env import Env
from chalicelib.catalogue.topic import Topic
from chalicelib.delays.writer import DelayWriter, Waiting
from chalicelib.log import Log
from chalicelib.log.packing import pack
from chalicelib.log.segment import Entry, entry
from chalicelib.producing.dedup import Deduplication, Kept
from chalicelib.producing.new_message import Sent
from chalicelib.producing.queue_choice import QueueChoice
from chalicelib.table.writes import Item

HOPS_MAX = 3
"""Other queues on which an unkeyed message is tried. If four queues fail, the store does."""


@dataclass(frozen=True, slots=True)
class Produced:
    """The result of one message: its place, or its queue and due time while it waits, or why it is not stored."""

    queue: int
    message_id: str | None = None
    offset: int | None = None
    error: StoreUnavailable | None = None
    deliver_at_ms: int | None = None


class Producer:
    def __init__(self, env: Env, log: Log, delays: DelayWriter) -> None:
        self._runtime = env.runtime
        self._writer, self._index = log.writer, log.key_index
        self._deduplication = Deduplication(env, log, delays)
        self._delays = delays
        self._choice = QueueChoice(env.runtime, log.writer.is_crowded)

    def produce(self, topic: Topic, messages: Sequence[Sent]) -> list[Produced]:
        """Stores messages, those of one queue at consecutive offsets, and returns results in the given order.

        Raises StoreUnavailable only if none was stored (with `outcome="unknown"`: none that is known)."""
        firsts = _firsts(message for message, _ in messages)
        places = sorted(set(firsts))
        waiting = [place for place in places if messages[place][0].deliver_at_ms is not None]
        by_queue = self._by_queue(topic, messages, [place for place in places if place not in waiting])
        produced = self._delay(topic, messages, self._by_queue(topic, messages, waiting)) if waiting else {}
        plain: dict[int, list[int]] = {}
        for queue, places in by_queue.items():
            if any(messages[place][0].dedup_id is not None for place in places):
                produced |= self._append_once(topic, queue, messages, places)
            else:
                plain[queue] = places
        produced |= self._append(topic, messages, plain, set(by_queue))
        _raise_if_none_stored(produced.values())
        return [produced[first] for first in firsts]

    def outbox_item(self, topic: Topic, message: Message, asked: int | None) -> Item:
        """A delayed message, due now at the earliest, as the item for the caller's own transaction. Stores its payload,
        if it has one. Raises TopicNotFound, StoreUnavailable."""
        queue = _queue(topic, message, asked, self._choice.unkeyed(topic))
        due_ms = message.deliver_at_ms or self._runtime.now()
        [entry_id] = self._delays.ids(1)
        return self._delays.item(topic, queue, replace(message, deliver_at_ms=due_ms), entry_id)

    def _delay(
        self, topic: Topic, messages: Sequence[Sent], by_queue: Mapping[int, Sequence[int]]
    ) -> dict[int, Produced]:
        """Stores delayed messages: those with dedup ids one by one, the others together."""
        queues = sorted((place, queue) for queue, places in by_queue.items() for place in places)
        named = zip(queues, self._delays.ids(len(queues)), strict=True)
        sent = {place: (queue, messages[place][0], entry_id) for (place, queue), entry_id in named}
        once = {place: each for place, each in sent.items() if each[1].dedup_id is not None}
        plain = [place for place in sent if place not in once]
        kept = self._delays.store(topic, [sent[place] for place in plain]) if plain else []
        produced = {place: _delayed(each) for place, each in zip(plain, kept, strict=True)}
        return produced | {place: _kept(self._deduplication.delay(topic, *each)) for place, each in once.items()}

    def _by_queue(self, topic: Topic, messages: Sequence[Sent], places: Sequence[int]) -> dict[int, list[int]]:
        unkeyed = self._choice.unkeyed(topic)
        by_queue: dict[int, list[int]] = {}
        for place in places:
            message, asked = messages[place]
            by_queue.setdefault(_queue(topic, message, asked, unkeyed), []).append(place)
        return by_queue

    def _append_once(
        self, topic: Topic, queue: int, messages: Sequence[Sent], places: Sequence[int]
    ) -> dict[int, Produced]:
        """Stores messages with dedup ids, and those that share their entries. They stay in their queue if it fails,
        since other callers may be completing the entry there."""
        produced: dict[int, Produced] = {}
        for part in _parts(messages, places):
            kept = self._deduplication.append(topic, queue, [messages[place][0] for place in part])
            for place, each in zip(part, kept, strict=True):
                produced[place] = _kept(each)
                self._note(topic, each.queue, each.first)
        return produced

    def _append(
        self, topic: Topic, messages: Sequence[Sent], by_queue: Mapping[int, list[int]], used: set[int]
    ) -> dict[int, Produced]:
        """Stores one entry per queue, in parallel. Retries entries that were certainly not stored: messages that can go
        anywhere in a queue this call has not used yet, the others in their own if it did not have the whole time."""
        produced: dict[int, Produced] = {}
        for hops_left in range(HOPS_MAX, -1, -1):
            may_hop = hops_left and any(_may_hop(messages[place]) for places in by_queue.values() for place in places)
            others = self._choice.others(topic, used) if may_hop else []
            with deadline.part_until(self._part_until_ms() if others else None):
                failed = self._append_each(topic, messages, by_queue, produced)
            if not failed or not others:
                break
            other = self._choice.hop(topic, others)
            used.add(other)
            by_queue = {}
            for queue, place in failed:
                by_queue.setdefault(other if _may_hop(messages[place]) else queue, []).append(place)
        return produced

    def _append_each(
        self,
        topic: Topic,
        messages: Sequence[Sent],
        by_queue: Mapping[int, list[int]],
        produced: dict[int, Produced],
    ) -> list[tuple[int, int]]:
        """One attempt. Returns queue and place of each message that was certainly not stored."""
        contents = [[messages[place][0] for place in places] for places in by_queue.values()]
        entries = [(queue, self._entry(content)) for queue, content in zip(by_queue, contents, strict=True)]
        results = self._write(topic, entries, contents)
        failed: list[tuple[int, int]] = []
        for (queue, made), places, result in zip(entries, by_queue.values(), results, strict=True):
            self._note(topic, queue, result)
            for index, place in enumerate(places):
                produced[place] = _produced(queue, made.id, index, result)
            if isinstance(result, StoreUnavailable) and not result.outcome_unknown:
                failed += [(queue, place) for place in places]
        return failed

    def _write(
        self, topic: Topic, entries: Sequence[tuple[int, Entry]], contents: Sequence[Sequence[Message]]
    ) -> list[int | StoreUnavailable]:
        try:
            noted = zip(entries, contents, strict=True)
            self._index.note(topic, [(queue, made, messages) for (queue, made), messages in noted])
        except StoreUnavailable as trouble:  # no entry was sent
            return [StoreUnavailable(trouble.detail)] * len(entries)
        return self._writer.append(topic, entries)

    def _part_until_ms(self) -> int:
        now = self._runtime.uptime()
        left_ms = deadline.give_up_at_ms(now) - now
        return now + max(min(HOP_MS_MAX, left_ms // 2), HOP_MS_MIN)

    def _note(self, topic: Topic, queue: int, result: int | StoreUnavailable) -> None:
        log = topic.log(queue)
        if isinstance(result, StoreUnavailable):
            self._choice.failed(log)
        else:
            self._choice.worked(log)

    def _entry(self, messages: list[Message]) -> Entry:
        return entry(self._runtime.entropy(ENTRY_ID_BYTES), len(messages), pack(messages), self._runtime.now())


def queue_of_key(key: str, queues: int) -> int:
    """A hash that, unlike Python's own, is the same in every process and version."""
    return int.from_bytes(hashlib.blake2b(key.encode(), digest_size=8).digest(), "big") % queues


def _queue(topic: Topic, message: Message, asked: int | None, unkeyed: int) -> int:
    if asked is not None:
        return asked
    return unkeyed if message.key is None else queue_of_key(message.key, topic.queues)


def _may_hop(sent: Sent) -> bool:
    message, asked = sent
    return asked is None and message.key is None


def _firsts(messages: Iterable[Message]) -> list[int]:
    """For each message, the place of the first one with its dedup id, or its own place."""
    firsts: list[int] = []
    seen: dict[str, int] = {}
    for place, message in enumerate(messages):
        firsts.append(place if message.dedup_id is None else seen.setdefault(message.dedup_id, place))
    return firsts


def _parts(messages: Sequence[Sent], places: Sequence[int]) -> Iterator[list[int]]:
    """Places in order, split where a part would have more dedup ids than one transaction can claim."""
    part: list[int] = []
    ids = 0
    for place in places:
        has_id = messages[place][0].dedup_id is not None
        if ids + has_id > TRANSACTION_ITEMS_MAX:
            yield part
            part, ids = [], 0
        part.append(place)
        ids += has_id
    yield part


def _raise_if_none_stored(produced: Iterable[Produced]) -> None:
    troubles = [each.error for each in produced]
    found = [trouble for trouble in troubles if trouble is not None]
    if len(found) == len(troubles):
        raise next((each for each in found if each.outcome_unknown), found[0])


def _produced(queue: int, entry_id: bytes, index: int, first: int | StoreUnavailable) -> Produced:
    if isinstance(first, StoreUnavailable):
        return Produced(queue, error=first)
    return Produced(queue, message_id(entry_id, queue, first + index), first + index)


def _kept(kept: Kept) -> Produced:
    if kept.due_ms:
        return Produced(kept.queue, delayed_id(kept.entry_id, kept.queue, kept.due_ms), deliver_at_ms=kept.due_ms)
    return _produced(kept.queue, kept.entry_id, kept.index, kept.first)


def _delayed(waiting: Waiting) -> Produced:
    if waiting.error is not None:
        return Produced(waiting.queue, error=waiting.error)
    return Produced(waiting.queue, waiting.message_id, deliver_at_ms=waiting.due_ms)
