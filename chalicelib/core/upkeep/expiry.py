"""Removes expired data from the beginning of each log, a day after it expired.

DynamoDB removes payloads, dedup records and index items by their time to live. This module removes segments, oldest
first, so that a log only loses its beginning; giving each a time to live would cost the same write. The last segment of
a log stays, since it marks the end of the log, and so does the newest decision of a queue. Removed items no longer
change and their keys are never used again, so several sweeps may run at once, and a late removal finds nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import takewhile

from chalicelib.core.catalogue.catalogue import Env
from chalicelib.core.catalogue.topic import Topic
from chalicelib.core.dead_letters.queue import DeadLetterQueue
from chalicelib.core.delays.decision import Decision
from chalicelib.core.delays.promoter import Promoter
from chalicelib.core.log.payloads import blob_names
from chalicelib.core.log.segment import Segment
from chalicelib.core.store import Range
from chalicelib.core.table import keys
from chalicelib.core.table.writes import Item, key_of

_PAGE = 100
_GLANCE = 2
"""A segment is removed only if another one follows it."""


class Expiry:
    def __init__(self, env: Env, promoter: Promoter, letters: DeadLetterQueue) -> None:
        self._store, self._runtime = env.store, env.runtime
        self._catalogue, self._promoter, self._letters = env.catalogue, promoter, letters

    def trim(self, topic: Topic, until_ms: int) -> tuple[int, int | None]:
        """Removes the expired beginning of each log while there is time. Returns the number of removed items, and when
        more will expire, if the log shows it; None: nothing will. Costs half a read unit per queue without expired
        data, and nothing in a topic younger than its retention."""
        now = self._runtime.now()
        gone_ms = topic.gone_ms(now)
        if topic.created_at_ms > gone_ms:
            return 0, None
        count, nexts = 0, []
        glances = [_first(log, _GLANCE) for log in topic.logs]
        for queue, segments in enumerate(self._store.read(glances)):
            if _expired_segments(segments, gone_ms):
                count += self._trim(topic, queue, gone_ms, until_ms)
                nexts.append(gone_ms)
            elif len(segments) == _GLANCE:
                nexts.append(max([entry.stored_at_ms for entry in Segment.of(segments[0]).entries], default=now))
        return count, min(nexts) + now - gone_ms if nexts else None

    def _trim(self, topic: Topic, queue: int, gone_ms: int, until_ms: int) -> int:
        """Carries out decisions first, since carrying one out later means searching the log for it."""
        if topic.delays:
            self._promoter.promote(topic, queue)
        count, head = 0, 0
        for items in self._removing(topic.logs[queue], _expired_segments, gone_ms, until_ms):
            segments = [Segment.of(item) for item in items]
            self._store.remove_blobs(blob_names(topic.id, [entry for segment in segments for entry in segment.entries]))
            count += len(segments)
            head = segments[-1].end if segments else head
        if topic.delays:
            decisions = self._removing(keys.decisions(topic.id, queue), expired_decisions, gone_ms, until_ms)
            count += sum(map(len, decisions))
        for group in self._catalogue.groups(topic) if head else ():
            count += self._letters.purge_before(topic, group, queue, head, until_ms)
        return count

    def _removing(
        self, pk: str, expired: Callable[[Sequence[Item], int], list[Item]], gone_ms: int, until_ms: int
    ) -> Iterator[list[Item]]:
        """The expired items at the start of a partition, a page at a time. Removes each page when the next is
        requested."""
        while self._runtime.uptime() <= until_ms:
            items = expired(self._store.read([_first(pk, _PAGE)])[0], gone_ms)
            yield items
            self._store.remove_all([key_of(item) for item in items])
            if len(items) < _PAGE - 1:
                return


def _first(pk: str, limit: int) -> Range:
    return Range(pk, keys.FIRST, keys.LAST, limit=limit)


def _expired_segments(items: Sequence[Item], gone_ms: int) -> list[Item]:
    """The expired segments at the start, never the last one, which may have no successor."""

    def is_expired(item: Item) -> bool:
        segment = Segment.of(item)  # a full one never changes
        return segment.is_sealed and all(entry.stored_at_ms <= gone_ms for entry in segment.entries)

    return [*takewhile(is_expired, items[:-1])]


def expired_decisions(items: Sequence[Item], gone_ms: int) -> list[Item]:
    """The expired decisions at the start, never the newest one."""
    return [*takewhile(lambda item: Decision.of(item).at_ms <= gone_ms, items[:-1])]
