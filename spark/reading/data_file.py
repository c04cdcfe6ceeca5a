"""A data file of an export as record batches: its items, and its unreadable lines."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import date, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_schema

from spark import item_schemas
from spark.reading.items.attributes import Malformed
from spark.reading.items.columns import KINDS, Columns, Unsuited, columns_of
from spark.reading.items.keys import PREFIXES_OF
from spark.reading.items.rows import row_of
from spark.reading.lines import RAW_BYTES_MAX, Block, LineReader, Trouble
from spark.reading.manifest import DataFile
from spark.unpacking.entries import entries
from spark.unpacking.unpack import DAY_MS, LAST_DAY

SCHEMA = to_arrow_schema(item_schemas.ITEMS)
LANDED = to_arrow_schema(item_schemas.LANDED)

_KEY = b'"pk":{"S":"'
"""As exports spell it. Within a text the quotes would be escaped, so it stands nowhere else."""
_PREFIXES = re.compile(rb'"pk"(?::\{"S":"([^"#]*))?')
"""How each partition key begins, up to `#`; empty: it is not spelled as usual."""
_DATA = b'"d"'
"""The attribute of an entry that holds its messages."""
_SEGMENT = PREFIXES_OF["segment"].encode()
_KINDS_BY_PREFIX = {PREFIXES_OF[kind].encode(): kind for kind in KINDS}

_Line = tuple[int, bytes]
"""The line's number in the file, from 1, and its text."""


