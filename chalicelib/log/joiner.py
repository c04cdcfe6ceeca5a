"""Appends an entry that other callers may append too: it gets into the log once, even if some of them crash.

All start at one segment and go on to the next only after they have seen a segment full without the entry, which it can
then never enter. A later caller therefore finds the segment that holds the entry, or appends it and so blocks the
others."""

from __future__ import annotations

from collections.abc import Iterator

from chalicelib.base import deadline
from chalicelib.base.errors import StoreUnavailable, TopicNotFound
from chalicelib.catalogue.env import Env
from chalicelib.catalogue.topic import Topic
from chalicelib.log.segment import Entry, Segment, append
from chalicelib.log.writer import LogWriter, Tail
from chalicelib.store import Range
from chalicelib.table import keys
from chalicelib.table.writes import Refused

_FIRST_PAGE, _PAGE = 2, 64
"""Segments read at once. Most entries are in the segment tried first or in the next."""


class LogJoiner:
    def __init__(self, env: Env, writer: LogWriter) -> None:
        self._store, self._runtime, self._catalogue = env.store, env.runtime, env.catalogue
        self._writer = writer

    def append(self, topic: Topic, queue: int, entry: Entry, tail: Tail) -> int:
        """Ensures that the entry is in the log, at or after `tail`, and returns its first offset. Raises
        TopicNotFound, StoreUnavailable."""
        log = topic.logs[queue]
        until_ms = deadline.give_up_at_ms(self._runtime.uptime())
        while self._runtime.uptime() <= until_ms:
            try:
                segment = Segment.of(self._store.write(append(log, tail.base, entry, tail.may_create)))
            except Refused as refused:
                if refused.before is None:  # the segment of an old tail was removed
                    return self.append_from(topic, queue, entry, tail.base)
                tail = self._writer.met(topic, Segment.of(refused.before))
            else:
                tail = self._writer.saw(segment)
                if (first := segment.offset_of(entry.id)) is not None:
                    return first
        raise StoreUnavailable("too many writers compete for one queue")

    def append_from(self, topic: Topic, queue: int, entry: Entry, base: int) -> int:
        """The same without knowing the end of the log: the entry is at or after `base`."""
        if self._catalogue.current_topic(topic.name).id != topic.id:
            raise TopicNotFound(f"topic '{topic.name}' does not exist")
        first, last = self._search(topic.logs[queue], entry, base)
        if first is not None:
            return first
        # without a segment there never was one: the last segment of a log is never removed
        tail = self._writer.saw(last) if last else Tail(base, may_create=True, seen_at_ms=self._runtime.uptime())
        return self.append(topic, queue, entry, tail)

    def offset(self, topic: Topic, queue: int, entry: Entry, base: int) -> int | None:
        """The first offset of the entry, searched from `base` on, or None if it is not in the log yet."""
        return self._search(topic.logs[queue], entry, base)[0]

    def _search(self, log: str, entry: Entry, base: int) -> tuple[int | None, Segment | None]:
        """The first offset of the entry, or None and the last segment of the log, both searched from `base` on."""
        segment = None
        for segment in self._segments(log, base):
            if (first := segment.offset_of(entry.id)) is not None:
                return first, segment
        return None, segment

    def _segments(self, log: str, base: int) -> Iterator[Segment]:
        limit = _FIRST_PAGE
        while True:
            low = keys.segment(log, base).sk
            items = self._store.read([Range(log, low, keys.LAST, limit=limit, strong=True)])[0]
            segments = [Segment.of(item) for item in items]
            yield from segments
            if not segments or not segments[-1].is_sealed:
                return
            base, limit = segments[-1].end, _PAGE
