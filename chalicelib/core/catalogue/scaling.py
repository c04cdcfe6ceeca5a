"""The numbers of queues that a topic reads and writes while `queues` changes.

Readers come first: instances read new queues at once, but write to them only from an instant by which every instance
knows the change. When the number falls, writers leave first, and readers leave a queue once it is settled
(`admin.draining`)."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import takewhile
from typing import Any, NamedTuple

from chalicelib.core.base.limits import HEARD_MS, HOUR_MS

PLACED_KEPT_MS = HOUR_MS
"""How long a placement is kept after the next one has replaced it."""
CHANGES_MAX = 50
"""The most changes that a topic records, besides where it began: pops read them with its other settings."""


class Scaling(NamedTuple):
    """`readers`: how many queues are read. `most`: the most queues that the topic ever had; those that have left keep
    their logs. `placements`: pairs of an instant and a number of queues; from that instant on, by its own clock, a
    producer uses that many queues."""

    readers: int
    most: int
    placements: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, queues: int, attributes: Mapping[str, Any]) -> Scaling:
        """From a topic's item, which has none of these attributes before the first change."""
        placements = attributes.get("placements", ((0, queues),))
        placed = tuple((from_ms, count) for from_ms, count in placements)
        return cls(attributes.get("readers", queues), attributes.get("most", queues), placed)

    def as_attributes(self) -> dict[str, Any]:
        return {"readers": self.readers, "most": self.most, "placements": [list(placed) for placed in self.placements]}

    def writers(self, now: int) -> int:
        """How many queues producers use now."""
        counts = [count for from_ms, count in self.placements if from_ms <= now] or [self.placements[0][1]]
        return min(counts[-1], self.readers)

    def unwritten_since(self, queue: int) -> int:
        """Since when, by the producers' clocks, no message goes to a draining queue."""
        return min(from_ms for from_ms, _ in takewhile(lambda placed: placed[1] <= queue, reversed(self.placements)))

    def resized(self, queues: int, now: int) -> Scaling:
        """The scaling after a change to this number of queues, decided now."""
        from_ms = max(now + HEARD_MS, self.placements[-1][0] + 1)
        placements = (*self.placements, (from_ms, queues))
        ends = [*(from_ms for from_ms, _ in placements[1:]), from_ms + 1]
        kept = tuple(placed for placed, end_ms in zip(placements, ends, strict=True) if end_ms > now - PLACED_KEPT_MS)
        return Scaling(max(self.readers, queues), max(self.most, queues), kept)

    def reading(self, readers: int) -> Scaling:
        """The same with this many queues read."""
        return self._replace(readers=readers)
