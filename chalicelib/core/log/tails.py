"""Where logs continue, as an instance last saw them, and whether other writers were faster lately.

An instance appends where it expects the log to end. If the append is refused, it does not know how far other writers
have got, so it reads the end of the log for half a read unit rather than try one segment after another for a write unit
each. It then reads the end before each append until no other instance appends any more."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from chalicelib.core.base.cache import BoundedCache
from chalicelib.core.base.errors import TopicNotFound
from chalicelib.core.base.limits import INLINE_BYTES_MAX, MINUTE_MS, SECOND_MS
from chalicelib.core.base.records import record
from chalicelib.core.catalogue.catalogue import Env
from chalicelib.core.catalogue.topic import Topic
from chalicelib.core.log.segment import Segment
from chalicelib.core.store import Keys, Range, Read
from chalicelib.core.table import keys

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
            newest = self._newest(topic, unsure, is_new, strong)
            tails |= {log: self._found(log, segment) for log, segment in zip(unsure, newest, strict=True)}
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
        newest: list[Read] = [
            Range(log, keys.FIRST, keys.LAST, limit=1, descending=True, strong=strong) for log in logs
        ]
        topics: list[Read] = [Keys([keys.topic(topic.name)], strong=True)] if is_new else []
        found = self._store.read([*newest, *topics])
        if not is_new and not all(found):  # a log that was there is gone
            return self._newest(topic, logs, is_new=True, strong=True)
        if is_new and (not found[-1] or found[-1][0]["id"] != topic.id):
            raise TopicNotFound(f"topic '{topic.name}' does not exist")
        return [Segment.of(items[0]) if items else None for items in found[: len(logs)]]


def _owners(log: str, _: object) -> Iterable[str]:
    return keys.owners(log)
