"""Appends entries to logs: finds each log's end, goes from full segments to the next, and caches the position."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from chalicelib.base import deadline
from chalicelib.base.cache import BoundedCache
from chalicelib.base.errors import StoreUnavailable, TopicNotFound
from chalicelib.base.limits import INLINE_BYTES_MAX, MINUTE_MS, SECOND_MS
from chalicelib.catalogue.env import Env
from chalicelib.catalogue.topic import Topic
from chalicelib.log.payloads import Payloads
from chalicelib.log.segment import Entry, Segment, append
from chalicelib.store import Keys, Outcome, Range
from chalicelib.table import keys
from chalicelib.table.writes import Refused, Write

CROWDED_BYTES_MAX = 100
"""`INLINE_BYTES_MAX` while many writers contend for one queue and fill its segments too soon: twice a pointer."""
TAIL_AGE_MS_MAX = MINUTE_MS
"""How long an instance caches the end of a queue's log."""
CONTENDED_MS = SECOND_MS
"""After losing a race for a segment an instance sends only pointers there: 16 fit a segment, not 3."""


@dataclass(frozen=True, slots=True)
class Tail:
    """Where a log continues. `may_create`: the previous segment was seen full, so the next may be created here."""

    base: int
    may_create: bool
    seen_at_ms: int


@dataclass(slots=True)
class _Pending:
    """One entry on its way into one log."""

    log: str
    entry: Entry
    done: int | StoreUnavailable | None = None
    crowded: bool = False


class LogWriter:
    def __init__(self, env: Env, payloads: Payloads) -> None:
        self._store, self._runtime = env.store, env.runtime
        self._payloads = payloads
        self._tails: BoundedCache[Tail] = BoundedCache()
        self._crowded_until: BoundedCache[int] = BoundedCache()

    def append(self, topic: Topic, entries: Sequence[tuple[int, Entry]]) -> list[int | StoreUnavailable]:
        """Appends an entry to each of these queues in parallel. Returns each entry's first offset, or the error why it
        was not stored; unless the error's outcome is "unknown", it never will be.

        Raises TopicNotFound if the topic was deleted since the caller read it: messages stored by then are
        unreachable."""
        pending = [_Pending(topic.logs[queue], entry) for queue, entry in entries]
        for each in pending:
            each.crowded = self.is_crowded(each.log)
        until_ms = deadline.give_up_at_ms(self._runtime.uptime())
        while waiting := [each for each in pending if each.done is None]:
            try:
                self._round(topic, waiting, until_ms)
            except StoreUnavailable as trouble:  # no append of this round was sent yet
                for each in waiting:
                    each.done = StoreUnavailable(trouble.detail)
        return [each.done for each in pending if each.done is not None]

    def _round(self, topic: Topic, waiting: list[_Pending], until_ms: int) -> None:
        """One attempt for each entry: first its payload, if it has one, then the entry."""
        if self._runtime.uptime() > until_ms:
            raise StoreUnavailable("too many writers compete for one queue")
        self._spill(topic, waiting)
        writes = [self._write(topic, each) for each in waiting]
        for each, outcome in zip(waiting, self._store.write_each(writes), strict=True):
            self._learn(topic, each, outcome)

    def is_crowded(self, log: str) -> bool:
        """Whether other writers were seen at this log lately."""
        return (self._crowded_until.get(log) or 0) > self._runtime.uptime()

    def _spill(self, topic: Topic, waiting: list[_Pending]) -> None:
        """Moves messages into payloads if their entry does not fit a segment, or would fill a contended one too
        soon."""
        spilling = [
            each for each in waiting if not each.entry.fits(CROWDED_BYTES_MAX if each.crowded else INLINE_BYTES_MAX)
        ]
        if spilling:
            ttl = topic.ttl(self._runtime.now())
            pointing = self._payloads.put(topic.id, [each.entry for each in spilling], ttl)
            for each, entry in zip(spilling, pointing, strict=True):
                each.entry = entry

    def tail(self, topic: Topic, log: str) -> Tail:
        """Where this log continues. Raises TopicNotFound."""
        tail = self._tails.get(log)
        if tail is None or self._runtime.uptime() - tail.seen_at_ms > TAIL_AGE_MS_MAX:
            tail = self._find_tail(topic, log)
            self._tails.keep(log, tail)
        return tail

    def saw(self, segment: Segment) -> Tail:
        """Where the log continues: in this segment or after it. Cached, unless a later position is known."""
        now = self._runtime.uptime()
        tail = Tail(segment.end, True, now) if segment.is_sealed else Tail(segment.base, False, now)
        known = self._tails.get(segment.log)
        if known is None or known.base <= tail.base:
            self._tails.keep(segment.log, tail)
        return tail

    def met(self, topic: Topic, segment: Segment) -> Tail:
        """The same for a segment that another writer filled. Raises TopicNotFound if it is closed."""
        if segment.is_closed:
            raise TopicNotFound(f"topic '{topic.name}' does not exist")
        self._crowded_until.keep(segment.log, self._runtime.uptime() + CONTENDED_MS)
        return self.saw(segment)

    def _write(self, topic: Topic, pending: _Pending) -> Write:
        tail = self.tail(topic, pending.log)
        return append(pending.log, tail.base, pending.entry, tail.may_create)

    def _find_tail(self, topic: Topic, log: str) -> Tail:
        """The end of the log of a topic that is verified to exist. An instance with a cached topic must not create
        segments for a deleted one."""
        newest = Range(log, keys.FIRST, keys.LAST, limit=1, descending=True, strong=True)
        found, topics = self._store.read([newest, Keys([keys.topic(topic.name)], strong=True)])
        if not topics or topics[0]["id"] != topic.id:
            raise TopicNotFound(f"topic '{topic.name}' does not exist")
        base = keys.base_of(found[0]["sk"]) if found else 0
        return Tail(base, may_create=not found, seen_at_ms=self._runtime.uptime())

    def _learn(self, topic: Topic, pending: _Pending, outcome: Outcome) -> None:
        if isinstance(outcome, StoreUnavailable):
            pending.done = outcome
            return
        item = outcome.before if isinstance(outcome, Refused) else outcome
        if item is None:  # the segment of an old tail was removed: look again
            self._tails.forget(pending.log)
            return
        segment = Segment.of(item)
        if isinstance(outcome, Refused):
            self.met(topic, segment)
            pending.crowded = True
        else:
            self.saw(segment)
            pending.done = segment.offset_of(pending.entry.id)
