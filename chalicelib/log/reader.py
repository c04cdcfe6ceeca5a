"""Reads logs: walks the chain of segments from a hint to an offset and on, asking the store for what is not known.

Sealed segments never change and are kept; an open one is read anew each time. Reads of several queues share a round
trip, and the first reads can be guessed, so that they go out together with the read of the cursors.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from chalicelib.base.cache import BoundedCache
from chalicelib.base.limits import EXPIRED_KEPT_MS, HOUR_MS, INSTANCE_CACHE_BYTES_MAX
from chalicelib.base.message import Stored
from chalicelib.catalogue.env import Env
from chalicelib.catalogue.topic import Topic
from chalicelib.log.payloads import Payloads
from chalicelib.log.segment import Entry, Segment
from chalicelib.store import Keys, Range, Read
from chalicelib.table import keys
from chalicelib.table.writes import Item

_AHEAD_SEGMENTS_MAX = 32
_AHEAD_SEGMENTS_MIN = 4
"""Four segments of a kilobyte cost as much to read as one."""

_ENTRY_BYTES = 500
"""What an entry takes in memory beyond its data."""


@dataclass(frozen=True, slots=True)
class Want:
    """`count` messages of a log from `offset` on. `hint`: the base of a segment at or before it, if one is known.
    `since_ms`: when the log began; 0: not known."""

    log: str
    offset: int
    count: int
    hint: int | None
    since_ms: int = 0


@dataclass(slots=True)
class Seen:
    """What was read for one call: segments by log and base, and the bases where there is none."""

    segments: dict[tuple[str, int], Segment | None] = field(default_factory=dict)
    located: dict[tuple[str, int], int] = field(default_factory=dict)
    """Log and offset -> base of the segment that holds it."""
    later: dict[tuple[str, int], int | None] = field(default_factory=dict)
    """Log and base -> base of the first segment from there on; None: there is none."""


class LogReader:
    def __init__(self, env: Env, payloads: Payloads) -> None:
        self._store, self._runtime = env.store, env.runtime
        self._payloads = payloads
        self._sealed: BoundedCache[Segment] = BoundedCache(
            INSTANCE_CACHE_BYTES_MAX // 2,
            size_of=lambda segment: segment.filled_bytes + _ENTRY_BYTES * len(segment.entries),
        )
        self._behind: BoundedCache[bool] = BoundedCache()
        """Logs in which somebody was seen to be behind."""
        self._empty_until: BoundedCache[int] = BoundedCache()

    def guess(self, wants: Iterable[Want]) -> list[Read]:
        """The first reads that these wants need, by what is known."""
        seen = Seen()
        return _merged([read for want in wants if (read := self._walk(want, seen)[1])])

    def chains(self, wants: Sequence[Want], seen: Seen | None = None, strong: bool = False) -> list[list[Segment]]:
        """For each want the segments, in order, from the one with its offset to the one with its last message, or to
        the end of the log. An empty list: nothing is there yet. Where the log has lost its beginning, the first segment
        may begin behind the offset. `strong`: what was stored a moment ago is seen."""
        seen = seen or Seen()
        while True:
            walked = [self._walk(want, seen) for want in wants]
            reads = _merged([read for _, read in walked if read])
            if strong:
                reads = [replace(read, strong=True) for read in reads]
            if not reads:
                return [segments for segments, _ in walked]
            self.learn(seen, reads, self._store.read(reads))

    def learn(self, seen: Seen, reads: Sequence[Read], answers: Sequence[Sequence[Item]]) -> None:
        for read, items in zip(reads, answers, strict=True):
            for item in items:
                segment = Segment.of(item)
                seen.segments[segment.log, segment.base] = segment
                if segment.is_sealed:
                    self._sealed.keep((segment.log, segment.base), segment)
            if isinstance(read, Keys):
                for key in read.keys:
                    seen.segments.setdefault((key.pk, keys.base_of(key.sk)), None)
            elif read.descending:
                offset = keys.base_of(read.high)
                seen.located[read.pk, offset] = keys.base_of(items[0]["sk"]) if items else offset
            else:
                place = (read.pk, keys.base_of(read.low))
                seen.segments.setdefault(place, None)
                seen.later[place] = keys.base_of(items[0]["sk"]) if items else None
                if not items:
                    self._empty_until.keep(place, self._runtime.uptime() + HOUR_MS)

    def stored(self, topic: Topic, queue: int, chain: Sequence[Segment], offsets: Iterable[int]) -> list[Stored]:
        """The messages at these offsets, with their payloads, `LOST` where that is gone. What has expired may be gone,
        too, and is left out then."""
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

    def _walk(self, want: Want, seen: Seen) -> tuple[list[Segment], Read | None]:
        """The chain as far as it is known, and the read that would tell more (None: it is complete)."""
        base = seen.located.get((want.log, want.offset)) if want.hint is None else want.hint
        if base is None:
            return [], _locate(want)
        chain: list[Segment] = []
        last: Segment | None = None
        while True:
            place = (want.log, base)
            segment = seen.segments.get(place) or self._sealed.get(place)
            if segment is None and place in seen.segments and last is None and seen.later.get(place) is not None:
                base = seen.later[place] or 0  # the log has lost what was before
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

    def _may_begin_later(self, want: Want, base: int) -> bool:
        """Whether a segment that is not there may have been removed: not of a log that is younger than they get, and
        not where nothing was a while ago."""
        is_old = self._runtime.now() - want.since_ms > EXPIRED_KEPT_MS
        return is_old and (self._empty_until.get((want.log, base)) or 0) < self._runtime.uptime()

    def _next_read(self, want: Want, base: int, last: Segment | None, seen: Seen) -> Read | None:
        """By key where the log probably ends; ahead where there is a backlog, or where one read was not enough, since
        many segments cost little more than one."""
        key = keys.segment(want.log, base)
        if (want.log, base) in seen.segments:  # nothing is there: is it the end, or has the log lost its beginning?
            is_known = last is not None or (want.log, base) in seen.later or not self._may_begin_later(want, base)
            return None if is_known else Range(want.log, key.sk, keys.LAST, limit=1)
        is_second = last is not None and (want.log, last.base) in seen.segments
        if want.count <= 1 or not (is_second or self._behind.get(want.log)):
            return Keys([key])
        ahead = (want.offset + want.count - base) // (last.end - last.base) + 1 if last else 0
        limit = min(max(ahead, _AHEAD_SEGMENTS_MIN), _AHEAD_SEGMENTS_MAX)
        return Range(want.log, key.sk, keys.LAST, limit=limit)


def wire_bytes(chain: Iterable[Segment], offsets: Sequence[int] | None = None) -> int:
    """What the entries with messages at these offsets (None: all) weigh, each counted whole."""
    return sum(
        entry.wire_bytes for first, entry in entries(chain) if offsets is None or _touches(first, entry, offsets)
    )


def within_reach(chain: Iterable[Segment], offsets: Sequence[int], most_bytes: int) -> list[int]:
    """The first of these offsets, up to those of the entry with which more than `most_bytes` would have to be read."""
    reached: list[int] = []
    for first, entry in entries(chain):
        if most_bytes > 0 and _touches(first, entry, offsets):
            reached += _between(offsets, first, first + entry.count)
            most_bytes -= entry.wire_bytes
    return reached


def stored_at(chain: Sequence[Segment], offset: int) -> int:
    """When the message at this offset was stored, or the first one after it that is still there; 0: none is, the topic
    is being deleted."""
    return next((each.stored_at_ms for first, each in entries(chain) if offset < first + each.count), 0)


def entry_at(chain: Sequence[Segment], offset: int) -> Entry | None:
    """The entry with the message at this offset; None: the chain does not hold it."""
    return next((each for first, each in entries(chain) if first <= offset < first + each.count), None)


def entries(chain: Iterable[Segment]) -> Iterable[tuple[int, Entry]]:
    """Each with the offset of its first message."""
    return (placed for segment in chain for placed in segment.placed)


def _between(offsets: Sequence[int], first: int, stop: int) -> Sequence[int]:
    return offsets[bisect_left(offsets, first) : bisect_left(offsets, stop)]


def _touches(first: int, entry: Entry, offsets: Sequence[int]) -> bool:
    """Whether the entry holds one of these offsets, which are in order."""
    place = bisect_left(offsets, first)
    return place < len(offsets) and offsets[place] < first + entry.count


def _locate(want: Want) -> Read:
    offset = keys.segment(want.log, want.offset)
    return Range(want.log, keys.FIRST, offset.sk, limit=1, descending=True)


def _merged(reads: Sequence[Read]) -> list[Read]:
    """All reads by key become one request."""
    by_key = list(dict.fromkeys(key for read in reads if isinstance(read, Keys) for key in read.keys))
    ranges: list[Read] = [read for read in reads if isinstance(read, Range)]
    return ([Keys(by_key)] if by_key else []) + ranges
