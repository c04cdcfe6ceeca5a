"""The Python Data Source `dynamodb_export`: the items of an export as rows, one partition for each data file.

    spark.read.format("dynamodb_export").load("exports/AWSDynamoDB/01700000000000-abcdef12")

`.option("rows", ...)` says what the rows are; each of them takes one pass over the files:

    items       `item_schemas.ITEMS`, with all that is in them (the default)
    landed      `item_schemas.LANDED`: what jobs read of an export; what cannot be read is among its rows
    messages    `unpack.COLUMNS` of a full export: messages that lie in their segments, unpacked where they are read
    failures    of those, only the entries that cannot be unpacked

With `.option("kinds", "segment,topic")` there are no items of other kinds, and in `items` their lines are not parsed.
With `.option("segments", "elsewhere")` there are of segments only those with an entry whose messages lie in payloads.

The kinds are an option, and no filter that Spark pushes down: Spark 4.3 keeps one reader for all scans of a DataFrame.
In a plan that reads it twice, with a filter one kind here and another there, both scans would get the last filter,
and rows would be missing without a word.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from spark import item_schemas
from spark.errors import BadInput
from spark.reading.data_file import FileReader, inline_entries, landed_rows
from spark.reading.manifest import DataFile, read_export
from spark.unpacking.unpack import COLUMNS, unpack

_ITEMS, _LANDED, _MESSAGES, _FAILURES = "items", "landed", "messages", "failures"
_SCHEMAS: dict[str, StructType] = {
    _ITEMS: item_schemas.ITEMS,
    _LANDED: item_schemas.LANDED,
    _MESSAGES: COLUMNS,
    _FAILURES: COLUMNS,
}
_ELSEWHERE = "elsewhere"
_PIECES = b'"p"'
"""The attribute of an entry that counts the payload items with its messages."""


def items(spark: SparkSession, path: str, *kinds: str) -> DataFrame:
    """The items of these kinds, or of all, of the export in this folder: `item_schemas.ITEMS`."""
    return _load(spark, path, _ITEMS, kinds)


def landed(spark: SparkSession, path: str, *kinds: str, only_elsewhere: bool = False) -> DataFrame:
    """`item_schemas.LANDED`, with items of these kinds, or of all. `only_elsewhere`: without segments whose entries all
    hold their messages."""
    return _load(spark, path, _LANDED, kinds, segments=_ELSEWHERE if only_elsewhere else "")


def messages(spark: SparkSession, path: str) -> DataFrame:
    """The messages of a full export that lie in their segments: `unpack.COLUMNS`."""
    return _load(spark, path, _MESSAGES)


def failures(spark: SparkSession, path: str) -> DataFrame:
    """The entries of a full export's segments that cannot be unpacked."""
    return _load(spark, path, _FAILURES)


def _load(spark: SparkSession, path: str, rows: str, kinds: Sequence[str] = (), segments: str = "") -> DataFrame:
    spark.dataSource.register(DynamoDbExport)
    given = {"rows": rows, "kinds": ",".join(kinds), "segments": segments}
    return spark.read.format(DynamoDbExport.name()).options(**given).load(path)


class DynamoDbExport(DataSource):
    """Options: `path`, the folder of one export; `rows`, `kinds` and `segments`, see above."""

    @classmethod
    def name(cls) -> str:
        return "dynamodb_export"

    def schema(self) -> StructType:
        return _SCHEMAS[self._rows]

    def reader(self, schema: StructType) -> ExportReader:  # noqa: ARG002  it is PySpark's, and always the one above
        of_segments = _PIECES if self.options.get("segments") == _ELSEWHERE else b""
        return ExportReader(self.options["path"], self._rows, self._kinds, of_segments)

    @property
    def _kinds(self) -> frozenset[str]:
        given = self.options.get("kinds")
        kinds = frozenset(given.split(",")) if given else frozenset(item_schemas.KINDS)
        if unknown := kinds - item_schemas.KINDS.keys():
            raise BadInput(f"option kinds names {min(unknown)!r}, which is not a kind of item")
        return kinds

    @property
    def _rows(self) -> str:
        rows: str = self.options.get("rows", _ITEMS)
        if rows not in _SCHEMAS:
            raise BadInput(f"option rows is {rows!r}, not one of {', '.join(_SCHEMAS)}")
        return rows


@dataclass
class FilePartition(InputPartition):
    file: DataFile
    is_incremental: bool


class ExportReader(DataSourceReader):
    def __init__(self, path: str, rows: str, kinds: frozenset[str], of_segments: bytes) -> None:
        self._path, self._rows, self._kinds, self._of_segments = path, rows, kinds, of_segments

    def partitions(self) -> list[InputPartition]:
        """Large files first: they end together."""
        export = read_export(self._path)
        if self._rows in (_MESSAGES, _FAILURES) and export.is_incremental:
            raise BadInput(f"option rows is {self._rows!r}, which is for full exports")
        files = sorted(export.files, key=lambda file: -file.items)
        return [FilePartition(file, export.is_incremental) for file in files]

    def read(self, partition: FilePartition) -> Iterator[pa.RecordBatch]:  # type: ignore[override]
        file, is_incremental = partition.file, partition.is_incremental
        if self._rows == _LANDED:
            return landed_rows(file, is_incremental, self._kinds, self._of_segments)
        if self._rows == _ITEMS:
            return iter(FileReader(file, is_incremental, self._kinds, self._of_segments))
        unpacked = chain.from_iterable(map(unpack, inline_entries(file)))
        return unpacked if self._rows == _MESSAGES else map(_failed, unpacked)


def _failed(unpacked: pa.RecordBatch) -> pa.RecordBatch:
    return unpacked.filter(unpacked["failure"].is_valid())
