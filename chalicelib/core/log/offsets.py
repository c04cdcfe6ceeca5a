"""Finds offsets in logs: the end, the beginning, and the offset at an instant (a binary search over all queues at
once)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from chalicelib.core.base.records import mutable
from chalicelib.core.catalogue.topic import Topic
from chalicelib.core.log.reader import LogReader, Want, entries
from chalicelib.core.log.segment import Entry, Segment
from chalicelib.core.store import Range, Read, Store
from chalicelib.core.table import keys
from chalicelib.core.table.writes import Item


@mutable
class _Search:
    """The first message stored at or after the instant lies in `low..high`."""

    queue: int
    low: int
    high: int

    @property
    def middle(self) -> int:
        return (self.low + self.high) // 2


def newest(logs: Sequence[str], strong: bool = False) -> list[Read]:
    """The reads for `end_of`, of the newest segment of each log."""
    return [Range(log, keys.FIRST, keys.LAST, limit=1, descending=True, strong=strong) for log in logs]


def end_of(items: Sequence[Item]) -> int:
    """The end of the log with this newest segment, or of an empty one."""
    return Segment.of(items[0]).end if items else 0


class Offsets:
    def __init__(self, store: Store, reader: LogReader) -> None:
        self._store = store
        self._reader = reader

    def ends(self, topic: Topic, queues: int | None = None) -> list[int]:
        """For each queue that is read (or the first `queues`), the offset of its next message. One round trip, one read
        unit per queue."""
        return self._ends([topic.logs[: topic.readers if queues is None else queues]], strong=True)[0]

    def ends_of(self, topics: Sequence[Topic]) -> list[list[int]]:
        """The same for several topics, at half a read unit per queue; an end may be stale."""
        return self._ends([topic.read_logs for topic in topics])

    def _ends(self, logs_of_topics: Sequence[Sequence[str]], strong: bool = False) -> list[list[int]]:
        reads = newest([log for logs in logs_of_topics for log in logs], strong)
        ends = map(end_of, self._store.read(reads) if reads else [])
        return [list(islice(ends, len(logs))) for logs in logs_of_topics]

    def firsts(self, topic: Topic, now: int, queues: int | None = None) -> list[int]:
        """For each queue that is read (or the first `queues`), the offset of its first unexpired message."""
        expired_ms = topic.expired_ms(now)
        if topic.created_at_ms > expired_ms:
            return [0] * (topic.readers if queues is None else queues)  # all its messages are newer
        return self.offsets_at(topic, expired_ms + 1, queues)

    def offsets_at(self, topic: Topic, at_ms: int, queues: int | None = None) -> list[int]:
        """For each queue that is read (or the first `queues`), the offset of its first message stored at `at_ms` or
        later, or the end of the log.

        Messages stored within the clock skew of that instant may be on either side."""
        ends = enumerate(self.ends(topic, queues))
        return self._searched(topic, [_Search(queue, 0, end) for queue, end in ends], at_ms)

    def surely_older(self, topic: Topic, queue: int, at_ms: int) -> int:
        """An offset of a queue before which every message is older than this.

        If a decision is carried out much later, its entry enters the log behind younger ones, and the search may end
        after it. A queue has one decision at a time, so only one such entry can be near: checking the entry before the
        result is enough."""
        end = self.ends(topic, queue + 1)[queue]
        while True:
            [first] = self._searched(topic, [_Search(queue, 0, end)], at_ms)
            last = self._entry_before(topic, queue, first)
            before = self._entry_before(topic, queue, last[0]) if last else None
            if last is None or before is None or before[1].stored_at_ms < at_ms:
                return first
            end = last[0]

    def _entry_before(self, topic: Topic, queue: int, offset: int) -> tuple[int, Entry] | None:
        """The entry that ends there, with its first offset, or None if it was removed or the log begins there."""
        if not offset:
            return None
        chain = self._reader.chains([Want(topic.logs[queue], offset - 1, 1, None)], strong=True)[0]
        return next((placed for placed in entries(chain) if placed[0] < offset <= placed[0] + placed[1].count), None)

    def _searched(self, topic: Topic, searches: Sequence[_Search], at_ms: int) -> list[int]:
        while going := [search for search in searches if search.low < search.high]:
            wants = [Want(topic.logs[search.queue], search.middle, 1, None) for search in going]
            for search, chain in zip(going, self._reader.chains(wants, strong=True), strict=True):
                _narrow(search, chain, at_ms)
        return [search.low for search in searches]


def _narrow(search: _Search, chain: Sequence[Segment], at_ms: int) -> None:
    """Halves the range at the middle segment, or ends within it."""
    if not chain:  # the topic is being deleted
        search.high = search.middle
        return
    segment = chain[0]
    if segment.base > search.middle:  # the messages before it were removed
        search.low = min(segment.base, search.high)
        return
    later = [offset for offset, entry in segment.placed if entry.stored_at_ms >= at_ms]
    if not later:
        search.low = min(search.high, segment.end)
    elif later[0] == segment.base:
        search.high = max(search.low, segment.base)
    else:
        search.low = search.high = later[0]
