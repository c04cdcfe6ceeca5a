"""Exports of one topic, a day each: a full one, then what every day has changed."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from spark.exporting import layout
from spark.exporting.layout import DataFileWriter, NewExport
from spark.exporting.typed_json import change_line, full_line, typed_item
from tests.synthetic import groups
from tests.synthetic.log import SEGMENT_BYTES, payload
from tests.synthetic.packing import Entry, Messages
from tests.synthetic.parameters import DAY_MS, HOUR_MS, START_MS, Shape

_PER_ENTRY = 10


@dataclass
class _Queue:
    """`base`: of the newest segment, which has the entries `held` and takes more."""

    messages: Messages
    end: int = 0
    base: int = 0
    held: list[Entry] = field(default_factory=list)


class Days:
    """The messages of a queue and day are stored in its first second. The newest segment of a queue is not full at the
    end of a day: the next export has it again, with more entries."""

    def __init__(self, root: Path, messages: int = 200, queues: int = 2, seed: int = 7) -> None:
        """`messages`: of a day."""
        self._root = root
        self._shape = Shape(messages, topics=1, queues=queues, seed=seed)
        self._queues = [_Queue(Messages(random.Random(f"{seed} {at}"), at, queues)) for at in range(queues)]
        self._day = 0

    def write(self) -> Path:
        """Writes the export of the next day. Returns its folder."""
        at_ms = START_MS + self._day * DAY_MS
        export_id = f"{at_ms + HOUR_MS:014d}-{self._shape.name_of(f'day {self._day}')}"
        from_ms = at_ms + HOUR_MS - DAY_MS if self._day else None
        export = NewExport(self._root, export_id, "decant", at_ms + HOUR_MS, from_ms)
        layout.begin(export)
        file = DataFileWriter(export.file(0))
        for item in self._items(at_ms):
            image = typed_item(item)
            keys = {"pk": image["pk"], "sk": image["sk"]}
            file.write(change_line(at_ms * 1_000, keys, image) if export.is_incremental else full_line(image))
        layout.finish(export, [file.close()], export.at_ms + 1_000)
        self._day += 1
        return export.folder

    def _items(self, at_ms: int) -> Iterator[dict[str, Any]]:
        if not self._day:
            yield from groups.settings(self._shape, 0)
        for number, queue in enumerate(self._queues):
            yield from self._log(f"log#{self._shape.topic_id(0)}#{number}", queue, at_ms)

    def _log(self, pk: str, queue: _Queue, at_ms: int) -> Iterator[dict[str, Any]]:
        last = queue.end + self._shape.messages // len(self._queues)
        while queue.end < last:
            if sum(entry.size for entry in queue.held) >= SEGMENT_BYTES:
                yield _segment(pk, queue)
                queue.base, queue.held = queue.end, []
            count = min(_PER_ENTRY, last - queue.end)
            entry = queue.messages.entry(queue.end, [None] * count, at_ms + len(queue.held)).placed()
            for piece, data in enumerate(entry.payloads()):
                yield payload(self._shape.topic_id(0), entry.id, piece, data, at_ms)
            queue.held.append(entry)
            queue.end += count
        yield _segment(pk, queue)


def _segment(pk: str, queue: _Queue) -> dict[str, Any]:
    filled = sum(entry.size for entry in queue.held)
    entries = [entry.as_value() for entry in queue.held]
    return {"pk": pk, "sk": f"{queue.base:015d}", "end": queue.end, "bytes": filled, "entries": entries}
