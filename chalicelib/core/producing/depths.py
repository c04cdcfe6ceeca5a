"""The circuit breaker: keeps messages out of queues that hold as many unconsumed ones as a topic's `max_depth` allows.

An instance looks at most once a second at what the groups have consumed and where the logs end. In between it counts
what it appends itself: each append shows the end of the log, with what others have appended. So it lets at most those
calls through to a full queue that began before one of its own appends showed that it is full.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from itertools import chain
from typing import NamedTuple

from chalicelib.core.base import deadline
from chalicelib.core.base.cache import BoundedCache
from chalicelib.core.base.errors import QueueFull, StoreUnavailable
from chalicelib.core.base.limits import SECOND_MS
from chalicelib.core.base.message import Produced
from chalicelib.core.base.records import mutable
from chalicelib.core.catalogue.catalogue import Env
from chalicelib.core.catalogue.group import Group
from chalicelib.core.catalogue.topic import Topic
from chalicelib.core.cursors.cursor import all_cursors_of, joined, pages_of
from chalicelib.core.cursors.progress import of_group
from chalicelib.core.log import Log
from chalicelib.core.log.reader import Want, end_of, newest, stored_at
from chalicelib.core.store import Range
from chalicelib.core.table import keys
from chalicelib.core.table.writes import Item

LOOK_MS = SECOND_MS
"""How long an instance goes by one look. A queue that was drained takes messages again when it is over."""


class Slowest(NamedTuple):
    """The lowest offset of a queue that some group has not settled, and the name of that group."""

    committed: int
    group: str


@mutable
class _Known:
    """A topic as an instance last saw it. `slowest`, `ends`: by queue."""

    looked_at_ms: int
    groups: list[str] = field(default_factory=list)
    slowest: Mapping[int, Slowest] = field(default_factory=dict)
    ends: dict[int, int] = field(default_factory=dict)

    def ends_at(self, queue: int, end: int) -> None:
        self.ends[queue] = max(self.ends.get(queue, 0), end)

    def full(self, depth_max: int) -> list[int]:
        return [queue for queue, slow in self.slowest.items() if self.ends[queue] - slow.committed >= depth_max]


class Depths:
    def __init__(self, env: Env, log: Log) -> None:
        self._store, self._runtime = env.store, env.runtime
        self._reader, self._log_offsets = log.reader, log.offsets
        self._known: BoundedCache[_Known] = env.caches.bounded(lambda topic_id, _: [topic_id])
        """By topic id."""

    def full(self, topic: Topic, depth_max: int) -> dict[int, QueueFull]:
        """The queues that take no messages now, each with the error that says why. When the last look is too old, the
        first call that comes looks again; others go by the last look meanwhile."""
        now, known = self._runtime.uptime(), self._known.get(topic.id)
        if known is None or now - known.looked_at_ms >= LOOK_MS:
            known = known or _Known(now)
            known.looked_at_ms = now
            self._look(topic, depth_max, known)
            self._known.keep(topic.id, known)
        return {queue: self._error(topic, known, queue) for queue in known.full(depth_max)}

    def note(self, topic: Topic, results: Sequence[Produced]) -> None:
        """Counts what was appended."""
        if known := self._known.get(topic.id):
            for result in results:
                if result.offset is not None:
                    known.ends_at(result.queue, result.offset + 1)

    def _look(self, topic: Topic, depth_max: int, known: _Known) -> None:
        """One round trip, and one more where groups are new. If the store fails, the last look stands; before the first
        one, messages pass."""
        of_ends = newest(topic.read_logs)
        try:
            with deadline.part_until(deadline.hop_until_ms(self._runtime.uptime())):
                pages = [pages_of(topic, name) for name in known.groups]
                reads = [_directory(topic), *of_ends, *chain.from_iterable(pages)]
                listed, *answers = self._store.read(reads)
                names = [item["sk"] for item in listed]
                stored = dict(zip(known.groups, joined(pages, answers[len(of_ends) :]), strict=True))
                if new := [name for name in names if name not in stored]:
                    pages = [pages_of(topic, name) for name in new]
                    answers_of_new = self._store.read([*chain.from_iterable(pages)])
                    stored |= zip(new, joined(pages, answers_of_new), strict=True)
                for queue, items in enumerate(answers[: len(of_ends)]):
                    known.ends_at(queue, end_of(items))
                known.groups = names
                known.slowest = self._slowest(topic, depth_max, known, {name: stored[name] for name in names})
        except StoreUnavailable:
            return

    def _slowest(
        self, topic: Topic, depth_max: int, known: _Known, stored: Mapping[str, Sequence[Item]]
    ) -> dict[int, Slowest]:
        """By queue; empty without groups. Expired messages are not waiting any more, which is looked up only where it
        could make a difference."""
        ends, nothing = [known.ends[queue] for queue in range(topic.readers)], [0] * topic.readers
        now = self._runtime.now()
        slowest: dict[int, Slowest] = {}
        for name, items in stored.items():
            if settings := next((item for item in items if item["sk"] == keys.SETTINGS), None):
                group = Group.of(topic.id, name, settings)
                for part in of_group(group, all_cursors_of(group, topic, items), nothing, ends, now):
                    slow = Slowest(part.committed_offset, name)
                    slowest[part.queue] = min(slow, slowest.get(part.queue, slow))
        full = {queue: slow for queue, slow in slowest.items() if ends[queue] - slow.committed >= depth_max}
        return slowest | self._unexpired(topic, full, now)

    def _unexpired(self, topic: Topic, full: Mapping[int, Slowest], now: int) -> dict[int, Slowest]:
        """The same for these queues without what has expired: from the first message that can still be read."""
        expired_ms = topic.expired_ms(now)
        if topic.created_at_ms > expired_ms:
            return {}
        wants = [Want(topic.logs[queue], slow.committed, 1, None) for queue, slow in full.items()]
        chains = dict(zip(full, self._reader.chains(wants), strict=True))
        heads = {queue: stored_at(chain, full[queue].committed) for queue, chain in chains.items()}
        firsts = {queue: chain[0].base for queue, chain in chains.items() if heads[queue] > expired_ms}
        if len(firsts) < len(full):
            firsts = dict(enumerate(self._log_offsets.offsets_at(topic, expired_ms + 1)))
        return {queue: slow._replace(committed=max(slow.committed, firsts[queue])) for queue, slow in full.items()}

    def _error(self, topic: Topic, known: _Known, queue: int) -> QueueFull:
        slow = known.slowest[queue]
        return QueueFull(
            f"queue {queue} of topic '{topic.name}' is full: group '{slow.group}' has not consumed"
            f" {known.ends[queue] - slow.committed} messages; the topic's max_depth is {topic.max_depth}"
        )


def _directory(topic: Topic) -> Range:
    return Range(keys.groups(topic.id), keys.FIRST, keys.LAST)
