"""Appends entries to logs: finds each log's end, goes from full segments to the next, and caches the position.

Several callers may append the same entry; it gets into the log once, even if some of them crash. All start at the same
segment. They go on to the next only after they have seen a full segment without the entry, which the entry can then
never enter. A later caller therefore finds the segment with the entry, or appends it and so blocks the others.

An instance appends where it expects the log to end. If the append is refused, it does not know how far other writers
have got, so it reads the end of the log for half a read unit rather than try one segment after another for a write unit
each. It then reads the end before each append until no other instance appends any more.

In topics with `index_keys`, the writer first stores an item for each key of an entry, which names the segment from
which to search for the entry. An entry in the log is therefore always indexed, even after a crash; `reading.lookup`
skips index items whose entry is not in the log."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

from chalicelib.core.base import deadline
from chalicelib.core.base.cache import BoundedCache
from chalicelib.core.base.errors import StoreUnavailable, TopicNotFound
from chalicelib.core.base.limits import ENTRY_LATE_MS, INLINE_BYTES_MAX, MINUTE_MS, SECOND_MS
from chalicelib.core.base.message import Message
from chalicelib.core.base.records import mutable, record
from chalicelib.core.catalogue.catalogue import Env
from chalicelib.core.catalogue.topic import Topic
from chalicelib.core.log.payloads import Payloads
from chalicelib.core.log.reader import newest
from chalicelib.core.log.segment import Entry, Segment, append, reopen
from chalicelib.core.store import Keys, Outcome, Range, Throttled, raise_trouble
from chalicelib.core.table import keys
from chalicelib.core.table.writes import Exists, Item, Refused, Set, Write, key_of

CROWDED_BYTES_MAX = 100
"""`INLINE_BYTES_MAX` while many writers contend for one queue and fill its segments too soon: four pointers."""
TAIL_AGE_MS_MAX = MINUTE_MS
"""How long an instance caches the end of a queue's log."""
CONTENDED_MS = SECOND_MS
"""After losing a race for a segment, an instance appends only tiny entries and pointers there: 37 of them fit a
segment, not 3."""

_LOOKS = 3
"""After another writer was faster, an instance reads the end before each append until it was right this often in a
row."""


@record
class Tail:
    """Where a log continues. `may_create`: the previous segment was seen full, so the next may be created here."""

    base: int
    may_create: bool
    seen_at_ms: int


class Tails:
    def __init__(self, env: Env) -> None:
        self._store, self._runtime = env.store, env.runtime
        self._seen: BoundedCache[Tail] = env.caches.bounded(_owners)
        self._crowded_until: BoundedCache[int] = env.caches.bounded(_owners)
        self._looks_left: BoundedCache[int] = env.caches.bounded(_owners)
        """For logs that did not end where this instance expected."""

    def tail(self, topic: Topic, log: str) -> Tail:
        """Where this log continues. Raises TopicNotFound."""
        return self.of(topic, [log])[log]

    def of(self, topic: Topic, logs: Iterable[str], strong: bool = False) -> dict[str, Tail]:
        """The same for several logs, in at most one round trip; most need none. `strong`: a weak read was not
        enough."""
        tails: dict[str, Tail] = {}
        unsure: list[str] = []
        for log in logs:
            if tail := self._fresh(log):
                tails[log] = tail
            if tail is None or self.looks_first(log):
                unsure.append(log)
        if unsure:
            is_new = any(log not in tails for log in unsure)
            last = self._newest(topic, unsure, is_new, strong)
            tails |= {log: self._found(log, segment) for log, segment in zip(unsure, last, strict=True)}
        return tails

    def saw(self, segment: Segment) -> Tail:
        """Where the log continues: in this segment or after it. Cached, unless a later position is known."""
        now = self._runtime.uptime()
        tail = Tail(segment.end, True, now) if segment.is_sealed else Tail(segment.base, False, now)
        known = self._seen.get(segment.log)
        if known is None or known.base <= tail.base:
            self._seen.keep(segment.log, tail)
        return tail

    def lost(self, full: Segment) -> Tail:
        """Notes that others have filled this segment, where this instance expected the log to end."""
        self._crowded_until.keep(full.log, self._runtime.uptime() + CONTENDED_MS)
        self.doubt(full.log)
        return self.saw(full)

    def doubt(self, log: str) -> None:
        """Notes that others may have appended since."""
        self._looks_left.keep(log, _LOOKS + 1)  # the first shows where the log ends, the others confirm it

    def forget(self, log: str) -> None:
        self._seen.forget(log)

    def looks_first(self, log: str) -> bool:
        """Whether this instance reads the end of this log before it appends."""
        return bool(self._looks_left.get(log))

    def is_crowded(self, log: str) -> bool:
        """Whether other writers appended to this log lately."""
        return (self._crowded_until.get(log) or 0) > self._runtime.uptime()

    def inline_bytes_max(self, log: str) -> int:
        """The largest entry to store in a segment of this log now. A larger one would fill a contended one too soon."""
        return CROWDED_BYTES_MAX if self.is_crowded(log) else INLINE_BYTES_MAX

    def _fresh(self, log: str) -> Tail | None:
        tail = self._seen.get(log)
        return tail if tail and self._runtime.uptime() - tail.seen_at_ms <= TAIL_AGE_MS_MAX else None

    def _found(self, log: str, segment: Segment | None) -> Tail:
        """Notes the end that was read. A weak read may return an older end than the known one."""
        known, left = self._seen.get(log), self._looks_left.get(log)
        if segment is None:
            tail = Tail(0, may_create=True, seen_at_ms=self._runtime.uptime())
            self._seen.keep(log, tail)
            return tail
        tail = self.saw(segment)
        if left:
            has_moved = known is not None and known.base < tail.base
            self._looks_left.keep(log, _LOOKS if has_moved else left - 1)
        return tail if known is None or known.base <= tail.base else known

    def _newest(self, topic: Topic, logs: Sequence[str], is_new: bool, strong: bool) -> list[Segment | None]:
        """The last segments of these logs. `is_new`: the topic is verified to exist, since an instance with a cached
        topic must not create segments for a deleted one."""
        strong = strong or is_new
        topics = [Keys([keys.topic(topic.name)], strong=True)] if is_new else []
        found = self._store.read([*newest(logs, strong), *topics])
        if not is_new and not all(found):  # a log that was there is gone
            return self._newest(topic, logs, is_new=True, strong=True)
        if is_new and (not found[-1] or found[-1][0]["id"] != topic.id):
            raise TopicNotFound(f"topic '{topic.name}' does not exist")
        return [Segment.of(items[0]) if items else None for items in found[: len(logs)]]


