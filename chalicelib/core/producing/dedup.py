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
from dataclasses import replace

from chalicelib.core.base.errors import StoreUnavailable
from chalicelib.core.base.limits import DEDUP_MS, EXPIRED_KEPT_MS, SECOND_MS
from chalicelib.core.base.message import ENTRY_ID_BYTES, Message, Produced
from chalicelib.core.base.records import record
from chalicelib.core.catalogue.catalogue import Env
from chalicelib.core.catalogue.topic import Topic
from chalicelib.core.delays.decision import wait
from chalicelib.core.delays.delayed_messages import DelayWriter, Waiting
from chalicelib.core.log import Log
from chalicelib.core.log.segment import Entry
from chalicelib.core.log.writer import Tail
from chalicelib.core.producing.new_message import Sending
from chalicelib.core.store import Keys
from chalicelib.core.table import keys
from chalicelib.core.table.writes import Absent, AtMost, Either, Item, Refused, Set, Write, key_of

DEDUP_INLINE_BYTES_MAX = 800
"""An entry that dedup records hold goes into a payload if it is larger: a record with its keys then fits the kilobyte
of a write unit."""


@record
class DedupRecord:
    """The record of a dedup id: the message that has it."""

    at_ms: int
    entry: Entry
    index: int
    queue: int
    base: int
    may_create: bool
    due_ms: int = 0

    @classmethod
    def of(cls, item: Item) -> DedupRecord:
        entry = Entry.of(item["entry"])
        return cls(item["at"], entry, item["index"], item["queue"], item["base"], item["create"], item["due"])

    def as_attributes(self) -> Mapping[str, object]:
        place = {"queue": self.queue, "base": self.base, "create": self.may_create}
        about = {"at": self.at_ms, "ttl": (self.at_ms + DEDUP_MS + EXPIRED_KEPT_MS) // SECOND_MS}
        return {**about, "entry": self.entry.as_value(), "index": self.index, "due": self.due_ms, **place}

    def stands(self, now: int) -> bool:
        return self.at_ms > now - DEDUP_MS


def claim(topic_id: str, dedup_id: str, record: DedupRecord) -> Write:
    """Claims the id for this record, unless a valid record has it: then the rejected write returns that one."""
    return Write(
        keys.dedup(topic_id, dedup_id),
        (Either(Absent(("at",)), AtMost(("at",), record.at_ms - DEDUP_MS)),),
        tuple(Set((name,), value) for name, value in record.as_attributes().items()),
        landed=lambda before: Entry.of(before["entry"]).id == record.entry.id,
    )


Taken = list[tuple[Sending, DedupRecord]]
"""Messages whose ids are taken, with the records that have them."""


class Deduplication:
    def __init__(self, env: Env, log: Log, delays: DelayWriter) -> None:
        self._store, self._runtime = env.store, env.runtime
        self._writer, self._payloads = log.writer, log.payloads
        self._delays = delays

    def append(self, topic: Topic, queue: int, sendings: Sequence[Sending]) -> bool:
        """Stores messages in one queue as one entry, and sets their results; for a message whose id is taken, the place
        of the first one. False: some are not known to be stored, and those without a result were not tried, since they
        could overtake these. Ids must differ, `TRANSACTION_ITEMS_MAX` at most; messages may have none. Raises
        TopicNotFound."""
        firsts: dict[bytes, int | StoreUnavailable] = {}
        while left := [sending for sending in sendings if sending.result is None]:
            for sending, stored in self._append(topic, queue, left):
                sending.result = self._produced(topic, stored, firsts)
            if any(sending.result and sending.result.error for sending in left):
                return False
        return True

    def delay(self, topic: Topic, waiting: Waiting) -> Produced:
        """Stores a delayed message with a dedup id. Message and record are one transaction, so there is never anything
        to complete. Raises TopicNotFound."""
        queue, due_ms = waiting.queue, waiting.due_ms
        try:
            [entry] = self._delays.entries(topic, [waiting])
            record = DedupRecord(self._runtime.now(), entry, 0, queue, 0, False, due_ms)
            taking = claim(topic.id, waiting.message.dedup_id or "", record)
            self._store.write_together([taking, wait(topic.id, queue, due_ms, entry)])
        except Refused as refused:
            return self._produced(topic, DedupRecord.of(refused.before), {})
        except StoreUnavailable as trouble:
            return Produced(queue, error=trouble)
        return Produced.delayed(queue, entry.id, due_ms)

    def repeat(self, topic: Topic, sendings: Sequence[Sending]) -> None:
        """Sets the results of those messages whose ids are taken, and stores none. Raises TopicNotFound,
        StoreUnavailable."""
        ids = {sending.message.dedup_id: sending for sending in sendings}
        wanted = {keys.dedup(topic.id, dedup_id): ids[dedup_id] for dedup_id in ids if dedup_id is not None}
        items = self._store.read([Keys(list(wanted), strong=True)])[0] if wanted else []
        firsts: dict[bytes, int | StoreUnavailable] = {}
        for item in items:
            record = DedupRecord.of(item)
            if record.stands(self._runtime.now()):
                wanted[key_of(item)].result = self._produced(topic, record, firsts)

    def _claim_ids(self, topic: Topic, record: DedupRecord, sendings: Sequence[Sending]) -> Taken:
        """Claims all ids for the record's entry, or none: then returns the conflicting records."""
        writes = [
            claim(topic.id, sending.message.dedup_id, replace(record, index=index))
            for index, sending in enumerate(sendings)
            if sending.message.dedup_id is not None
        ]
        try:
            if len(writes) == 1:
                self._store.write(writes[0])
            elif writes:
                self._store.write_together(writes)
        except Refused as refused:
            shown = refused.before
        else:
            return []
        # a transaction returns one conflicting record, but a repeated batch has as many conflicts as ids
        items = self._store.read([Keys([write.key for write in writes], strong=True)])[0] if len(writes) > 1 else []
        now = self._runtime.now()
        records = {item["pk"]: DedupRecord.of(item) for item in [shown, *items]}
        standing = {pk: record for pk, record in records.items() if pk == shown["pk"] or record.stands(now)}
        keyed = [(keys.dedup(topic.id, sending.message.dedup_id or "").pk, sending) for sending in sendings]
        return [(sending, standing[pk]) for pk, sending in keyed if pk in standing]

    def _append_entry(self, topic: Topic, record: DedupRecord, others_may_help: bool) -> int | StoreUnavailable:
        """The offset of the entry's first message. If it is unknown, another caller may complete the append later."""
        try:
            tail = Tail(record.base, record.may_create, self._runtime.uptime())
            return self._writer.append_at(topic, record.queue, record.entry, tail)
        except StoreUnavailable as trouble:
            return StoreUnavailable(trouble.detail, outcome="unknown") if others_may_help else trouble

    def complete(self, topic: Topic, record: DedupRecord) -> int | StoreUnavailable:
        """The first offset of a record's entry, which is appended if it is missing."""
        try:
            return self._writer.append_from(topic, record.queue, record.entry, record.base)
        except StoreUnavailable as trouble:
            return StoreUnavailable(trouble.detail, outcome="unknown")

    def _append(self, topic: Topic, queue: int, sendings: Sequence[Sending]) -> Taken:
        """Stores these messages and sets their results; if some ids are taken, returns their records instead."""
        messages = [sending.message for sending in sendings]
        entry = Entry.packed(self._runtime.entropy(ENTRY_ID_BYTES), messages, self._runtime.now())
        first: int | StoreUnavailable
        try:
            record = self._intent(topic, queue, entry, messages)
            if taken := self._claim_ids(topic, record, sendings):
                return taken
        except StoreUnavailable as trouble:
            first = trouble
        else:
            has_records = any(sending.is_deduplicated for sending in sendings)
            first = self._append_entry(topic, record, others_may_help=has_records)
        for index, sending in enumerate(sendings):
            sending.result = Produced.stored(queue, entry.id, index, first)
        return []

    def _intent(self, topic: Topic, queue: int, entry: Entry, messages: Sequence[Message]) -> DedupRecord:
        """The entry to append, and where. Its payload is already stored if it has one."""
        log = topic.logs[queue]
        try:
            self._writer.index(topic, [(queue, entry, messages)])
            bytes_max = min(self._writer.tails.inline_bytes_max(log), DEDUP_INLINE_BYTES_MAX)
            [entry] = self._payloads.spill(topic.id, [(entry, bytes_max)], topic.ttl(entry.stored_at_ms))
            tail = self._writer.tails.tail(topic, log)
        except StoreUnavailable as trouble:  # nothing visible to other callers was sent
            raise StoreUnavailable(trouble.detail) from trouble
        return DedupRecord(self._runtime.now(), entry, 0, queue, tail.base, tail.may_create)

    def _produced(self, topic: Topic, record: DedupRecord, firsts: dict[bytes, int | StoreUnavailable]) -> Produced:
        """The message of a valid record. `firsts`: first offsets of entries already located."""
        entry_id = record.entry.id
        if record.due_ms:
            return Produced.delayed(record.queue, entry_id, record.due_ms)
        if entry_id not in firsts:
            firsts[entry_id] = self.complete(topic, record)
        return Produced.stored(record.queue, entry_id, record.index, firsts[entry_id])
