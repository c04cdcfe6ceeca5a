"""Deduplication: a record of each `dedup_id`, written before its message is stored.

A record is an intent: it holds the exact entry to append, and the segment where the append is tried first. A caller
that finds the record can therefore look up the message, and if the first caller crashed before the append, append it
instead. Both start at the same segment and pass only segments seen full without the entry, so the entry gets into the
log once. `docs/table.md` lists the attributes.

Records of one entry are written together, all or none, so an entry never has a message whose id belongs to another.

Late writes are harmless. The guard demands that the current record is `DEDUP_MS` older than the *request*; any record
written since is younger. If there is none (invalid records may be removed), a late record has the time of its request:
it is invalid from the start, and no caller completes it. Clocks that differ move the end of `DEDUP_MS`, which goes by
the clock of the later request. Before that end the store decides, not a clock: a caller whose write is rejected uses
the record it was shown, whatever its own clock says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from chalicelib.base.errors import StoreUnavailable
from chalicelib.base.limits import DEDUP_MS, EXPIRED_KEPT_MS, SECOND_MS
from chalicelib.base.message import ENTRY_ID_BYTES, Message, Produced
from chalicelib.catalogue.env import Env
from chalicelib.catalogue.topic import Topic
from chalicelib.delays.decision import wait
from chalicelib.delays.writer import DelayWriter
from chalicelib.log import Log
from chalicelib.log.segment import Entry
from chalicelib.log.writer import Tail
from chalicelib.store import Keys
from chalicelib.table import keys
from chalicelib.table.writes import Absent, AtMost, Either, Item, Refused, Set, Write

DEDUP_INLINE_BYTES_MAX = 800
"""The same for an entry that dedup records hold too: a record with its keys then fits the kilobyte of a write unit."""


@dataclass(frozen=True, slots=True)
class Record:
    """The record of a dedup id: the message that has it."""

    at_ms: int
    entry: Entry
    index: int
    queue: int
    base: int
    may_create: bool
    due_ms: int = 0

    @classmethod
    def of(cls, item: Item) -> Record:
        entry = Entry.of(item["entry"])
        return cls(item["at"], entry, item["index"], item["queue"], item["base"], item["create"], item["due"])

    def as_attributes(self) -> Mapping[str, object]:
        place = {"queue": self.queue, "base": self.base, "create": self.may_create}
        about = {"at": self.at_ms, "ttl": (self.at_ms + DEDUP_MS + EXPIRED_KEPT_MS) // SECOND_MS}
        return {**about, "entry": self.entry.as_item(), "index": self.index, "due": self.due_ms, **place}

    def stands(self, now: int) -> bool:
        return self.at_ms > now - DEDUP_MS


def claim(topic_id: str, dedup_id: str, record: Record) -> Write:
    """Claims the id for this record, unless a valid record has it: then the rejected write returns that one."""
    return Write(
        keys.dedup(topic_id, dedup_id),
        (Either(Absent(("at",)), AtMost(("at",), record.at_ms - DEDUP_MS)),),
        tuple(Set((name,), value) for name, value in record.as_attributes().items()),
        landed=lambda before: before is not None and before["entry"]["i"] == record.entry.id,
    )


class Deduplication:
    def __init__(self, env: Env, log: Log, delays: DelayWriter) -> None:
        self._store, self._runtime = env.store, env.runtime
        self._writer, self._joiner, self._payloads = log.writer, log.joiner, log.payloads
        self._delays = delays

    def append(self, topic: Topic, queue: int, messages: Sequence[Message]) -> list[Produced]:
        """Stores messages in one queue as one entry; for a message whose id is taken, returns the place of the first
        one. Ids must differ, `TRANSACTION_ITEMS_MAX` at most; messages may have none. Raises TopicNotFound."""
        produced: dict[int, Produced] = {}
        found: dict[bytes, int | StoreUnavailable] = {}
        while left := [place for place in range(len(messages)) if place not in produced]:
            taken = self._append(topic, queue, {place: messages[place] for place in left}, produced)
            for place, record in taken.items():
                produced[place] = self._produced(topic, record, found)
        return [produced[place] for place in range(len(messages))]

    def delay(self, topic: Topic, queue: int, message: Message, entry_id: bytes) -> Produced:
        """Stores a delayed message with a dedup id. Message and record are one transaction, so there is never anything
        to complete. Raises TopicNotFound."""
        due_ms = message.deliver_at_ms or 0
        try:
            waiting = Entry.of(self._delays.item(topic, queue, message, entry_id))
            record = Record(self._runtime.now(), waiting, 0, queue, 0, False, due_ms)
            taking = claim(topic.id, message.dedup_id or "", record)
            self._store.write_together([taking, wait(topic.id, queue, due_ms, waiting)])
        except Refused as refused:
            return self._produced(topic, Record.of(refused.before or {}), {})
        except StoreUnavailable as trouble:
            return Produced(queue, error=trouble)
        return Produced.delayed(queue, waiting.id, due_ms)

    def _produced(self, topic: Topic, record: Record, found: dict[bytes, int | StoreUnavailable]) -> Produced:
        """The message of a valid record. `found`: first offsets of entries already located."""
        if record.due_ms:
            return Produced.delayed(record.queue, record.entry.id, record.due_ms)
        if record.entry.id not in found:
            found[record.entry.id] = self._first_of(topic, record)
        return Produced.stored(record.queue, record.entry.id, record.index, found[record.entry.id])

    def _append(
        self, topic: Topic, queue: int, messages: dict[int, Message], produced: dict[int, Produced]
    ) -> dict[int, Record]:
        """Stores these messages and records their places; if some ids are taken, returns their records instead."""
        made = Entry.packed(self._runtime.entropy(ENTRY_ID_BYTES), [*messages.values()], self._runtime.now())
        first: int | StoreUnavailable
        try:
            record = self._intent(topic, queue, made, [*messages.values()])
            if taken := self._claim(topic, record, messages):
                return taken
        except StoreUnavailable as trouble:
            first = trouble
        else:
            has_records = any(message.dedup_id is not None for message in messages.values())
            first = self._landed(topic, record, others_may_help=has_records)
        for index, place in enumerate(messages):
            produced[place] = Produced.stored(queue, made.id, index, first)
        return {}

    def _intent(self, topic: Topic, queue: int, made: Entry, messages: Sequence[Message]) -> Record:
        """The entry to append, and where. Its payload is already stored if it has one."""
        log = topic.logs[queue]
        try:
            self._writer.index(topic, [(queue, made, messages)])
            bytes_max = min(self._writer.inline_bytes_max(log), DEDUP_INLINE_BYTES_MAX)
            [made] = self._payloads.spill(topic.id, [(made, bytes_max)], topic.ttl(made.stored_at_ms))
            tail = self._writer.tail(topic, log)
        except StoreUnavailable as trouble:  # nothing visible to other callers was sent
            raise StoreUnavailable(trouble.detail) from trouble
        return Record(self._runtime.now(), made, 0, queue, tail.base, tail.may_create)

    def _claim(self, topic: Topic, record: Record, messages: dict[int, Message]) -> dict[int, Record]:
        """Claims all ids for the record's entry, or none: then returns the conflicting records."""
        ids = {place: message.dedup_id for place, message in messages.items() if message.dedup_id is not None}
        order = [*messages]
        writes = [claim(topic.id, each, replace(record, index=order.index(place))) for place, each in ids.items()]
        try:
            if len(writes) == 1:
                self._store.write(writes[0])
            elif writes:
                self._store.write_together(writes)
        except Refused as refused:
            return self._taken(topic, ids, refused)
        return {}

    def _taken(self, topic: Topic, ids: dict[int, str], refused: Refused) -> dict[int, Record]:
        """A transaction returns one conflicting record. A repeated batch has as many conflicts as ids."""
        places = {keys.dedup(topic.id, each).pk: place for place, each in ids.items()}
        shown = refused.before or {}
        others = [keys.dedup(topic.id, each) for each in ids.values()] if len(ids) > 1 else []
        found = self._store.read([Keys(others, strong=True)])[0] if others else []
        now = self._runtime.now()
        taken = {places[item["pk"]]: Record.of(item) for item in found}
        standing = {place: record for place, record in taken.items() if record.stands(now)}
        return {places[shown["pk"]]: Record.of(shown)} | standing

    def _landed(self, topic: Topic, record: Record, others_may_help: bool = True) -> int | StoreUnavailable:
        """The offset of the entry's first message. If it is unknown, another caller may complete the append later."""
        try:
            tail = Tail(record.base, record.may_create, self._runtime.uptime())
            return self._joiner.append(topic, record.queue, record.entry, tail)
        except StoreUnavailable as trouble:
            return StoreUnavailable(trouble.detail, outcome="unknown") if others_may_help else trouble

    def _first_of(self, topic: Topic, record: Record) -> int | StoreUnavailable:
        """The first offset of a record's entry, which is appended if it is missing."""
        try:
            return self._joiner.append_from(topic, record.queue, record.entry, record.base)
        except StoreUnavailable as trouble:
            return StoreUnavailable(trouble.detail, outcome="unknown")
