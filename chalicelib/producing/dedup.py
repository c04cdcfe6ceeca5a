"""Dedup ids: the record of who has one, made before the message is stored.

A record is an intent: it holds the entry that will be appended, to the byte, and the segment where that is tried first.
So whoever meets it can find out what became of the message, and if nothing did, because its caller died, can append it
in that caller's place. Both begin at the same segment and pass only what they saw full without the entry: it gets into
the log once, whoever of them is first. `docs/table.md` lists the attributes.

Records of one entry are made together, all or none, so an entry never holds a message whose id another one has.

What arrives late is harmless. The guard demands a record `DEDUP_MS` older than the *request*: any that was made since
is younger. Where there is none (they may be removed once they do not stand any more), a late one is born with the time
of its request: it does not stand either, and nobody helps it. Clocks that differ move the end of the `DEDUP_MS`, for
which it is the clock of the later request that counts. Within them the store decides, not a clock: whoever is refused
takes the record that it was shown, whatever its own clock says of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from chalicelib.base.errors import StoreUnavailable
from chalicelib.base.limits import DEDUP_MS, EXPIRED_KEPT_MS, SECOND_MS
from chalicelib.base.message import ENTRY_ID_BYTES, Message
from chalicelib.catalogue.env import Env
from chalicelib.catalogue.topic import Topic
from chalicelib.delays.decision import wait
from chalicelib.delays.writer import DelayWriter
from chalicelib.log import Log
from chalicelib.log.packing import pack
from chalicelib.log.segment import Entry, entry
from chalicelib.log.writer import CROWDED_BYTES_MAX, Tail
from chalicelib.store import Keys
from chalicelib.table import keys
from chalicelib.table.writes import Absent, AtMost, Either, Item, Refused, Set, Write

DEDUP_INLINE_BYTES_MAX = 800
"""The same for an entry that dedup records hold too: a record with its keys then fits the kilobyte of a write unit."""


@dataclass(frozen=True, slots=True)
class Record:
    """Which message has the dedup id."""

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
    """Takes the id for this record, if nobody has it; refused, it shows the record that stands."""
    return Write(
        keys.dedup(topic_id, dedup_id),
        (Either(Absent(("at",)), AtMost(("at",), record.at_ms - DEDUP_MS)),),
        tuple(Set((name,), value) for name, value in record.as_attributes().items()),
        landed=lambda before: before is not None and before["entry"]["i"] == record.entry.id,
    )


@dataclass(frozen=True, slots=True)
class Kept:
    """Which entry holds a message, as which of its messages, and the offset of the entry's first one."""

    queue: int
    entry_id: bytes
    index: int
    first: int | StoreUnavailable
    due_ms: int = 0
    """Until when it waits. Not 0: it is in no log yet, as far as its record tells."""


