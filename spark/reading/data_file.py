"""A data file of an export as record batches: its items, or what of it cannot be read."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema

from spark import schemas
from spark.reading import items
from spark.reading.attributes import Malformed
from spark.reading.columns import KINDS, Columns, Unsuited, columns_of
from spark.reading.lines import RAW_BYTES_MAX, Block, LineReader, Trouble
from spark.reading.manifest import DataFile
from spark.reading.rows import row_of

SCHEMA = to_arrow_schema(schemas.ITEMS)
QUARANTINE = to_arrow_schema(schemas.QUARANTINE)

_KEY = b'"pk":{"S":"'
"""As exports spell it. Within a text the quotes would be escaped, so it stands nowhere else."""
_PREFIXES = re.compile(rb'"pk"(?::\{"S":"([^"#]*))?')
"""How each partition key begins, up to `#`; empty: it is not spelled as usual."""
_SEGMENT = items.PREFIXES_OF["segment"].encode()
_KINDS_BY_PREFIX = {items.PREFIXES_OF[kind].encode(): kind for kind in KINDS}

_Line = tuple[int, bytes]
"""Its number in the file, from 1, and what it says."""


class FileReader:
    """Iterate once. `troubles` has what has been found so far, and is emptied by who reads it."""

    def __init__(
        self, file: DataFile, is_incremental: bool, kinds: frozenset[str] | None = None, of_segments: bytes = b""
    ) -> None:
        """`kinds`: None, all. Segments whose lines are without `of_segments` are passed over."""
        self._file, self._is_incremental, self._kinds = file, is_incremental, kinds
        self._lines = LineReader(file)
        self.troubles: list[Trouble] = self._lines.troubles
        self._wanted, self._of_segments = _prefixes(kinds), of_segments

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for block in self._lines:
            if self._may_have_wanted(block.text):
                yield from self._batches(block)

    def _may_have_wanted(self, text: bytes) -> bool:
        """A glance at all lines at once: most blocks have nothing of a rare kind."""
        if self._wanted is None or (_SEGMENT in self._wanted and self._of_segments in text) or b"\\" in text:
            return True
        found = {*_PREFIXES.findall(text)}
        return b"" in found or not found.isdisjoint(self._wanted - {_SEGMENT})

    def _batches(self, block: Block) -> Iterator[pa.RecordBatch]:
        bulk: dict[str, list[_Line]] = {kind: [] for kind in KINDS}
        single: list[_Line] = []
        for number, line in enumerate(block.text.split(b"\n"), block.first):
            prefix = _prefix(line)
            if prefix and self._wanted is not None and prefix not in self._wanted:
                continue
            if prefix == _SEGMENT and self._of_segments not in line:
                continue
            kind = _KINDS_BY_PREFIX.get(prefix)
            is_bulk = kind is not None and (not self._is_incremental or b'"NewImage":' in line)
            (bulk[kind] if kind and is_bulk else single).append((number, line))
        for kind, found in bulk.items():
            if found:
                yield from self._bulk(kind, found)
        yield from self._single(single)

    def _bulk(self, kind: str, found: list[_Line]) -> Iterator[pa.RecordBatch]:
        numbers, lines = zip(*found, strict=True)
        try:
            columns = columns_of(kind, lines, self._is_incremental, SCHEMA.field(kind).type)
        except Unsuited:
            yield from self._single(found)
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

    def _single(self, found: list[_Line]) -> Iterator[pa.RecordBatch]:
        rows = [row for line in found if (row := self._row(*line))]
        if rows:
            yield from self._fitting(rows, dict(found))

    def _fitting(self, rows: list[dict[str, Any]], lines: dict[int, bytes]) -> Iterator[pa.RecordBatch]:
        """A number may be too large for its column: then each row is tried alone."""
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
            row = row_of(line, self._is_incremental)
        except (Malformed, RecursionError) as reason:
            self._note(number, line, str(reason))
            return None
        if self._kinds is not None and row["kind"] not in self._kinds:
            return None
        return {**row, "file": self._file.name, "line": number}

    def _note(self, number: int, line: bytes, reason: str) -> None:
        self.troubles.append(Trouble(number, reason, line[:RAW_BYTES_MAX].decode(errors="replace")))


def quarantined(file: DataFile, is_incremental: bool) -> Iterator[pa.RecordBatch]:
    """Reads all of the file, and gives what of it cannot be read."""
    reader = FileReader(file, is_incremental)
    for _ in reader:
        yield from _troubles(file, reader.troubles)
    yield from _troubles(file, reader.troubles)


def _troubles(file: DataFile, troubles: list[Trouble]) -> Iterator[pa.RecordBatch]:
    if troubles:
        yield pa.RecordBatch.from_pylist(
            [{"file": file.name, **each._asdict()} for each in troubles], schema=QUARANTINE
        )
        troubles.clear()


def _prefixes(kinds: frozenset[str] | None) -> frozenset[bytes] | None:
    """How the partition keys of these kinds begin, and of those that share a partition with them; null: any way."""
    return None if kinds is None else frozenset(items.PREFIXES_OF[kind].encode() for kind in kinds)


def _prefix(line: bytes) -> bytes:
    """How the partition key begins, up to `#`; empty: it is not spelled as usual, or has escapes in it."""
    at = line.find(_KEY)
    if at < 0:
        return b""
    at += len(_KEY)
    end = line.find(b'"', at, at + 200)
    prefix = line[at:end].partition(b"#")[0]
    return b"" if b"\\" in prefix else prefix


def _repeated(value: str | bool, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(value), count)
