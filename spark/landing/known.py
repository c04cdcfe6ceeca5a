"""The messages that the table `messages` has, as intervals of offsets for each queue. It has all messages of an entry
or none, so a look-up need not unpack the entry."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

SCHEMA = pa.schema([("topic_id", pa.string()), ("queue", pa.int32()), ("start", pa.int64()), ("end", pa.int64())])
"""From `start` to before `end`."""

Queue = tuple[str, int]
Interval = tuple[int, int]


class KnownOffsets:
    """Intervals by topic id and queue: sorted, and none touches another."""

    def __init__(self, intervals: Mapping[Queue, Iterable[Interval]] | None = None) -> None:
        self._by_queue = {queue: _merged(found) for queue, found in (intervals or {}).items()}

    @classmethod
    def of(cls, rows: pa.Table) -> KnownOffsets:
        """From rows of `SCHEMA`."""
        found: dict[Queue, list[Interval]] = {}
        for topic_id, queue, start, end in zip(*(rows[name].to_pylist() for name in SCHEMA.names), strict=True):
            found.setdefault((topic_id, queue), []).append((start, end))
        return cls(found)

    @classmethod
    def of_entries(cls, entries: pa.RecordBatch) -> KnownOffsets:
        """The messages of entries: `topic_id`, `queue`, `offset` and `count`."""
        return cls._of(entries, entries["count"].to_numpy())

    @classmethod
    def of_messages(cls, messages: pa.RecordBatch) -> KnownOffsets:
        """These messages: `topic_id`, `queue` and `offset`."""
        return cls._of(messages, np.ones(len(messages), np.int64))

    @classmethod
    def _of(cls, rows: pa.RecordBatch, counts: npt.NDArray[np.int64]) -> KnownOffsets:
        starts = rows["offset"].to_numpy()
        ends = starts + counts
        found: dict[Queue, list[Interval]] = {}
        for queue, first, end in _runs(rows, ends[:-1] != starts[1:]):
            found.setdefault(queue, []).append((int(starts[first]), int(ends[end - 1])))
        return cls(found)

    def rows(self) -> pa.Table:
        """`SCHEMA`."""
        rows = [(*queue, *interval) for queue, found in sorted(self._by_queue.items()) for interval in found]
        return pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in rows], SCHEMA)

    @property
    def messages(self) -> int:
        return sum(end - start for found in self._by_queue.values() for start, end in found)

    def with_(self, others: Iterable[KnownOffsets]) -> KnownOffsets:
        """These and the others together."""
        found: dict[Queue, list[Interval]] = {queue: list(mine) for queue, mine in self._by_queue.items()}
        for other in others:
            for queue, intervals in other._by_queue.items():
                found.setdefault(queue, []).extend(intervals)
        return KnownOffsets(found)

    def overlaps(self, other: KnownOffsets) -> bool:
        """Whether a message is in both."""
        return self.with_([other]).messages < self.messages + other.messages

    def has(self, entries: pa.RecordBatch) -> pa.BooleanArray:
        """For each entry, whether its messages are there. Takes a batch with `topic_id`, `queue`, `offset` and
        `count`."""
        is_there = np.zeros(len(entries), bool)
        for queue, first, end in _runs(entries):
            if intervals := self._by_queue.get(queue):
                starts, ends = np.array(intervals, np.int64).T
                begin = entries["offset"].to_numpy()[first:end]
                at = np.searchsorted(starts, begin, side="right") - 1
                is_there[first:end] = (at >= 0) & (begin + entries["count"].to_numpy()[first:end] <= ends[at])
        return pa.array(is_there)


def _runs(rows: pa.RecordBatch, breaks: npt.NDArray[np.bool_] | bool = False) -> Iterator[tuple[Queue, int, int]]:
    """Runs of adjacent rows of one queue: the queue, the first row, and the one after the last. `breaks`: where a run
    always ends."""
    if not len(rows):
        return
    topics = pc.dictionary_encode(rows["topic_id"])
    codes, queues = topics.indices.to_numpy(), rows["queue"].to_numpy()
    bounds = np.flatnonzero((np.diff(codes) != 0) | (np.diff(queues) != 0) | breaks) + 1
    for first, end in zip([0, *bounds.tolist()], [*bounds.tolist(), len(rows)], strict=True):
        yield (topics.dictionary[int(codes[first])].as_py(), int(queues[first])), first, end


def _merged(intervals: Iterable[Interval]) -> list[Interval]:
    merged: list[Interval] = []
    for start, end in sorted(intervals):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        elif end > start:
            merged.append((start, end))
    return merged
