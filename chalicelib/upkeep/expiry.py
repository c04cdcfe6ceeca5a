"""Removes expired data from the beginning of each log, a day after it expired.

DynamoDB removes payloads, dedup records and index items by their time to live. Segments are removed here, oldest first,
so that a log only ever loses its beginning; giving each a time to live would cost the same write. The last segment of a
log stays, since it marks the end of the log, and so does the newest decision of a queue. Removed items no longer change
and their keys are never used again, so several sweeps may run at once, and a late removal finds nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import takewhile

from chalicelib.catalogue.env import Env
from chalicelib.catalogue.topic import Topic
from chalicelib.dead_letters.queue import DeadLetterQueue
from chalicelib.delays.decision import Decision
from chalicelib.delays.promoter import Promoter
from chalicelib.log.payloads import blob_names
from chalicelib.log.segment import Segment
from chalicelib.store import Range
from chalicelib.table import keys
from chalicelib.table.writes import Item, key_of

_PAGE = 100
_GLANCE = 2
"""A segment is removed only if another one follows it."""


class Expiry:
    def __init__(self, env: Env, promoter: Promoter, letters: DeadLetterQueue) -> None:
        self._store, self._runtime = env.store, env.runtime
        self._catalogue, self._promoter, self._letters = env.catalogue, promoter, letters

    def trim(self, topic: Topic, until_ms: int) -> int:
        """Removes the expired beginning of each log while there is time. Returns the number of removed items. Costs
        half a read unit per queue without expired data, and nothing in a topic younger than its retention."""
        gone_ms = topic.gone_ms(self._runtime.now())
        if topic.created_at_ms > gone_ms:
            return 0
        count = 0
        glances = [_first(log, _GLANCE) for log in topic.logs]
        for queue, segments in enumerate(self._store.read(glances)):
            if expired_segments(segments, gone_ms):
                count += self._trim(topic, queue, gone_ms, until_ms)
        return count

    def _trim(self, topic: Topic, queue: int, gone_ms: int, until_ms: int) -> int:
        """Carries out decisions first, since carrying one out later means searching the log for it."""
        if topic.delays:
            self._promoter.promote(topic, queue)
        count, head = 0, 0
        for segments in self._pages(topic.logs[queue], until_ms):
            expired = expired_segments(segments, gone_ms)
            entries = [entry for segment in expired for entry in segment.entries]
            self._store.remove_blobs(blob_names(topic.id, entries))
            self._remove(segments[: len(expired)])
            count += len(expired)
            head = expired[-1].end if expired else head
            if len(expired) < _PAGE - 1:
                break
        for decisions in self._pages(keys.decisions(topic.id, queue), until_ms) if topic.delays else ():
            expired_decisions = [*takewhile(lambda item: Decision.of(item).at_ms <= gone_ms, decisions[:-1])]
            self._remove(expired_decisions)
            count += len(expired_decisions)
            if len(expired_decisions) < _PAGE - 1:
                break
        for group in self._catalogue.groups(topic) if head else ():
            count += self._letters.purge_before(topic, group, queue, head, until_ms)
        return count

    def _pages(self, pk: str, until_ms: int) -> Iterator[list[Item]]:
        """The first items of a partition, repeatedly; the caller removes them."""
        while self._runtime.uptime() <= until_ms:
            yield self._store.read([_first(pk, _PAGE)])[0]

    def _remove(self, items: Sequence[Item]) -> None:
        self._store.remove_all([key_of(item) for item in items])


def _first(pk: str, limit: int) -> Range:
    return Range(pk, keys.FIRST, keys.LAST, limit=limit)


def expired_segments(items: Sequence[Item], gone_ms: int) -> list[Segment]:
    """The expired ones at the start of these segments, never the last, which may have no successor."""

    def is_expired(segment: Segment) -> bool:  # a full segment never changes
        return segment.is_sealed and all(entry.stored_at_ms <= gone_ms for entry in segment.entries)

    return [*takewhile(is_expired, map(Segment.of, items[:-1]))]
