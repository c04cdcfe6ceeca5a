"""Writes Parquet files of tables, in the task that has the rows. A file counts only once a version names it, so the
files of failed or superseded attempts are never seen."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from spark.files import Place
from spark.tables.versions import File, Part

_GROUP_BYTES = 32 << 20
"""The approximate size of a row group before compression."""
_HELD_BYTES_MAX = 64 << 20
"""The bytes of rows that wait until their row group is full, over all partitions."""
_COMPRESSION = {"compression": "zstd", "compression_level": 1}


class WrittenPart(NamedTuple):
    table: str
    part: str
    file: File


class _ParquetWriter(pq.ParquetWriter):  # type: ignore[misc]  # PyArrow has no types
    def __del__(self) -> None:
        """Does not finish the file: a writer that has not closed it has failed, and no version will name it."""


class PartWriter:
    """Writes rows into files of a table at `root`, one for each partition and `prefix` of its name. `order`: columns by
    which the rows of a row group are sorted."""

    def __init__(
        self,
        root: Place,
        table: str,
        order: tuple[str, ...] = (),
        repeated: tuple[str, ...] = (),
        *,
        is_named: bool = True,
    ) -> None:
        """`repeated`: columns with few different values, which get a dictionary. Empty: all columns may. `is_named`:
        whether a version may name the files; others need not survive a power failure."""
        self._root, self._table, self._order, self._is_named = root, table, order, is_named
        self._options = {**_COMPRESSION, "use_dictionary": list(repeated) or True}
        self._held: dict[tuple[str, str], list[pa.RecordBatch]] = {}
        self._bytes: dict[tuple[str, str], int] = {}
        self._open: dict[tuple[str, str], tuple[str, _ParquetWriter]] = {}
        self._rows: dict[tuple[str, str], int] = {}

    def add(self, rows: pa.RecordBatch, part: str, prefix: str = "") -> None:
        if not len(rows):
            return
        to = (part, prefix)
        self._held.setdefault(to, []).append(rows)
        self._bytes[to] = self._bytes.get(to, 0) + rows.nbytes
        if self._bytes[to] > _GROUP_BYTES:
            self._flush(to)
        elif sum(self._bytes.values()) > _HELD_BYTES_MAX:
            self._flush(max(self._bytes, key=lambda held: self._bytes[held]))

    def add_days(self, rows: pa.RecordBatch) -> None:
        """Adds rows to the partitions of their `date`."""
        days, rest = rows["date"], rows.drop_columns(["date"])
        for day in pc.unique(days).to_pylist():
            self.add(rest.filter(pc.equal(days, pa.scalar(day, pa.date32()))), f"date={day}")

    def add_none(self, part: str, schema: pa.Schema) -> None:
        """Makes a file without rows, for readers of the folder of an empty partition."""
        self._rows[part, ""] = 0
        self._open[part, ""] = self._opened(part, "", schema)

    def close(self) -> list[WrittenPart]:
        for to in list(self._held):
            self._flush(to)
        written = []
        for (part, prefix), (name, file) in self._open.items():
            file.close()
            place = self._root / self._table / part / name
            if self._is_named:
                place.sync()  # before a version names it
            written.append(WrittenPart(self._table, part, File(name, self._rows[part, prefix], place.size() or 0)))
        return written

    def _flush(self, to: tuple[str, str]) -> None:
        rows = pa.Table.from_batches(self._held.pop(to))
        del self._bytes[to]
        self._rows[to] = self._rows.get(to, 0) + len(rows)
        if to not in self._open:
            self._open[to] = self._opened(*to, rows.schema)
        self._open[to][1].write_table(self._sorted(rows))

    def _sorted(self, rows: pa.Table) -> pa.Table:
        if not self._order:
            return rows
        keys = [(name, "ascending") for name in self._order]
        return rows.take(pc.sort_indices(rows.select(list(self._order)), sort_keys=keys))

    def _opened(self, part: str, prefix: str, schema: pa.Schema) -> tuple[str, _ParquetWriter]:
        name = f"{prefix}{uuid4().hex}.parquet"
        folder = self._root / self._table / part
        folder.make_folder()
        files, path = (folder / name).located()
        return name, _ParquetWriter(path, schema, filesystem=files, **self._options)


def write_part(root: Place, table: str, part: str, rows: pa.Table) -> Part:
    """Writes rows that fit into memory, or a file without rows."""
    writer = PartWriter(root, table)
    if not len(rows):
        writer.add_none(part, rows.schema)
    for batch in rows.to_batches():
        writer.add(batch, part)
    return Part(tuple(written.file for written in writer.close()))


def read_rows(paths: Iterable[Place], columns: list[str] | None = None) -> Iterator[pa.RecordBatch]:
    """The rows of these files, a batch at a time. A batch never spans two row groups, which may be large."""
    for place in paths:
        files, path = place.located()
        with pq.ParquetFile(files.open_input_file(path)) as file:
            for group in range(file.num_row_groups):
                yield from file.iter_batches(row_groups=[group], columns=columns)


def as_parts(written: Iterable[WrittenPart]) -> Mapping[tuple[str, str], tuple[File, ...]]:
    """The files that tasks have written, by table and partition."""
    grouped: dict[tuple[str, str], list[File]] = {}
    for table, part, file in written:
        grouped.setdefault((table, part), []).append(file)
    return {place: tuple(files) for place, files in grouped.items()}
