"""A data file of an export as record batches: its items, and its unreadable lines."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_schema

from spark import item_schemas
from spark.reading.items.attributes import Malformed
from spark.reading.items.columns import KINDS, Columns, Unsuited, columns_of
from spark.reading.items.keys import PREFIXES
from spark.reading.items.rows import row_of
from spark.reading.lines import RAW_BYTES_MAX, REASON_CHARS_MAX, BadLine, Line, LineReader
from spark.reading.manifest import DataFile

SCHEMA = to_arrow_schema(item_schemas.ITEMS)

_KEY = b'"pk":{"S":"'
"""The key as exports spell it. Quotes inside a text are escaped, so it occurs nowhere else."""
_BULK_KINDS = {prefix.encode(): kind for prefix, kind in PREFIXES.items() if kind in KINDS}
_PREFIX_BYTES_MAX = max(map(len, _BULK_KINDS)) + len("#")

TROUBLES_MAX = 10_000
"""Unreadable lines of a file that go into the quarantine: some MB. A file with more is not from an export, and a small
one may unpack to millions of lines."""


class FileReader:
    """Iterate once, over `item_schemas.ITEMS`. `troubles` has the unreadable lines so far."""

    def __init__(self, file: DataFile, is_incremental: bool) -> None:
        self._file, self._is_incremental = file, is_incremental
        self._lines = LineReader(file)
        self.troubles: list[BadLine] = self._lines.troubles
        self._has_enough = False

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for lines in self._lines:
            groups: dict[str | None, list[Line]] = {}
            for line in lines:
                groups.setdefault(self._bulk_kind(line[1]), []).append(line)
            for kind, alike in groups.items():
                yield from self._bulk(kind, alike) if kind else self._single(alike)
            if self._has_enough:
                reason = f"more than {TROUBLES_MAX} of its lines cannot be read: it is not read further"
                self.troubles.append(BadLine(0, reason))
                return

    def _bulk_kind(self, line: bytes) -> str | None:
        """The kind of an item that is read in bulk. None: its line is read alone, for example because its key has an
        unusual spelling."""
        at = line.find(_KEY)
        if at < 0 or (self._is_incremental and b'"NewImage":' not in line):
            return None
        at += len(_KEY)
        prefix, end, _ = line[at : at + _PREFIX_BYTES_MAX].partition(b"#")
        return _BULK_KINDS.get(prefix) if end else None

    def _bulk(self, kind: str, numbered: list[Line]) -> Iterator[pa.RecordBatch]:
        numbers, lines = zip(*numbered, strict=True)
        try:
            columns = columns_of(kind, lines, self._is_incremental, SCHEMA.field(kind).type)
        except Unsuited:
            yield from self._single(numbered)
        else:
            yield self._batch(kind, columns, pa.array(numbers, pa.int64()))

    def _batch(self, kind: str, columns: Columns, numbers: pa.Array) -> pa.RecordBatch:
        count = len(numbers)
        given = {
            **columns._asdict(),
            "kind": _repeated(kind, count),
            "is_deleted": _repeated(False, count),
            "file": _repeated(self._file.name, count),
            "line": numbers,
            kind: columns.struct,
        }
        arrays = [given[field.name] if field.name in given else pa.nulls(count, field.type) for field in SCHEMA]
        return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)

    def _single(self, numbered: list[Line]) -> Iterator[pa.RecordBatch]:
        rows = [row for line in numbered if (row := self._row(*line))]
        if rows:
            yield from self._fitting(rows, dict(numbered))

    def _fitting(self, rows: list[dict[str, Any]], lines: dict[int, bytes]) -> Iterator[pa.RecordBatch]:
        """Retries row by row if a batch fails: a number may be too large for its column."""
        try:
            batch = pa.RecordBatch.from_pylist(rows, schema=SCHEMA)
        except (pa.ArrowException, OverflowError) as error:
            if len(rows) == 1:
                number = rows[0]["line"]
                self._note(number, lines[number], str(error))
                return
            for row in rows:
                yield from self._fitting([row], lines)
        else:
            yield batch

    def _row(self, number: int, line: bytes) -> dict[str, Any] | None:
        try:
            return {**row_of(line, self._is_incremental), "file": self._file.name, "line": number}
        except (Malformed, RecursionError) as reason:
            self._note(number, line, str(reason))
            return None

    def _note(self, number: int, line: bytes, reason: str) -> None:
        if len(self.troubles) >= TROUBLES_MAX:
            self._has_enough = True
            return
        raw = line[:RAW_BYTES_MAX].decode(errors="replace")
        self.troubles.append(BadLine(number, reason[:REASON_CHARS_MAX], raw))


def light(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Items without the messages in them: the `data` of entries are empty where they were not null, those of payloads
    null."""
    arrays = [column if column.null_count == len(column) else _lightened(column) for column in batch.columns]
    return pa.RecordBatch.from_arrays(arrays, schema=batch.schema)


def _lightened(column: pa.Array) -> pa.Array:
    kind = column.type
    if pa.types.is_list(kind) and pa.types.is_struct(kind.value_type):
        ends = np.cumsum(pc.fill_null(pc.list_value_length(column), 0).to_numpy(), dtype=np.int32)
        starts = pa.array(np.concatenate([[0], ends]), pa.int32())
        return pa.ListArray.from_arrays(starts, _lightened(column.flatten()), type=kind, mask=column.is_null())
    if not pa.types.is_struct(kind):
        return column
    parts = [_lightened(column.field(at)) for at in range(kind.num_fields)]
    if (at := kind.get_field_index("data")) >= 0:
        nothing = pa.nulls(len(column), pa.binary())
        is_entry = kind.get_field_index("pieces") >= 0
        parts[at] = pc.if_else(parts[at].is_valid(), b"", nothing) if is_entry else nothing
    return pa.StructArray.from_arrays(parts, fields=list(kind), mask=column.is_null())


def _repeated(value: str | bool, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(value), count)
