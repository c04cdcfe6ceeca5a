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
from chalicelib.store import Keys, Range
from chalicelib.table import keys
from chalicelib.table.writes import Refused

_FIRST_PAGE, _PAGE = 2, 64
"""Segments read at once. Most entries are in the segment tried first or in the next."""


class LogJoiner:
    def __init__(self, env: Env, writer: LogWriter) -> None:
        self._store, self._runtime = env.store, env.runtime
        self._writer = writer

    def append(self, topic: Topic, queue: int, entry: Entry, tail: Tail) -> int:
        """Ensures that the entry is in the log, at or after `tail`, and returns its first offset. Raises
        TopicNotFound, StoreUnavailable."""
        log = topic.logs[queue]
        until_ms = deadline.give_up_at_ms(self._runtime.uptime())
        while self._runtime.uptime() <= until_ms:
            try:
                item = self._store.write(append(log, tail.base, entry, tail.may_create))
            except Refused as refused:
                if refused.before is None:  # the segment of an old tail was removed
                    return self.append_from(topic, queue, entry, tail.base)
                tail = self._writer.met(topic, Segment.of(refused.before))
            else:
                segment = Segment.of(item)
                self._writer.saw(segment)
                return {each.id: offset for offset, each in segment.placed}[entry.id]
        raise StoreUnavailable("too many writers compete for one queue")

    def append_from(self, topic: Topic, queue: int, entry: Entry, base: int) -> int:
        """The same without knowing the end of the log: the entry is at or after `base`."""
        found = self._found(topic, topic.logs[queue], entry, base)
        return found if isinstance(found, int) else self.append(topic, queue, entry, found)

    def offset(self, topic: Topic, queue: int, entry: Entry, base: int) -> int | None:
        """The first offset of the entry, searched from `base` on, or None if it is not in the log yet."""
        for segments in self._pages(topic.logs[queue], base):
            for segment in segments:
                if (offset := segment.offset_of(entry.id)) is not None:
                    return offset
        return None

    def _found(self, topic: Topic, log: str, entry: Entry, base: int) -> int | Tail:
        """The entry's first offset, or the end of the log without it. Verifies that the topic exists.

        No segment at or after `base` means that there never was one: the last segment of a log is never removed."""
        if not self._is_there(topic):
            raise TopicNotFound(f"topic '{topic.name}' does not exist")
        tail = Tail(base, may_create=True, seen_at_ms=self._runtime.uptime())
        for segments in self._pages(log, base):
            for segment in segments:
                if (first := segment.offset_of(entry.id)) is not None:
                    return first
            tail = self._writer.saw(segments[-1])
        return tail

    def _pages(self, log: str, base: int) -> Iterator[list[Segment]]:
        low, limit = keys.segment(log, base).sk, _FIRST_PAGE
        while True:
            found = self._store.read([Range(log, low, keys.LAST, limit=limit, strong=True)])[0]
            segments = [Segment.of(item) for item in found]
            if segments:
                yield segments
            if not segments or not segments[-1].is_sealed:
                return
            low, limit = keys.segment(log, segments[-1].end).sk, _PAGE

    def _is_there(self, topic: Topic) -> bool:
        found = self._store.read([Keys([keys.topic(topic.name)], strong=True)])[0]
        return bool(found) and found[0]["id"] == topic.id
