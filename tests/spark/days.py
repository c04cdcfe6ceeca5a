"""Exports of one topic, a day each: a full one, then what every day has changed."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import orjson

from spark.exporting import layout
from spark.exporting.layout import DataFileWriter, NewExport
from tests.spark.exports import change, line
from tests.spark.items import Item, entry, segment, topic

HOUR_MS, DAY_MS = 3_600_000, 86_400_000
START_MS = 1_767_223_800_000
"""Half an hour before midnight (2025-12-31 UTC)."""
_PER_ENTRY, _ENTRIES = 10, 5
_TAGS = ("created", "paid", "shipped")


@dataclass
class _Queue:
    """`base`: of the newest segment, which has the entries `held` and takes more."""

    number: int
    end: int = 0
    base: int = 0
    held: list[Item] = field(default_factory=list)

    @property
    def segment(self) -> Item:
        return segment(*self.held, base=self.base, queue=self.number)


class Days:
    """The messages of a queue and day are stored in its first second. The newest segment of a queue is not full at the
    end of a day: the next export has it again, with more entries."""

    def __init__(self, root: Path, messages: int = 200, queues: int = 2) -> None:
        """`messages`: of a day."""
        self._root, self._messages = root, messages // queues
        self._queues = [_Queue(number) for number in range(queues)]
        self._chance = random.Random(7)
        self._day = 0

    def write(self) -> Path:
        """Writes the export of the next day. Returns its folder."""
        at_ms = START_MS + self._day * DAY_MS
        from_ms = at_ms + HOUR_MS - DAY_MS if self._day else None
        export_id = f"{at_ms + HOUR_MS:014d}-{self._chance.getrandbits(32):08x}"
        export = NewExport(self._root, export_id, "decant", at_ms + HOUR_MS, from_ms)
        layout.begin(export)
        file = DataFileWriter(export.file(0))
        for item in self._items(at_ms):
            file.write(change(item, at_ms * 1_000) if export.is_incremental else line(item))
        layout.finish(export, [file.close()], export.at_ms + 1_000)
        self._day += 1
        return export.folder

    def _items(self, at_ms: int) -> Iterator[Item]:
        if not self._day:
            yield topic() | {"queues": len(self._queues), "retention_ms": 3 * DAY_MS}
        for queue in self._queues:
            last = queue.end + self._messages
            while queue.end < last:
                if len(queue.held) == _ENTRIES:
                    yield queue.segment
                    queue.base, queue.held = queue.end, []
                count = min(_PER_ENTRY, last - queue.end)
                queue.held.append(self._entry(count, at_ms + len(queue.held)))
                queue.end += count
            yield queue.segment

    def _entry(self, count: int, at_ms: int) -> Item:
        lines = [
            {
                "b": f"order {self._chance.getrandbits(200):x}",
                "k": f"customer-{self._chance.randrange(500)}",
                "t": self._chance.choice(_TAGS),
            }
            for _ in range(count)
        ]
        return entry(b"\n".join(map(orjson.dumps, lines)), self._chance.randbytes(8), count) | {"at": at_ms}
