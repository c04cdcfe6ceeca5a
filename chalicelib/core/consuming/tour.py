"""Which queues a pop looks at, look after look.

A look costs half a read unit for each queue, and each queue serves so many looks a second. A pop therefore looks at a
few queues, whose cursors are in one page, then at four times as many others, and so on until it has looked at all of
them: only then nothing is there. While it waits, its next looks begin again with a few."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import field

from chalicelib.core.base.errors import StoreUnavailable
from chalicelib.core.base.records import mutable
from chalicelib.core.base.runtime import Runtime
from chalicelib.core.catalogue.topic import Topic
from chalicelib.core.consuming.request import Pop
from chalicelib.core.consuming.taker import Popped
from chalicelib.core.consuming.view import GroupView
from chalicelib.core.table import keys

LOOKED_AT = 4
"""Queues at which the first look is. One of so many, chosen at random, has more ready than most have; with two, fresh
messages would wait longer where many consumers meet."""
WIDENED = 4
"""How many times as many the next look is at: a pop finds out that nothing is there in four looks at most."""
AWAY_ONE_IN = 8
"""A pop with a home goes into another page so often, lest a page whose queues are never empty keeps its consumers."""


def compares_all(topic: Topic, ask: Pop) -> bool:
    """Whether a pop must compare all queues before it takes from one: it leaves some to other zones, or is to be
    filled from as many as it needs."""
    return ask.fill or (ask.zone is not None and bool(topic.known_zones.given))


@mutable
class Tour:
    """`home`: the queue that the consumer took from last, if more is likely to be there. `seen`: the queues that were
    looked at in this round. `width`: at how many the last look was to be. `ready_at`: when something more may be ready
    in a queue, as the last look at it showed. `is_held`, `is_limited`: whether something was ready, or capped, in this
    round. `failed`: the queues whose logs could not be read in this round, or that the claim failed in. `trouble`: why
    messages were given back in this round, which could not be read."""

    runtime: Runtime
    home: int | None = None
    seen: set[int] = field(default_factory=set)
    width: int = 0
    ready_at: dict[int, int] = field(default_factory=dict)
    is_held: bool = False
    is_limited: bool = False
    failed: set[int] = field(default_factory=set)
    trouble: StoreUnavailable | None = None

    def next(self, topic: Topic, ask: Pop, is_told: bool) -> list[int]:
        """The queues of the next look. `is_told`: something was stored, in whichever queue."""
        if self.is_over(topic):
            self.seen, self.failed, self.trouble = set(), set(), None
            self.is_held = self.is_limited = False
        readers = topic.readers
        self.ready_at = {queue: ms for queue, ms in self.ready_at.items() if queue < readers}  # others have left
        self.width = self.width * WIDENED if self.seen else LOOKED_AT
        if is_told or readers <= LOOKED_AT or compares_all(topic, ask):
            chosen = [*range(readers)]
        else:
            chosen = sorted(self._chosen(readers))
        self.seen.update(chosen)
        self.home = None
        return chosen

    def is_over(self, topic: Topic) -> bool:
        """Whether all queues were looked at."""
        return self.seen.issuperset(range(topic.readers))

    def met(self, view: GroupView, popped: Popped) -> None:
        """Takes note of what a look has shown, and what was taken then."""
        for queue, each in view.queues.items():
            if each.is_read or each.trouble:  # of the others, what was known before may still come
                self.ready_at.pop(queue, None)
        for queue, ms in view.ready_at().items():
            self.ready_at[queue] = min(ms, self.ready_at.get(queue, ms))
        self.is_held = self.is_held or view.is_held(self.runtime.now())
        self.is_limited = self.is_limited or popped.is_limited
        self.trouble = self.trouble or popped.trouble
        self.failed |= {queue for queue, each in view.queues.items() if each.trouble}

    def next_ready_at_ms(self) -> int | None:
        return min(self.ready_at.values(), default=None)

    def _chosen(self, readers: int) -> Collection[int]:
        chosen = self._due() or self._at_home(readers)
        left = [queue for queue in range(readers) if queue not in self.seen and queue not in chosen]
        if len(left) <= self.width - len(chosen):
            return [*chosen, *left]
        pages = {keys.page_of(queue) for queue in chosen}
        old_pages = {keys.page_of(queue) for queue in self.seen}
        while len(chosen) < self.width:
            near = [queue for queue in left if keys.page_of(queue) in pages]
            new = [queue for queue in left if keys.page_of(queue) not in old_pages]
            queue = self.runtime.choice(near or new or left)
            chosen.append(queue)
            left.remove(queue)
            pages.add(keys.page_of(queue))
        return chosen

    def _due(self) -> list[int]:
        """Queues of one page in which something is known to be ready now."""
        now = self.runtime.now()
        due = sorted((ms, queue) for queue, ms in self.ready_at.items() if ms <= now)
        page = [queue for _, queue in due if keys.page_of(queue) == keys.page_of(due[0][1])]
        for queue in page[:LOOKED_AT]:
            del self.ready_at[queue]
        return page[:LOOKED_AT]

    def _at_home(self, readers: int) -> list[int]:
        if self.home is None or self.home >= readers:
            return []
        is_away = readers > keys.CURSORS_IN_PAGE and self.runtime.choice(range(AWAY_ONE_IN)) == 0
        return [] if is_away else [self.home]
