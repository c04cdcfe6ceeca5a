"""Reads logs: follows the chain of segments from a hint to an offset and beyond, reading those that are not cached.
Finds offsets: the end, the beginning, and the offset at an instant (a binary search over all queues at once).

Full segments never change and are cached; an open one is read again each time. Reads of several queues share a round
trip. The cache predicts the first reads, so that they go out together with the read of the cursors.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import field, replace
from itertools import islice

from chalicelib.core.base.cache import BoundedCache
from chalicelib.core.base.limits import EXPIRED_KEPT_MS, HOUR_MS, INSTANCE_CACHE_BYTES_MAX
from chalicelib.core.base.message import Stored
from chalicelib.core.base.records import mutable, record
from chalicelib.core.catalogue.catalogue import Env
from chalicelib.core.catalogue.topic import Topic
from chalicelib.core.log.payloads import Payloads
from chalicelib.core.log.segment import Entry, Segment
from chalicelib.core.store import Keys, Range, Read, Store
from chalicelib.core.table import keys
from chalicelib.core.table.writes import Item, Key

_AHEAD_SEGMENTS_MAX = 32
_AHEAD_SEGMENTS_MIN = 4
"""Four segments of a kilobyte cost as much to read as one."""

_ENTRY_BYTES = 500
"""Memory that an entry needs beyond its data."""


@record
class Want:
    """`count` messages of a log from `offset` on. `hint`: the base of a segment at or before it, if known.
    `since_ms`: when the log began; 0: unknown."""

    log: str
    offset: int
    count: int
    hint: int | None
    since_ms: int = 0


@mutable
class SeenSegments:
    """The reads of one call: segments by log and base, and the bases without a segment."""

    segments: dict[tuple[str, int], Segment | None] = field(default_factory=dict)
    located: dict[tuple[str, int], int] = field(default_factory=dict)
    """Log and offset -> base of the segment that holds it."""
    later: dict[tuple[str, int], int] = field(default_factory=dict)
    """Log and base -> base of the first segment at or after it, if there is one."""


class LogReader:
    def __init__(self, env: Env, payloads: Payloads) -> None:
        self._store, self._runtime = env.store, env.runtime
        self._payloads = payloads
        self._sealed: BoundedCache[Segment] = env.caches.bounded(
            lambda place, _: keys.owners(place[0]),
            INSTANCE_CACHE_BYTES_MAX // 2,
            size_of=lambda segment: segment.filled_bytes + _ENTRY_BYTES * len(segment.entries),
        )
        self._behind: BoundedCache[bool] = env.caches.bounded(lambda log, _: keys.owners(log))
        """Logs in which a group was behind at the last look."""
        self._empty_until: BoundedCache[int] = env.caches.bounded(lambda place, _: keys.owners(place[0]))

    def guess(self, wants: Iterable[Want]) -> list[Read]:
        """The first reads for these wants, as far as the cache can predict them."""
        seen = SeenSegments()
        return _merged([read for want in wants if (read := self._walk(want, seen)[1])])

    def chains(
        self, wants: Sequence[Want], seen: SeenSegments | None = None, strong: bool = False
    ) -> list[list[Segment]]:
        """For each want, the segments in order from the one with its offset to the one with its last message, or to the
        end of the log. An empty list: the log has no messages there yet. If the log's beginning was removed, the first
        segment may begin after the offset. `strong`: includes messages stored a moment ago."""
        seen = seen or SeenSegments()
        while True:
            walked = [self._walk(want, seen) for want in wants]
            reads = _merged([read for _, read in walked if read])
            if not reads:
                return [segments for segments, _ in walked]
            if strong:
                reads = [replace(read, strong=True) for read in reads]
            self.learn(seen, reads, self._store.read(reads))

    def learn(self, seen: SeenSegments, reads: Sequence[Read], answers: Sequence[Sequence[Item]]) -> None:
        for read, items in zip(reads, answers, strict=True):
            for item in items:
                segment = Segment.of(item)
                seen.segments[segment.log, segment.base] = segment
                if segment.is_sealed:
                    self._sealed.keep((segment.log, segment.base), segment)
            if isinstance(read, Keys):
                for key in read.keys:
                    seen.segments.setdefault((key.pk, keys.number_of(key.sk)), None)
            elif read.descending:
                offset = keys.number_of(read.high)
                seen.located[read.pk, offset] = keys.number_of(items[0]["sk"]) if items else offset
            else:
                place = (read.pk, keys.number_of(read.low))
                seen.segments.setdefault(place, None)
                if items:
                    seen.later[place] = keys.number_of(items[0]["sk"])
                else:
                    self._empty_until.keep(place, self._runtime.uptime() + HOUR_MS)

    def stored(self, topic: Topic, queue: int, chain: Sequence[Segment], offsets: Iterable[int]) -> list[Stored]:
        """The messages at these offsets with their payloads, or `LOST` for a missing payload. Removed messages that had
        expired are omitted."""
        wanted = sorted(offsets)
        placed = [(first, entry) for first, entry in entries(chain) if _touches(first, entry, wanted)]
        expired_ms = topic.maybe_expired_ms(self._runtime.now())
        messages = self._payloads.messages(topic.id, [entry for _, entry in placed], expired_ms)
        return [
            Stored(messages[entry.id][offset - first], queue, offset, entry.id, entry.stored_at_ms)
            for first, entry in placed
            if entry.id in messages
            for offset in _between(wanted, first, first + entry.count)
        ]

    def _walk(self, want: Want, seen: SeenSegments) -> tuple[list[Segment], Read | None]:
        """The known part of the chain, and its next read (None: the chain is complete)."""
        base = seen.located.get((want.log, want.offset)) if want.hint is None else want.hint
        if base is None:
            return [], _locate(want)
        chain: list[Segment] = []
        last: Segment | None = None
        while True:
            place = (want.log, base)
            segment = seen.segments.get(place) or self._sealed.get(place)
            if segment is None and not chain and (later := seen.later.get(place)) is not None:
                base, last = later, None  # the messages before were removed
                continue
            if segment is None:
                return chain, self._next_read(want, base, last, seen)
            if segment.end > want.offset:
                chain.append(segment)
            if not segment.is_sealed:
                if place in seen.segments:
                    self._behind.forget(want.log)
                return chain, None
            if segment.end >= want.offset + want.count:
                self._behind.keep(want.log, True)
                return chain, None
            base, last = segment.end, segment

    def _may_begin_later(self, want: Want, base: int, last: Segment | None = None) -> bool:
        """Whether a missing segment may have been removed. It was not if the log, or the segment before it, is younger
        than segments get, or if there was no segment a while ago. An unfinished removal leaves earlier segments."""
        since_ms = last.entries[-1].stored_at_ms if last and last.entries else want.since_ms
        is_old = self._runtime.now() - since_ms > EXPIRED_KEPT_MS
        return is_old and (self._empty_until.get((want.log, base)) or 0) < self._runtime.uptime()

    def _next_read(self, want: Want, base: int, last: Segment | None, seen: SeenSegments) -> Read | None:
        """Reads by key if the log probably ends there. Reads ahead if there is a backlog or one read was not enough,
        since many segments cost little more than one."""
        key = keys.segment(want.log, base)
        if (want.log, base) in seen.segments:  # no segment: either the end of the log, or its beginning was removed
            has_begun = last is not None and last.end > want.offset
            is_known = has_begun or not self._may_begin_later(want, base, last)
            return None if is_known else Range(want.log, key.sk, keys.LAST, limit=1)
        is_second = last is not None and (want.log, last.base) in seen.segments
        if want.count <= 1 or not (is_second or self._behind.get(want.log)):
            return Keys([key])
        ahead = (want.offset + want.count - base) // (last.end - last.base) + 1 if last else 0
        limit = min(max(ahead, _AHEAD_SEGMENTS_MIN), _AHEAD_SEGMENTS_MAX)
        return Range(want.log, key.sk, keys.LAST, limit=limit)


def wire_bytes(chain: Iterable[Segment], offsets: Sequence[int] | None = None) -> int:
    """The size in a response of the entries with messages at these offsets (None: all), each counted in full."""
    return sum(
        entry.wire_bytes for first, entry in entries(chain) if offsets is None or _touches(first, entry, offsets)
    )


def within_reach(chain: Iterable[Segment], offsets: Sequence[int], most_bytes: int) -> list[int]:
    """The first of these offsets, ending before the entry whose read would exceed `most_bytes` in all."""
    reached: list[int] = []
    for first, entry in entries(chain):
        if most_bytes > 0 and _touches(first, entry, offsets):
            reached += _between(offsets, first, first + entry.count)
            most_bytes -= entry.wire_bytes
    return reached


def stored_at(chain: Sequence[Segment], offset: int) -> int:
    """When the message at this offset, or the first existing one after it, was stored. 0: none exists, since the topic
    is being deleted."""
    for first, entry in entries(chain):
        if offset < first + entry.count:
            return entry.stored_at_ms
    return 0


def entry_at(chain: Sequence[Segment], offset: int) -> Entry | None:
    """The entry with the message at this offset, or None if the chain lacks it."""
    return next((entry for first, entry in entries(chain) if first <= offset < first + entry.count), None)


def entries(chain: Iterable[Segment]) -> Iterable[tuple[int, Entry]]:
    """The entries, each with the offset of its first message."""
    return [placed for segment in chain for placed in segment.placed]


def joined(chains: Iterable[Iterable[Segment]]) -> list[Segment]:
    """The segments of several chains of a log, each once, in order."""
    by_base = {segment.base: segment for chain in chains for segment in chain}
    return [by_base[base] for base in sorted(by_base)]


def _between(offsets: Sequence[int], first: int, stop: int) -> Sequence[int]:
    return offsets[bisect_left(offsets, first) : bisect_left(offsets, stop)]


def _touches(first: int, entry: Entry, offsets: Sequence[int]) -> bool:
    """Whether the entry holds one of these offsets, which are sorted."""
    place = bisect_left(offsets, first)
    return place < len(offsets) and offsets[place] < first + entry.count


def _locate(want: Want) -> Read:
    offset = keys.segment(want.log, want.offset)
    return Range(want.log, keys.FIRST, offset.sk, limit=1, descending=True)


def _merged(reads: Sequence[Read]) -> list[Read]:
    """Merges all reads by key into one request."""
    by_key: dict[Key, None] = {}
    ranges: list[Read] = []
    for read in reads:
        if isinstance(read, Keys):
            by_key |= dict.fromkeys(read.keys)
        else:
            ranges.append(read)
    return [Keys([*by_key]), *ranges] if by_key else ranges


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
