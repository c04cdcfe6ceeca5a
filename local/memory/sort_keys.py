"""The sort keys of a partition in order. One list of a million would move megabytes at each insertion."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator

BLOCK_KEYS_MAX = 1_000
"""A longer block is split."""


class SortKeys:
    """Blocks of keys, none of them empty, and the last key of each."""

    def __init__(self, keys: Iterable[str]) -> None:
        ordered, step = sorted(keys), BLOCK_KEYS_MAX // 2
        self._blocks = [ordered[start : start + step] for start in range(0, len(ordered), step)]
        self._lasts = [block[-1] for block in self._blocks]

    def add(self, key: str) -> None:
        """Adds a new key."""
        if not self._blocks:
            self._blocks, self._lasts = [[key]], [key]
            return
        place = min(bisect_left(self._lasts, key), len(self._blocks) - 1)
        block = self._blocks[place]
        insort(block, key)
        if len(block) > BLOCK_KEYS_MAX:
            half = len(block) // 2
            self._blocks[place : place + 1] = [block[:half], block[half:]]
            self._lasts[place : place + 1] = [block[half - 1], block[-1]]
        else:
            self._lasts[place] = block[-1]

    def remove(self, key: str) -> None:
        """Removes an existing key."""
        place = bisect_left(self._lasts, key)
        block = self._blocks[place]
        del block[bisect_left(block, key)]
        if block:
            self._lasts[place] = block[-1]
        else:
            del self._blocks[place], self._lasts[place]

    def ascending(self, low: str, high: str) -> Iterator[str]:
        """From `low` to `high`, both included."""
        for place in range(bisect_left(self._lasts, low), len(self._blocks)):
            block = self._blocks[place]
            yield from block[bisect_left(block, low) : bisect_right(block, high)]
            if block[-1] > high:
                return

    def descending(self, low: str, high: str) -> Iterator[str]:
        for place in range(min(bisect_left(self._lasts, high), len(self._blocks) - 1), -1, -1):
            block = self._blocks[place]
            yield from reversed(block[bisect_left(block, low) : bisect_right(block, high)])
            if block[0] < low:
                return
