"""The partitions of a store in a fixed order, for scans in pages, side by side, while others write."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from zlib import crc32

SCANS_MAX = 64
"""Whose lists are kept from page to page."""

_Segment = tuple[int, int]


class Partitions:
    """Sorted by name, so that a scan meets each partition that exists all the while once. The list of a scan is kept to
    save time only: it may be made anew for any page."""

    def __init__(self, names: Callable[[], list[str]]) -> None:
        self._names = names
        self._kept: dict[_Segment, list[str]] = {}

    def after(self, start: str | None, segment: int, total: int) -> Iterator[str]:
        """Those of the segment, from `start` on. None: a scan begins."""
        known = None if start is None else self._kept.get((segment, total))
        names = self._sorted(segment, total) if known is None else known
        return (names[place] for place in range(bisect_left(names, start or ""), len(names)))

    def forget(self, segment: int, total: int) -> None:
        """The scan of the segment has come to its end."""
        self._kept.pop((segment, total), None)

    def _sorted(self, segment: int, total: int) -> list[str]:
        names = sorted(name for name in self._names() if crc32(name.encode()) % total == segment)
        if len(self._kept) >= SCANS_MAX:
            self._kept.clear()
        self._kept[segment, total] = names
        return names
