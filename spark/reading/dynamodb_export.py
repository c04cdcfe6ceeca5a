"""The Python Data Source `dynamodb_export`: the items of an export as rows, one partition for each data file.

    spark.read.format("dynamodb_export").load("exports/AWSDynamoDB/01700000000000-abcdef12")

Rows are `schemas.ITEMS`. With `.option("kinds", "segment,topic")` lines of other kinds are passed over without being
parsed. With `.option("rows", "quarantine")` they are `schemas.QUARANTINE`: what of it cannot be read; with `inline`
`unpacking.COLUMNS`: messages that lie in their segments, unpacked where they are read; with `elsewhere`
`schemas.PACKED`: packed messages that do not, and the entries that they belong to.

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

from spark import schemas
from spark.errors import BadInput
from spark.reading import packed_entries
from spark.reading.data_file import FileReader, quarantined
from spark.reading.manifest import DataFile, read_export
from spark.unpacking.unpack import COLUMNS, unpack

_ITEMS, _INLINE, _ELSEWHERE, _QUARANTINE = "items", "inline", "elsewhere", "quarantine"
_SCHEMAS: dict[str, StructType | str] = {
    _ITEMS: schemas.ITEMS,
    _INLINE: COLUMNS,
    _ELSEWHERE: schemas.PACKED,
    _QUARANTINE: schemas.QUARANTINE,
}


def items(spark: SparkSession, path: str, *kinds: str) -> DataFrame:
    """The items of these kinds, or of all, of the export in this folder: `schemas.ITEMS`."""
    return _load(spark, path, _ITEMS, kinds)


def inline(spark: SparkSession, path: str) -> DataFrame:
    """The messages of a full export that lie in their segments: `unpacking.COLUMNS`."""
    return _load(spark, path, _INLINE)


def elsewhere(spark: SparkSession, path: str) -> DataFrame:
    """The packed messages of a full export that do not, and the entries that they belong to: `schemas.PACKED`."""
    return _load(spark, path, _ELSEWHERE)


def quarantine(spark: SparkSession, path: str) -> DataFrame:
    """What of this export cannot be read: `schemas.QUARANTINE`."""
    return _load(spark, path, _QUARANTINE)


def _load(spark: SparkSession, path: str, rows: str, kinds: Sequence[str] = ()) -> DataFrame:
    spark.dataSource.register(DynamoDbExport)
    reader = spark.read.format(DynamoDbExport.name()).option("rows", rows)
    return (reader.option("kinds", ",".join(kinds)) if kinds else reader).load(path)


class DynamoDbExport(DataSource):
    """Options: `path`, the folder of one export; `rows`, see above (default: `items`); `kinds` of items, with commas
    (default: all)."""

    @classmethod
    def name(cls) -> str:
        return "dynamodb_export"

    def schema(self) -> StructType | str:
        return _SCHEMAS[self._rows]

    def reader(self, schema: StructType) -> ExportReader:  # noqa: ARG002  it is PySpark's, and always the one above
        return ExportReader(self.options["path"], self._rows, self._kinds)

    @property
    def _kinds(self) -> frozenset[str] | None:
        if not (given := self.options.get("kinds")):
            return None
        if self._rows != _ITEMS:
            raise BadInput(f"option kinds is for rows {_ITEMS!r}, not {self._rows!r}")
        kinds = frozenset(given.split(","))
        if unknown := kinds - schemas.KINDS.keys():
            raise BadInput(f"option kinds names {min(unknown)!r}, which is no kind of item")
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
    def __init__(self, path: str, rows: str, kinds: frozenset[str] | None) -> None:
        self._path, self._rows, self._kinds = path, rows, kinds

    def partitions(self) -> list[InputPartition]:
        """Large files first: they end together."""
        export = read_export(self._path)
        if self._rows in (_INLINE, _ELSEWHERE) and export.is_incremental:
            raise BadInput(f"option rows is {self._rows!r}, which is for full exports")
        files = sorted(export.files, key=lambda file: -file.items)
        return [FilePartition(file, export.is_incremental) for file in files]

    def read(self, partition: FilePartition) -> Iterator[pa.RecordBatch]:  # type: ignore[override]
        file, is_incremental = partition.file, partition.is_incremental
        if self._rows == _QUARANTINE:
            return quarantined(file, is_incremental)
        if self._rows == _INLINE:
            return chain.from_iterable(map(unpack, packed_entries.inline(file)))
        if self._rows == _ELSEWHERE:
            return packed_entries.elsewhere(file)
        return iter(FileReader(file, is_incremental, self._kinds))