def _owners(log: str, _: object) -> Iterable[str]:
    return keys.owners(log)


_PAUSES_MS = (0, 10, 20, 40, 80, 160, 320)
"""Each try of an append first waits a random time up to this, so that contending writers spread out, unless only its
guess was old. After the last the append gives up: within a second, and for at most one unit a try."""

_LANDING_MS = MINUTE_MS // 2
"""Longer than any append takes."""

_FIRST_PAGE, _PAGE = 2, 64
"""Segments read at once in search of an entry. Most are in the segment tried first or in the next."""


@mutable
class _Appending:
    """An entry that is being appended to a log. `first`: its offset there, or why it was not stored, once known."""

    log: str
    entry: Entry
    first: int | StoreUnavailable | None = None
    took_ms: int = 0
    setback: StoreUnavailable | None = None
    """Why the last try failed."""
    was_blind: bool = False
    """Whether the refused try had used an end that this instance had not read."""
    may_come_late: bool = False
    """Whether a closed log that is open again refused it: a late repeat of that request may be applied."""


class Appended(NamedTuple):
    """`first`: the entry's first offset, or the error why it was not stored; unless the error's outcome is "unknown",
    it never will be. `took_ms`: how long the log took for it; 0 if it was not the only one, since the time is then
    unknown."""

    first: int | StoreUnavailable
    took_ms: int


Packed = tuple[int, Entry, Sequence[Message]]
"""A queue, the entry for it, and the messages that the entry holds."""


