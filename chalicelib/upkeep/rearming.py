"""Gives what a topic has stored a longer time to live, after its retention was made longer.

Goes through its logs, a page of segments at a time, and notes how far it came. What was stored since has the new time
already; the day for which everything is kept longer is the time that there is for this."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from chalicelib.base.limits import ENTRY_LATE_MS
from chalicelib.base.runtime import Runtime
from chalicelib.catalogue import topic
from chalicelib.catalogue.topic import Topic
from chalicelib.log.key_index import KeyIndex
from chalicelib.log.payloads import Payloads
from chalicelib.log.segment import Entry, Segment
from chalicelib.store import Keys, Range, Store
from chalicelib.table import keys
from chalicelib.table.writes import Key, Refused, RemoveItem, Set, Write

_PAGE = 32


@dataclass(frozen=True, slots=True)
class _Place:
    """How far it came, since the retention was made longer in this version of the topic."""

    version: int
    queue: int = 0
    base: int = 0


class Rearming:
    def __init__(self, store: Store, runtime: Runtime, payloads: Payloads, index: KeyIndex) -> None:
        self._store = store
        self._runtime = runtime
        self._payloads = payloads
        self._index = index

    def rearm(self, found: Topic, until_ms: int) -> int:
        """Returns how many entries have got a longer time. Nothing to do, and free, for most topics. What is stored by
        an instance that has not heard of the longer retention has been by the time that this begins."""
        now = self._runtime.now()
        if not found.raised_at_ms or now < found.raised_at_ms + ENTRY_LATE_MS:
            return 0
        count, key = 0, keys.rearming(found.id)
        for place, segments in self._pages(found, self._noted(key, found.version)):
            for entry in [entry for segment in segments for entry in segment.entries]:
                count += self._rearm(found, entry)
            self._store.write(Write(key, (), _noting(place)))
            if self._runtime.uptime() > until_ms:
                return count
        try:
            self._store.write(topic.rearmed(found))
        except Refused:
            return count  # it was changed meanwhile
        self._store.write(Write(key, (), (RemoveItem(),)))
        return count

    def _rearm(self, found: Topic, entry: Entry) -> int:
        ttl = found.ttl(entry.stored_at_ms)
        self._payloads.arm(found.id, [entry], ttl)
        if found.index_keys:
            messages = self._payloads.messages(found.id, [entry], found.expired_ms(self._runtime.now()))
            self._index.arm(found, entry, messages.get(entry.id, []), ttl)
        return 1

    def _pages(self, found: Topic, place: _Place) -> Iterator[tuple[_Place, list[Segment]]]:
        """The segments from a place on, each page with the place behind it."""
        for queue in range(place.queue, found.queues):
            base = place.base if queue == place.queue else 0
            while segments := self._page(found.log(queue), base):
                base = segments[-1].base + 1
                yield _Place(place.version, queue, base), segments

    def _page(self, log: str, base: int) -> list[Segment]:
        ahead = Range(log, keys.segment(log, base).sk, keys.LAST, limit=_PAGE, strong=True)
        return [Segment.of(item) for item in self._store.read([ahead])[0]]

    def _noted(self, key: Key, version: int) -> _Place:
        items = self._store.read([Keys([key], strong=True)])[0]
        if items and items[0]["version"] == version:
            return _Place(version, items[0]["queue"], items[0]["base"])
        return _Place(version)


def _noting(place: _Place) -> tuple[Set, ...]:
    return (Set(("version",), place.version), Set(("queue",), place.queue), Set(("base",), place.base))
