"""The Python Data Source `dynamodb_export`: the items of an export as rows, one partition for each data file.

    spark.read.format("dynamodb_export").load("exports/AWSDynamoDB/01700000000000-abcdef12")

Rows are `schemas.ITEMS`; with `.option("rows", "quarantine")` they are `schemas.QUARANTINE`: what of it cannot be read.
A filter on `kind` (`=` or `IN`) is pushed down: lines of other kinds are passed over without being parsed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, EqualTo, Filter, In, InputPartition, IsNotNull
from pyspark.sql.types import StructType

from spark import schemas
from spark.errors import BadInput
from spark.sources.data_file import FileReader, quarantined
from spark.sources.manifest import DataFile, read_export

_ITEMS, _POINTING, _QUARANTINE = "items", "pointing", "quarantine"


def items(spark: SparkSession, path: str) -> DataFrame:
    """The items of the export in this folder: `schemas.ITEMS`."""
    return _load(spark, path, _ITEMS)


def pointing_items(spark: SparkSession, path: str) -> DataFrame:
    """Payloads, and the segments with an entry that points to one: `schemas.ITEMS`."""
    return _load(spark, path, _POINTING).where("kind in ('segment', 'payload')")


def quarantine(spark: SparkSession, path: str) -> DataFrame:
    """What of this export cannot be read: `schemas.QUARANTINE`."""
    return _load(spark, path, _QUARANTINE)


def _load(spark: SparkSession, path: str, rows: str) -> DataFrame:
    spark.dataSource.register(DynamoDbExport)
    return spark.read.format(DynamoDbExport.name()).option("rows", rows).load(path)


class DynamoDbExport(DataSource):
    """Options: `path`, the folder of one export; `rows`, `items` (the default), `pointing` (of these,
    payloads and what points to them; other segments may be left out) or `quarantine`."""

    @classmethod
    def name(cls) -> str:
        return "dynamodb_export"

    def schema(self) -> StructType:
        return schemas.QUARANTINE if self._rows == _QUARANTINE else schemas.ITEMS

    def reader(self, schema: StructType) -> ExportReader:  # noqa: ARG002  it is PySpark's, and always the one above
        return ExportReader(self.options["path"], self._rows)

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
    def __init__(self, path: str, rows: str) -> None:
        self._path, self._rows = path, rows
        self._kinds: frozenset[str] | None = None

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802  it is PySpark's name
        """Takes those on `kind`; the others are left to Spark."""
        for each in filters:
            kinds = _kinds(each) if self._rows != _QUARANTINE else None
            if kinds is None:
                yield each
            else:
                self._kinds = kinds if self._kinds is None else self._kinds & kinds

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


def _kinds(condition: Filter) -> frozenset[str] | None:
    """The kinds that it lets through; null: it is no condition on them. Those that nobody knows are none."""
    match condition:
        case EqualTo(("kind",), value):
            wanted = {value}
        case In(("kind",), values):
            wanted = set(values)
        case IsNotNull(("kind",)):
            return frozenset(schemas.KINDS)
        case _:
            return None
    return frozenset(wanted & schemas.KINDS.keys())