class LogWriter:
    def __init__(self, env: Env, payloads: Payloads) -> None:
        self._store, self._runtime, self._catalogue = env.store, env.runtime, env.catalogue
        self._payloads = payloads
        self.tails, self._growth, self._agenda = Tails(env), env.growth, env.agenda
        self._numbers = itertools.count()

    def append(self, topic: Topic, entries: Sequence[Packed], may_leave: bool = False) -> list[Appended]:
        """Appends each entry to its queue, in parallel. `may_leave`: the caller has other queues, so that the first
        throttle ends a try.

        Raises TopicNotFound if the topic was deleted since the caller read it: messages stored by then are
        unreachable."""
        appendings = [_Appending(topic.logs[queue], entry) for queue, entry, _ in entries]
        until_ms = deadline.give_up_at_ms(self._runtime.uptime())
        try:
            if topic.alarms or topic.pushes:
                self._agenda.note_ready(topic)
            if topic.index_keys:
                self.index(topic, entries)
            for tried, most_ms in enumerate(_PAUSES_MS):
                waiting = [appending for appending in appendings if appending.first is None]
                if not waiting:
                    break
                self._pause(0 if all(appending.was_blind for appending in waiting) else most_ms, until_ms)
                self._round(topic, waiting, may_leave, has_looked=tried > 1)
        except StoreUnavailable as trouble:  # no append of this round was sent yet
            for appending in appendings:
                appending.setback = StoreUnavailable(trouble.detail)
        for appending in appendings:
            appending.first = appending.setback if appending.first is None else appending.first
        for failed in appendings:
            if failed.may_come_late and isinstance(failed.first, StoreUnavailable):
                failed.first = StoreUnavailable(failed.first.detail, outcome="unknown")
        return [Appended(done.first, done.took_ms) for done in appendings if done.first is not None]

    def append_at(self, topic: Topic, queue: int, entry: Entry, tail: Tail) -> int:
        """Ensures that an entry that other callers may append too is in the log once, at or after `tail`, and returns
        its first offset. Raises TopicNotFound, StoreUnavailable."""
        log = topic.logs[queue]
        self._agenda.note_ready(topic)
        until_ms = deadline.give_up_at_ms(self._runtime.uptime())
        was_blind = False
        for most_ms in _PAUSES_MS:
            self._pause(0 if was_blind else most_ms, until_ms)
            try:
                segment = Segment.of(self._store.write(append(log, tail.base, entry, tail.may_create)))
            except Refused as refused:
                if not refused.before:  # the segment of an old tail was removed
                    return self.append_from(topic, queue, entry, tail.base)
                was_blind = not self.tails.looks_first(log)
                tail = self.met(topic, passed := Segment.of(refused.before))
                first, last = self.search(log, entry, passed.base)  # another caller may have appended it after that
                if first is not None:
                    return first
                tail = self.tails.saw(last) if last else tail
            else:
                self._appended(topic, segment)
                if (first := segment.offset_of(entry.id)) is not None:
                    return first
        raise _crowded()

    def append_from(self, topic: Topic, queue: int, entry: Entry, base: int) -> int:
        """The same without knowing the end of the log: the entry is at or after `base`."""
        current = self._catalogue.current_topic(topic.name)
        if current.id != topic.id:
            raise TopicNotFound(f"topic '{topic.name}' does not exist")
        topic = current  # the entry of another caller may be in a queue that was added since this one read the topic
        first, last = self.search(topic.logs[queue], entry, base)
        if first is not None:
            return first
        self._index_late(topic, entry, last.base if last else base)
        # without a segment there never was one: the last segment of a log is never removed
        tail = self.tails.saw(last) if last else Tail(base, may_create=True, seen_at_ms=self._runtime.uptime())
        return self.append_at(topic, queue, entry, tail)

    def index(self, topic: Topic, entries: Iterable[Packed]) -> None:
        """Indexes the keys of these entries, if the topic has an index. Call it before appending them. Raises
        StoreUnavailable, TopicNotFound."""
        if not topic.index_keys:
            return
        items: list[Item] = []
        for queue, entry, messages in entries:
            if with_key := dict.fromkeys(message.key for message in messages if message.key is not None):
                base, number = self.tails.tail(topic, topic.logs[queue]).base, next(self._numbers)
                about = {"queue": queue, "base": base, "ttl": topic.ttl(entry.stored_at_ms)}
                places = [keys.indexed(topic.id, key, entry.stored_at_ms, number, entry.id) for key in with_key]
                items += [{**place._asdict(), **about} for place in places]
        if items:
            self._store.put_all(items)

    def _index_late(self, topic: Topic, entry: Entry, base: int) -> None:
        """Indexes the keys of an entry at `base` if the entry is old, because its decision was carried out late. A
        look-up by its time would otherwise end before it."""
        late_ms = entry.stored_at_ms + ENTRY_LATE_MS - _LANDING_MS
        if not topic.index_keys or self._runtime.now() < late_ms:
            return
        messages = self._payloads.messages(topic.id, [entry]).get(entry.id, ())
        span = (keys.stored_since(entry.stored_at_ms), keys.stored_since(entry.stored_at_ms + 1))
        indexes = dict.fromkeys(keys.index(topic.id, message.key) for message in messages if message.key is not None)
        found = self._store.read([Range(index, *span, strong=True) for index in indexes]) if indexes else []
        places = [key_of(item) for items in found for item in items]
        noted = (Set(("base",), base), Set(("late",), True))
        writes = [
            Write(place, (Exists(("base",)),), noted) for place in places if keys.indexed_entry(place.sk)[1] == entry.id
        ]
        raise_trouble(self._store.write_each(writes) if writes else [])

    def _appended(self, topic: Topic, segment: Segment) -> None:
        self.tails.saw(segment)
        if topic.queues_auto:
            per_message = len(segment.entries) / (segment.end - segment.base)
            self._growth.appended(topic, segment.log, segment.end, per_message)

    def met(self, topic: Topic, segment: Segment) -> Tail:
        """Where a log continues after another writer filled its segment. If the log is closed, raises TopicNotFound, or
        StoreUnavailable if the queue has left the topic: this call began with old settings, and a retry reads new
        ones."""
        if segment.is_closed:
            return self._reopened(topic, segment)
        return self.tails.lost(segment)

    def _reopened(self, topic: Topic, closed: Segment) -> Tail:
        """Where the log of a queue that had left the topic and returned continues."""
        current = self._catalogue.current_topic(topic.name)
        if current.id != topic.id:
            raise TopicNotFound(f"topic '{topic.name}' does not exist")
        queue = topic.logs.index(closed.log)
        if queue >= current.readers:
            raise StoreUnavailable(f"topic '{topic.name}' has no queue {queue} any more")
        with suppress(Refused):  # another writer was faster
            self._store.write(reopen(closed))
        return self.tails.saw(closed)

    def _pause(self, most_ms: int, until_ms: int) -> None:
        """Raises StoreUnavailable if no time is left, before or after it."""
        ms = self._runtime.choice(range(1, most_ms + 1)) if most_ms else 0
        if ms and self._runtime.uptime() + ms <= until_ms:
            self._runtime.sleep(ms)
            ms = 0
        if self._runtime.uptime() + ms > until_ms:
            raise _crowded()

    def _round(self, topic: Topic, waiting: Sequence[_Appending], may_leave: bool, has_looked: bool) -> None:
        """One attempt for each entry: first its payload, if it needs one, then the entry."""
        sized = [(appending.entry, self.tails.inline_bytes_max(appending.log)) for appending in waiting]
        if any(entry.size > bytes_max for entry, bytes_max in sized):
            spilled = self._payloads.spill(topic.id, sized, topic.ttl(self._runtime.now()))
            for appending, entry in zip(waiting, spilled, strict=True):
                appending.entry = entry
        writes: list[Write] = []
        with deadline.hasty():  # repeated requests would keep a throttled log throttled
            tails = self.tails.of(topic, [appending.log for appending in waiting], strong=has_looked)
            for appending in waiting:
                tail = tails[appending.log]
                writes.append(append(appending.log, tail.base, appending.entry, tail.may_create))
            began_ms = self._runtime.uptime()
            outcomes = self._store.write_each(writes)
        for appending, outcome in zip(waiting, outcomes, strict=True):
            appending.took_ms += self._runtime.uptime() - began_ms if len(writes) == 1 else 0
            appending.first = self._first(topic, appending, outcome, may_leave)

    def _first(
        self, topic: Topic, appending: _Appending, outcome: Outcome, may_leave: bool
    ) -> int | StoreUnavailable | None:
        """The first offset of the entry, the error that kept it from being stored, or None: try again."""
        if isinstance(outcome, Throttled):
            self.tails.doubt(appending.log)
            appending.setback, appending.was_blind = StoreUnavailable(outcome.detail), False
            return appending.setback if may_leave else None
        if isinstance(outcome, StoreUnavailable):
            return outcome
        if isinstance(outcome, Refused):
            return self._refused(topic, appending, outcome)
        segment = Segment.of(outcome)
        self._appended(topic, segment)
        return segment.offset_of(appending.entry.id)

    def _refused(self, topic: Topic, appending: _Appending, refused: Refused) -> StoreUnavailable | None:
        """Handles a segment that cannot take the entry any more, not even from a late repeat. Only this caller appends
        the entry, and it has tried no later segment, so it continues at the end of the log."""
        appending.setback, appending.was_blind = _crowded(), not self.tails.looks_first(appending.log)
        if not refused.before:  # the segment of an old tail was removed: look again
            self.tails.forget(appending.log)
            return None
        segment = Segment.of(refused.before)
        if not segment.is_closed:
            self.tails.lost(segment)
            return None
        try:
            self._reopened(topic, segment)
        except StoreUnavailable as trouble:
            return StoreUnavailable(trouble.detail)  # a closed log has not taken the entry
        appending.may_come_late = True
        return None

    def search(self, log: str, entry: Entry, base: int) -> tuple[int | None, Segment | None]:
        """The first offset of the entry and its segment, or None and the last segment, searched from `base` on."""
        last: Segment | None = None
        for segment in self._segments(log, base):
            if last and last.end != segment.base:
                break  # one between them was made during the read, which therefore lacks it
            last = segment
            if (first := segment.offset_of(entry.id)) is not None:
                return first, segment
            if not segment.is_sealed:
                break  # later segments were read after it, and it may hold the entry by now
        return None, last

    def _segments(self, log: str, base: int) -> Iterator[Segment]:
        limit = _FIRST_PAGE
        while True:
            low = keys.segment(log, base).sk
            items = self._store.read([Range(log, low, keys.LAST, limit=limit, strong=True)])[0]
            if not items:
                return
            segments = [Segment.of(item) for item in items]
            yield from segments
            base, limit = segments[-1].end, _PAGE


def _crowded() -> StoreUnavailable:
    return StoreUnavailable("too many writers compete for one queue")