class FileReader:
    """Iterate once. `troubles` has what cannot be read so far. `days`: the first and the last day since the epoch on
    which entries were stored, if it `checks`."""

    def __init__(
        self,
        file: DataFile,
        is_incremental: bool,
        kinds: frozenset[str] | None = None,
        of_segments: bytes = b"",
        is_light: bool = False,
        checks: bool = False,
    ) -> None:
        """`kinds`: the kinds to return; None: all. Segments whose lines are without `of_segments` are left out.
        `is_light`: without the `data` of entries. `checks`: lines that are left out are parsed, too, to find unreadable
        ones."""
        self._file, self._is_incremental, self._kinds = file, is_incremental, kinds
        self._is_light, self._checks = is_light, checks
        self._lines = LineReader(file)
        self.troubles: list[Trouble] = self._lines.troubles
        self.days: tuple[int, int] | None = None
        self._wanted, self._names, self._of_segments = (
            _prefixes(kinds),
            pa.array(sorted(kinds or ()), pa.string()),
            of_segments,
        )

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for block in self._lines:
            if self._checks or self._may_have_wanted(block.text):
                yield from self._batches(block)

    def _may_have_wanted(self, text: bytes) -> bool:
        """Checks all lines of a block at once: most blocks hold no item of a rare kind."""
        if self._wanted is None or (_SEGMENT in self._wanted and self._of_segments in text) or b"\\" in text:
            return True
        prefixes = {*_PREFIXES.findall(text)}
        return b"" in prefixes or not prefixes.isdisjoint(self._wanted - {_SEGMENT})

    def _batches(self, block: Block) -> Iterator[pa.RecordBatch]:
        groups: dict[tuple[str | None, bool], list[_Line]] = {}
        for number, line in enumerate(block.text.split(b"\n"), block.first):
            prefix = _prefix(line)
            is_wanted = self._wants(prefix, line)
            if is_wanted or self._checks:
                groups.setdefault((self._bulk_kind(prefix, line), is_wanted), []).append((number, line))
        for (kind, is_wanted), lines in groups.items():
            for batch in self._bulk(kind, lines) if kind else self._single(lines):
                self._note_days(batch)
                if is_wanted:
                    yield batch if kind or self._kinds is None else batch.filter(pc.is_in(batch["kind"], self._names))

    def _wants(self, prefix: bytes, line: bytes) -> bool:
        """Whether the line is wanted, or must be checked for its kind because its key is not spelled as usual."""
        if prefix == _SEGMENT and self._of_segments not in line:
            return False
        return not prefix or self._wanted is None or prefix in self._wanted

    def _bulk_kind(self, prefix: bytes, line: bytes) -> str | None:
        is_bulk = not self._is_incremental or b'"NewImage":' in line
        return _KINDS_BY_PREFIX.get(prefix) if is_bulk else None

    def _note_days(self, batch: pa.RecordBatch) -> None:
        if self._checks and batch["segment"].null_count < len(batch):
            listed = pc.struct_field(batch["segment"], "entries").flatten()
            if len(listed):
                bounds = pc.min_max(pc.struct_field(listed, "stored_at_ms")).as_py()
                first, last = (min(max(bounds[name] // DAY_MS, 0), LAST_DAY) for name in ("min", "max"))
                self.days = (min(first, self.days[0]), max(last, self.days[1])) if self.days else (first, last)

    def _bulk(self, kind: str, numbered: list[_Line]) -> Iterator[pa.RecordBatch]:
        numbers, lines = zip(*numbered, strict=True)
        try:
            columns = columns_of(kind, lines, self._is_incremental, SCHEMA.field(kind).type, self._is_light)
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

    def _single(self, numbered: list[_Line]) -> Iterator[pa.RecordBatch]:
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
            row = row_of(line, self._is_incremental)
        except (Malformed, RecursionError) as reason:
            self._note(number, line, str(reason))
            return None
        if self._is_light:
            _lighten(row)
        return {**row, "file": self._file.name, "line": number}

    def _note(self, number: int, line: bytes, reason: str) -> None:
        self.troubles.append(Trouble(number, reason, line[:RAW_BYTES_MAX].decode(errors="replace")))


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


def inline_entries(file: DataFile) -> Iterator[pa.RecordBatch]:
    """The entries of a file of a full export that hold their messages: `item_schemas.PACKED`."""
    for batch in FileReader(file, False, frozenset({"segment"}), _DATA):
        packed = entries(batch)
        yield packed.filter(packed["data"].is_valid())


def landed_rows(
    file: DataFile, is_incremental: bool, kinds: frozenset[str], of_segments: bytes
) -> Iterator[pa.RecordBatch]:
    """`item_schemas.LANDED` of all of the file, items of these kinds alone."""
    reader = FileReader(file, is_incremental, kinds, of_segments, is_light=True, checks=True)
    for batch in reader:
        rest = [pa.nulls(len(batch), field.type) for field in list(LANDED)[len(SCHEMA) :]]
        yield pa.RecordBatch.from_arrays([*batch.columns, *rest], schema=LANDED)
        yield from _unreadable(file, reader.troubles)
    yield from _unreadable(file, reader.troubles)
    days = reader.days and dict(zip(("first", "last"), map(_date, reader.days), strict=True))
    yield _rows(file, [{"kind": item_schemas.SPAN, "line": 0, "days": days}])


def _unreadable(file: DataFile, troubles: list[Trouble]) -> Iterator[pa.RecordBatch]:
    if troubles:
        yield _rows(
            file, [{"kind": item_schemas.UNREADABLE, "line": at.line, "trouble": at._asdict()} for at in troubles]
        )
        troubles.clear()


def _rows(file: DataFile, rows: list[dict[str, Any]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{"pk": "", "sk": "", "file": file.name, **row} for row in rows], schema=LANDED)


def _date(day: int) -> date:
    return date(1970, 1, 1) + timedelta(days=day)


def _lighten(row: dict[str, Any]) -> None:
    struct = row.get(row["kind"]) or {}
    for entry in (*struct.get("entries", ()), struct.get("entry")):
        if entry and entry["data"] is not None:
            entry["data"] = b""


def _prefixes(kinds: frozenset[str] | None) -> frozenset[bytes] | None:
    """How the partition keys of these kinds begin, and of those that share a partition with them; null: any way."""
    return None if kinds is None else frozenset(PREFIXES_OF[kind].encode() for kind in kinds)


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