class Deduplication:
    def __init__(self, env: Env, log: Log, delays: DelayWriter) -> None:
        self._store, self._runtime = env.store, env.runtime
        self._writer, self._joiner, self._payloads, self._index = log.writer, log.joiner, log.payloads, log.key_index
        self._delays = delays

    def append(self, topic: Topic, queue: int, messages: Sequence[Message]) -> list[Kept]:
        """Stores messages in one queue, in one entry; in place of one whose id is taken it tells where that one is.
        The ids are different ones, `TRANSACTION_ITEMS_MAX` at most; messages may be without. Raises TopicNotFound."""
        kept: dict[int, Kept] = {}
        found: dict[bytes, int | StoreUnavailable] = {}
        while left := [place for place in range(len(messages)) if place not in kept]:
            taken = self._append(topic, queue, {place: messages[place] for place in left}, kept)
            for place, record in taken.items():
                kept[place] = self._kept(topic, record, found)
        return [kept[place] for place in range(len(messages))]

    def delay(self, topic: Topic, queue: int, message: Message, entry_id: bytes) -> Kept:
        """Stores a message with a dedup id that waits until it is due. It and its record are one transaction, so there
        is nothing to help with. Raises TopicNotFound."""
        due_ms = message.deliver_at_ms or 0
        try:
            waiting = Entry.of(self._delays.item(topic, queue, message, entry_id))
            record = Record(self._runtime.now(), waiting, 0, queue, 0, False, due_ms)
            taking = claim(topic.id, message.dedup_id or "", record)
            self._store.write_together([taking, wait(topic.id, queue, due_ms, waiting)])
        except Refused as refused:
            return self._kept(topic, Record.of(refused.before or {}), {})
        except StoreUnavailable as trouble:
            return Kept(queue, b"", 0, trouble)
        return Kept(queue, waiting.id, 0, 0, due_ms)

    def _kept(self, topic: Topic, record: Record, found: dict[bytes, int | StoreUnavailable]) -> Kept:
        """The message of a record that stands. `found`: where entries begin that were met before."""
        if record.due_ms:
            return Kept(record.queue, record.entry.id, 0, 0, record.due_ms)
        if record.entry.id not in found:
            found[record.entry.id] = self._first_of(topic, record)
        return Kept(record.queue, record.entry.id, record.index, found[record.entry.id])

    def _append(
        self, topic: Topic, queue: int, messages: dict[int, Message], kept: dict[int, Kept]
    ) -> dict[int, Record]:
        """Stores these messages and notes where they are; or, when some ids are taken, answers with their records."""
        packed = pack([*messages.values()])
        made = entry(self._runtime.entropy(ENTRY_ID_BYTES), len(messages), packed, self._runtime.now())
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
            kept[place] = Kept(queue, made.id, index, first)
        return {}

    def _intent(self, topic: Topic, queue: int, made: Entry, messages: Sequence[Message]) -> Record:
        """What is going to be appended, and where: its messages are stored already where they go elsewhere."""
        log = topic.log(queue)
        try:
            self._index.note(topic, [(queue, made, messages)])
            if not made.fits(CROWDED_BYTES_MAX if self._writer.is_crowded(log) else DEDUP_INLINE_BYTES_MAX):
                [made] = self._payloads.put(topic.id, [made], topic.ttl(made.stored_at_ms))
            tail = self._writer.tail(topic, log)
        except StoreUnavailable as trouble:  # nothing was sent that anybody could meet
            raise StoreUnavailable(trouble.detail) from trouble
        return Record(self._runtime.now(), made, 0, queue, tail.base, tail.may_create)

    def _claim(self, topic: Topic, record: Record, messages: dict[int, Message]) -> dict[int, Record]:
        """Takes all ids for the record's entry, or none: then the answer is the records that stand in the way."""
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
        """A transaction shows one of the records that stand. A batch that is repeated meets as many as it has ids."""
        places = {keys.dedup(topic.id, each).pk: place for place, each in ids.items()}
        shown = refused.before or {}
        others = [keys.dedup(topic.id, each) for each in ids.values()] if len(ids) > 1 else []
        found = self._store.read([Keys(others, strong=True)])[0] if others else []
        now = self._runtime.now()
        taken = {places[item["pk"]]: Record.of(item) for item in found}
        standing = {place: record for place, record in taken.items() if record.stands(now)}
        return {places[shown["pk"]]: Record.of(shown)} | standing

    def _landed(self, topic: Topic, record: Record, others_may_help: bool = True) -> int | StoreUnavailable:
        """The offset of the entry's first message. If that cannot be said, others may help the entry in later."""
        try:
            tail = Tail(record.base, record.may_create, self._runtime.uptime())
            return self._joiner.append(topic, record.queue, record.entry, tail)
        except StoreUnavailable as trouble:
            return StoreUnavailable(trouble.detail, outcome="unknown") if others_may_help else trouble

    def _first_of(self, topic: Topic, record: Record) -> int | StoreUnavailable:
        """Where the entry of a record begins; it is appended if it is not there yet."""
        try:
            return self._joiner.append_from(topic, record.queue, record.entry, record.base)
        except StoreUnavailable as trouble:
            return StoreUnavailable(trouble.detail, outcome="unknown")
