"""The pass over an export, from its data files to one change of the tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any
from uuid import uuid4

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema

from spark import schemas
from spark.errors import BadInput
from spark.files import Place, bundled
from spark.landing.aside import sources
from spark.landing.known import KnownOffsets
from spark.landing.landed import ITEMS, QUARANTINE, Landed, Landing, known_in, landed
from spark.landing.tasks import Workers
from spark.landing.unpacked import MESSAGES, UNREADABLE, Unpacking, unpacked
from spark.reading.manifest import Export, files_with_items
from spark.tables.tables import Tables
from spark.tables.versions import File, Part, TablesChange, Version
from spark.tables.writing import WrittenPart, as_parts, read_rows, write_part

KNOWN, TOPICS = "_known", "topics"
ALL = "part=all"
"""The one partition of a table that has no others."""

_TASK_BYTES, _TASK_BYTES_MAX = 8 << 20, 128 << 20
"""The compressed input of a task. The smallest takes some seconds, and its process one second to start."""
_TASKS = 64
"""How many tasks there are before they become larger."""
_BUCKET_BYTES = 16 << 20
"""The compressed bytes of the export for each bucket. A task holds all entries of one bucket with their messages in
memory."""
_BUCKETS_MAX = 256
_TOPICS = to_arrow_schema(schemas.TOPICS)


@dataclass(slots=True)
class Brought:
    """The result of a pass. `known`: messages that the tables already had; the other counts are those of `Unpacked`."""

    written: int = 0
    known: int = 0
    orphaned: int = 0
    failed: int = 0


@dataclass(slots=True)
class _Found:
    """`puts`: the partitions of this export, by table. `overlaps`: some unknown entries have known messages: the log is
    damaged."""

    puts: dict[str, list[File]] = field(default_factory=dict)
    added: Mapping[tuple[str, str], tuple[File, ...]] = field(default_factory=dict)
    aside: list[WrittenPart] = field(default_factory=list)
    topics: dict[str, str] = field(default_factory=dict)
    intervals: KnownOffsets = field(default_factory=KnownOffsets)
    has_twice: bool = False
    overlaps: bool = False


class ExportPass:
    """One pass over an export: `land`, then perhaps `unpack`. `change`: the resulting change of the tables."""

    def __init__(self, tables: Tables, export: Export, workers: Workers, unpacks: bool) -> None:
        """`unpacks`: whether `unpack` will be called."""
        self._tables, self._export, self._workers = tables, export, workers
        self._before = tables.newest()
        self._task_bytes = min(max(export.bytes // _TASKS, _TASK_BYTES), _TASK_BYTES_MAX)
        buckets = min(export.bytes // _BUCKET_BYTES + 1, _BUCKETS_MAX) if unpacks else 0
        known = tuple(tables.places(self._before, KNOWN) if unpacks else ())
        self._landing = Landing(tables.root, uuid4().hex, export.id, export.is_incremental, buckets, known)
        self._found = _Found()
        self.brought = Brought()

    def land(self) -> None:
        """Reads the export once: its items, its unreadable lines, and the unknown entries."""
        parts = bundled(files_with_items(self._export), self._task_bytes)
        results: list[Landed] = self._workers.each(partial(landed, self._landing), parts)
        self.brought.known = sum(result.known for result in results)
        together = KnownOffsets().with_(result.new for result in results)
        self._found.has_twice = together.messages < sum(result.found for result in results)
        self._found.overlaps = known_in(self._landing.known).overlaps(together)
        self._found.puts |= {ITEMS: [], QUARANTINE: []}
        for written in (written for result in results for written in result.written):
            self._found.puts[written.table].append(written.file)
        self._found.aside = [written for result in results for written in result.aside]

    def unpack(self, keeps: bool, blobs: Place | None = None) -> None:
        """Unpacks the unknown entries. `keeps`: their messages become rows of `messages`; otherwise they are only
        checked. Raises `BadInput` if the first export is incremental."""
        self._found.topics = self._topics()
        unpacking = Unpacking(self._landing, self._names(), keeps, blobs, None, self._superseded())
        found = sources(self._landing.scratch, self._found.aside, _BUCKET_BYTES)
        parts = bundled(found, self._task_bytes)
        if self._found.overlaps or self._found.has_twice:  # a damaged log: one task sees all earlier messages
            unpacking = replace(unpacking, known=known_in(self._landing.known))
            parts = [found]
        results = self._workers.each(partial(unpacked, unpacking), parts)
        self._found.puts[UNREADABLE] = []
        all_written = [written for result in results for written in result.written]
        for written in all_written:
            if written.table != MESSAGES:
                self._found.puts[written.table].append(written.file)
        self._found.added = as_parts(written for written in all_written if written.table == MESSAGES)
        self._found.intervals = KnownOffsets().with_(result.known for result in results)
        self.brought.written = self._found.intervals.messages
        self.brought.known += sum(result.there for result in results)
        self.brought.failed = sum(result.failed for result in results)
        self.brought.orphaned = sum(result.orphaned for result in results)

    @property
    def quarantined(self) -> list[Place]:
        """The files of the quarantine."""
        folder = self._tables.root / QUARANTINE / self._landing.part
        return [folder / file.name for file in self._found.puts[QUARANTINE]]

    def only_landed(self, newest: Version) -> TablesChange:
        """The change without the messages. Removes items of other exports."""
        part, puts = self._landing.part, self._found.puts
        change = TablesChange({(table, part): Part(tuple(files)) for table, files in puts.items()})
        for table in (ITEMS, UNREADABLE):
            change.put |= {(table, other): None for other in newest.parts(table).keys() - {part}}
        return change

    def whole(self, newest: Version) -> TablesChange:
        """The whole change. Raises `BadInput` if another run has added the same messages since this one began."""
        tables = self._tables
        change = self.only_landed(newest)
        change.added = dict(self._found.added)
        if not change.added and not newest.parts(MESSAGES):  # the table is there, and has nothing
            day = datetime.fromtimestamp(self._export.at_ms / 1000, UTC)
            change.put[MESSAGES, f"date={day:%Y-%m-%d}"] = Part()
        known = known_in(tables.places(newest, KNOWN))
        if newest.parts(KNOWN) != self._before.parts(KNOWN) and known.overlaps(self._found.intervals):
            raise BadInput(f"another run has written the same messages to {tables.root}; run the job again")
        if self._found.intervals.messages:
            rows = known.with_([self._found.intervals]).rows()
            change.put[KNOWN, ALL] = write_part(tables.root, KNOWN, ALL, rows)
        topics = self._earlier(newest) | self._found.topics
        if topics != self._earlier(newest):
            columns = [pa.array(list(column)) for column in (topics.keys(), topics.values())]
            change.put[TOPICS, ALL] = write_part(tables.root, TOPICS, ALL, pa.table(columns, _TOPICS))
        return change

    def _topics(self) -> dict[str, str]:
        """The names of the topics in the export by id, from the newest image of each, unless the topic was deleted."""
        newest: dict[str, tuple[int, int, str | None]] = {}
        columns = ["pk", "sk", "topic_id", "written_us", "line", "is_deleted", "topic"]
        for row in _rows(self._landed("topic"), columns):
            name = None if row["is_deleted"] else row["topic"] and row["topic"]["name"]
            image = (row["written_us"] or 0, row["line"], name)
            newest[row["topic_id"]] = max(newest.get(row["topic_id"], image), image, key=lambda image: image[:2])
        return {topic_id: name for topic_id, (_, _, name) in newest.items() if topic_id and name is not None}

    def _names(self) -> dict[str, str]:
        """The topics that exist. An incremental export has only those that changed; earlier exports have the others."""
        if not self._export.is_incremental:
            return self._found.topics
        if not self._before.parts(TOPICS):
            raise BadInput(
                f"{self._export.place} is incremental, and there is no table {self._tables.path(TOPICS)} with the names"
                " of all topics: a full export has to be read first"
            )
        return self._earlier(self._before) | self._found.topics

    def _earlier(self, version: Version) -> dict[str, str]:
        """The topics in the tables."""
        rows = _rows(self._tables.places(version, TOPICS), _TOPICS.names)
        return {row["topic_id"]: row["topic"] for row in rows}

    def _superseded(self) -> frozenset[tuple[str, int]]:
        """The lines with segments that have a newer image in the export. AWS writes one image of an item, so this looks
        only if entries came twice."""
        if not self._export.is_incremental or not self._found.has_twice:
            return frozenset()
        newest: dict[str, tuple[int, str, int]] = {}
        columns = ["pk", "sk", "written_us", "file", "line", "is_deleted"]
        rows = [row for row in _rows(self._landed("segment"), columns) if not row["is_deleted"]]
        for row in rows:
            image, key = (row["written_us"], row["file"], row["line"]), f"{row['pk']}\n{row['sk']}"
            newest[key] = max(newest.get(key, image), image)
        kept = {image[1:] for image in newest.values()}
        return frozenset({(row["file"], row["line"]) for row in rows} - kept)

    def _landed(self, kind: str) -> list[Place]:
        folder = self._tables.root / ITEMS / self._landing.part
        return [folder / file.name for file in self._found.puts[ITEMS] if file.name.startswith(f"{kind}-")]


def _rows(places: Iterable[Place], columns: list[str]) -> Iterator[dict[str, Any]]:
    for batch in read_rows(places, columns):
        yield from batch.to_pylist()
