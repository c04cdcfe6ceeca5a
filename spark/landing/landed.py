"""The task that reads some data files of an export, each once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_schema

from spark import item_schemas, schemas
from spark.files import Place
from spark.landing.aside import ENTRIES, PIECES, PLACES, in_buckets
from spark.landing.known import SCHEMA, KnownOffsets
from spark.reading.data_file import FileReader, light
from spark.reading.manifest import DataFile
from spark.tables.tables import SCRATCH
from spark.tables.writing import PartWriter, WrittenPart, read_rows
from spark.unpacking.entries import entries, payloads

ITEMS, QUARANTINE = "_items", "quarantine"
_HEAD = [field.name for field in item_schemas.ITEMS if field.name not in item_schemas.KINDS]
_QUARANTINE = to_arrow_schema(schemas.QUARANTINE)


@dataclass(frozen=True, slots=True)
class Landing:
    """`root`: of the tables. `run`: the name of the run, for its folder of set-aside data. `known`: the files that list
    known messages. `buckets`: the number of buckets for entries whose messages are in payload items; 0: skip
    messages."""

    root: Place
    run: str
    export_id: str
    is_incremental: bool
    buckets: int
    known: tuple[Place, ...] = ()

    @property
    def part(self) -> str:
        return f"export={self.export_id}"

    @property
    def scratch(self) -> Place:
        return self.root / SCRATCH / self.run


class Landed(NamedTuple):
    """Counts of messages: `known`, in known entries, and `found`, in the others. `new`: the places of the latter; fewer
    than `found` if an entry came twice."""

    written: list[WrittenPart]
    aside: list[WrittenPart]
    known: int
    found: int
    new: KnownOffsets


@dataclass(slots=True)
class _LandTask:
    landing: Landing
    items: PartWriter
    quarantine: PartWriter
    aside: PartWriter
    known: KnownOffsets
    skipped: int = 0
    found: int = 0
    new: list[KnownOffsets] = field(default_factory=list)

    def add(self, batch: pa.RecordBatch) -> None:
        for kind, rows in _by_kind(light(batch)):
            self.items.add(rows, self.landing.part, f"{kind}-")
        if self.landing.buckets:
            self._set_aside(batch)

    def _set_aside(self, batch: pa.RecordBatch) -> None:
        found = entries(batch)
        is_known = self.known.has(found)
        self.skipped += pc.sum(found["count"].filter(is_known)).as_py() or 0
        found = found.filter(pc.invert(is_known))
        self.found += pc.sum(found["count"]).as_py() or 0
        self.new.append(KnownOffsets.of_entries(found))
        is_here = found["data"].is_valid()
        self.aside.add(found.filter(is_here), ENTRIES)
        for kind, rows in ((PLACES, found.filter(pc.invert(is_here))), (PIECES, payloads(batch))):
            for bucket, part in in_buckets(rows, self.landing.buckets):
                self.aside.add(part, f"{kind}{bucket}")


def landed(landing: Landing, files: Sequence[DataFile]) -> Landed:
    task = _LandTask(
        landing,
        PartWriter(landing.root, ITEMS),
        PartWriter(landing.root, QUARANTINE),
        PartWriter(landing.root / SCRATCH, landing.run, is_named=False),
        known_in(landing.known),
    )
    for file in files:
        reader = FileReader(file, landing.is_incremental)
        for batch in reader:
            task.add(batch)
        rows = [{"file": file.name, **trouble._asdict()} for trouble in reader.troubles]
        task.quarantine.add(pa.RecordBatch.from_pylist(rows, schema=_QUARANTINE), landing.part)
    written = [*task.items.close(), *task.quarantine.close()]
    return Landed(written, task.aside.close(), task.skipped, task.found, KnownOffsets().with_(task.new))


def known_in(files: Sequence[Place]) -> KnownOffsets:
    return KnownOffsets.of(pa.Table.from_batches(read_rows(files), SCHEMA)) if files else KnownOffsets()


def _by_kind(batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
    """The rows of each kind, with the columns that they have."""
    kinds = pc.unique(batch["kind"]).to_pylist()
    for kind in kinds:
        rows = batch if len(kinds) == 1 else batch.filter(pc.equal(batch["kind"], kind))
        yield kind, rows.select([*_HEAD, *([kind] if item_schemas.KINDS[kind] else [])])
