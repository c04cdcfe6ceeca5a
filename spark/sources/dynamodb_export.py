"""The Python Data Source `dynamodb_export`: the items of an export as rows, one partition for each data file.

    spark.read.format("dynamodb_export").load("exports/AWSDynamoDB/01700000000000-abcdef12")

Rows are `schemas.ITEMS`; with `.option("rows", "quarantine")` they are `schemas.QUARANTINE`: what of it cannot be read.
With `.option("kinds", "segment,topic")` lines of other kinds are passed over without being parsed.

The kinds are an option, and no filter that Spark pushes down: Spark 4.3 keeps one reader for all scans of a DataFrame.
In a plan that reads it twice, with a filter one kind here and another there, both scans would get the last filter,
and rows would be missing without a word.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from spark import schemas
from spark.errors import BadInput
from spark.sources.data_file import FileReader, quarantined
from spark.sources.manifest import DataFile, read_export

_ITEMS, _POINTING, _QUARANTINE = "items", "pointing", "quarantine"


def items(spark: SparkSession, path: str, *kinds: str) -> DataFrame:
    """The items of these kinds, or of all, of the export in this folder: `schemas.ITEMS`."""
    return _load(spark, path, _ITEMS, kinds)


def pointing_items(spark: SparkSession, path: str) -> DataFrame:
    """Payloads, and the segments with an entry that points to one: `schemas.ITEMS`."""
    return _load(spark, path, _POINTING, ("segment", "payload"))


def quarantine(spark: SparkSession, path: str) -> DataFrame:
    """What of this export cannot be read: `schemas.QUARANTINE`."""
    return _load(spark, path, _QUARANTINE)


def _load(spark: SparkSession, path: str, rows: str, kinds: Sequence[str] = ()) -> DataFrame:
    spark.dataSource.register(DynamoDbExport)
    reader = spark.read.format(DynamoDbExport.name()).option("rows", rows)
    return (reader.option("kinds", ",".join(kinds)) if kinds else reader).load(path)


class DynamoDbExport(DataSource):
    """Options: `path`, the folder of one export; `kinds`, with commas (default: all); `rows`, `items` (the default),
    `pointing` (payloads and what points to them; other segments may be left out) or `quarantine`."""

    @classmethod
    def name(cls) -> str:
        return "dynamodb_export"

    def schema(self) -> StructType:
        return schemas.QUARANTINE if self._rows == _QUARANTINE else schemas.ITEMS

    def reader(self, schema: StructType) -> ExportReader:  # noqa: ARG002  it is PySpark's, and always the one above
        return ExportReader(self.options["path"], self._rows, self._kinds)

    @property
    def _kinds(self) -> frozenset[str] | None:
        if not (given := self.options.get("kinds")):
            return None
        kinds = frozenset(given.split(","))
        if unknown := kinds - schemas.KINDS.keys():
            raise BadInput(f"option kinds names {min(unknown)!r}, which is no kind of item")
        return kinds

    @property
    def _rows(self) -> str:
        rows: str = self.options.get("rows", _ITEMS)
        if rows not in (_ITEMS, _POINTING, _QUARANTINE):
            raise BadInput(f"option rows is {rows!r}, not {_ITEMS}, {_POINTING} or {_QUARANTINE}")
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
        files = sorted(export.files, key=lambda file: -file.items)
        return [FilePartition(file, export.is_incremental) for file in files]

    def read(self, partition: FilePartition) -> Iterator[pa.RecordBatch]:  # type: ignore[override]
        if self._rows == _QUARANTINE:
            return quarantined(partition.file, partition.is_incremental)
        kinds, is_pointing = self._kinds, self._rows == _POINTING
        return iter(FileReader(partition.file, partition.is_incremental, kinds, is_pointing))
