"""Dedup ids: the record of who has one, made before the message is stored.

A record is an intent: it holds the entry that will be appended, to the byte, and the segment where that is tried first.
So whoever meets it can find out what became of the message, and if nothing did, because its caller died, can append it
in that caller's place. Both begin at the same segment and pass only what they saw full without the entry: it gets into
the log once, whoever of them is first. Attributes:

    at      when it was made, ms; it stands for `DEDUP_MS`
    entry   the entry with the message, see `log.segment`
    index   which message of the entry it is
    queue   the queue of the entry                        base    the segment where the entry is tried first
    create  whether that segment may be created: the one before it was seen full, or the log was empty
    due     until when the message waits; 0: it does not. One that waits is stored with its record, in one transaction
    ttl     when DynamoDB may remove it, s since the epoch: a day after it stood

Records of one entry are made together, all or none, so an entry never holds a message whose id another one has.

What arrives late is harmless. The guard demands a record `DEDUP_MS` older than the *request*: any that was made since
is younger. Where there is none (they may be removed once they do not stand any more), a late one is born with the time
of its request: it does not stand either, and nobody helps it. Clocks that differ move the end of the `DEDUP_MS`, for
which it is the clock of the later request that counts. Within them the store decides, not a clock: whoever is refused
takes the record that it was shown, whatever its own clock says of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from chalicelib.base.limits import DEDUP_MS, EXPIRED_KEPT_MS, SECOND_MS
from chalicelib.log.segment import Entry
from chalicelib.table import keys
from chalicelib.table.writes import Absent, AtMost, Either, Item, Set, Write


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
