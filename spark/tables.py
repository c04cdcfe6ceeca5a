"""The tables that jobs write: Parquet, each partitioned by the export that it was made from.

A run overwrites the partition of its own export only. `root` is a path or URL that Spark can write to.

A run writes each partition whole under `_unfinished` first, and moves it when everything that the run writes is
there. So a query that fails changes no table. `_SUCCESS` moves with the partition, and marks one without rows, too.
Readers see the old partition, for a moment none, then the new one. A kill in this moment leaves the old one under
`_unfinished`, with `.old` after its name, until the run is repeated.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from spark import schemas
from spark.errors import BadInput

_QUARANTINE = "quarantine"
_UNFINISHED = "_unfinished"
"""Folder beside the tables. Names that begin with `_` are no tables."""


class Tables:
    def __init__(self, spark: SparkSession, root: str) -> None:
        self._spark, self.root = spark, root.rstrip("/")
        self._staged: dict[str, str] = {}
        """By partition: where it has been written until `keep` moves it."""

    def path(self, table: str) -> str:
        return f"{self.root}/{table}"

    def partition(self, table: str, export_id: str) -> str:
        return f"{self.root}/{table}/export={export_id}"

    def has(self, place: str) -> bool:
        """Whether a finished write has left this table, or this partition of one."""
        found: bool = self._files(place).exists(self._hadoop_path(f"{place}/_SUCCESS"))
        return found

    def read(self, table: str, schema: StructType | None = None) -> DataFrame:
        """The whole table, with its partition columns. Raises `BadInput` if no job has written it."""
        if not self._files(table).exists(self._hadoop_path(table)):
            raise BadInput(f"there is no table {self.path(table)}: the job that writes it has to run first")
        reader = self._spark.read.schema(schema) if schema else self._spark.read
        return reader.parquet(self.path(table))

    def overwrite(self, rows: DataFrame, table: str, export_id: str) -> int:
        """Writes the partition of this export and moves it to its place at once. How many rows."""
        count = self.stage(rows, table, export_id)
        self._replace(f"{table}/export={export_id}")
        return count

    def stage(self, rows: DataFrame, table: str, export_id: str) -> int:
        """Writes the partition of this export aside; `keep` moves it to its place. How many rows."""
        place = f"{_UNFINISHED}/{table}-{export_id}"
        rows.write.mode("overwrite").parquet(self.path(place))
        self._staged[f"{table}/export={export_id}"] = place
        return self._spark.read.schema(rows.schema).parquet(self.path(place)).count()  # of the files' footers alone

    def read_staged(self, table: str, schema: StructType, export_id: str) -> DataFrame:
        return self._spark.read.schema(schema).parquet(self.path(self._staged[f"{table}/export={export_id}"]))

    def keep(self) -> None:
        """Moves what is staged to its place."""
        for partition in list(self._staged):
            self._replace(partition)

    def discard(self) -> None:
        """Removes what is staged."""
        for place in self._staged.values():
            self._files(place).delete(self._hadoop_path(place), True)
        self._staged.clear()

    def _replace(self, partition: str) -> None:
        place = self._staged[partition]
        files, old = self._files(partition), f"{place}.old"
        is_there = files.exists(self._hadoop_path(partition))
        if is_there:
            files.delete(self._hadoop_path(old), True)
            self._move(partition, old)
        try:
            self._move(place, partition)
        except BaseException:
            if is_there:
                self._move(old, partition)
            raise
        del self._staged[partition]
        files.delete(self._hadoop_path(old), True)

    def _move(self, place: str, to: str) -> None:
        files, target = self._files(to), self._hadoop_path(to)
        files.mkdirs(target.getParent())
        if not files.rename(self._hadoop_path(place), target):
            raise OSError(f"{self.path(place)} cannot be moved to {self.path(to)}")

    def overwrite_within(self, rows: DataFrame, table: str, parts: list[str], export_id: str) -> int:
        """Writes rows that are partitioned by more than the export, which comes last. How many rows.

        Spark writes them aside, too, and replaces the partitions that they belong to once all rows are written; others
        of this export stay."""
        path = self.path(table)
        writing = rows.withColumn("export", F.lit(export_id)).write.mode("overwrite")
        writing.option("partitionOverwriteMode", "dynamic").partitionBy(*parts, "export").parquet(path)
        written = self._spark.read.schema(_with_export(rows.schema)).parquet(path)
        return written.where(F.col("export") == export_id).count()

    def of_others(self, table: str, schema: StructType, export_id: str) -> DataFrame:
        """What other exports have brought into the table; nothing, before there is one."""
        if not self._files(table).exists(self._hadoop_path(table)):
            return self._spark.createDataFrame([], _with_export(schema))
        found = self._spark.read.schema(_with_export(schema)).parquet(self.path(table))
        return found.where(F.col("export") != export_id)

    @contextmanager
    def staged(self, rows: DataFrame, name: str, export_id: str) -> Iterator[DataFrame]:
        """The same rows, computed once: written aside, and removed afterwards."""
        place = f"{_UNFINISHED}/{name}-{export_id}.rows"
        path = self.path(place)
        try:
            rows.write.mode("overwrite").parquet(path)
            yield self._spark.read.schema(rows.schema).parquet(path)
        finally:
            self._files(place).delete(self._hadoop_path(place), True)

    def count_quarantine(self, export_id: str) -> int:
        return self._quarantine(export_id).count()

    def first_of_quarantine(self, export_id: str) -> str:
        """File, line and reason of one row."""
        row = self._quarantine(export_id).orderBy("file", "line").first()
        return f"{row['file']} line {row['line']}, {row['reason']}" if row else "none"

    def _quarantine(self, export_id: str) -> DataFrame:
        return self._spark.read.schema(schemas.QUARANTINE).parquet(self.partition(_QUARANTINE, export_id))

    def _files(self, place: str):  # type: ignore[no-untyped-def]
        configuration = self._spark.sparkContext._jsc.hadoopConfiguration()
        return self._hadoop_path(place).getFileSystem(configuration)

    def _hadoop_path(self, place: str):  # type: ignore[no-untyped-def]
        return self._spark.sparkContext._jvm.org.apache.hadoop.fs.Path(self.path(place))  # type: ignore[union-attr]


def _with_export(schema: StructType) -> StructType:
    return StructType([*schema.fields, StructField("export", StringType())])
