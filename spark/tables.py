"""The tables that jobs write: Parquet, each partitioned by the export that it was made from.

A run overwrites the partition of its own export only. `root` is a path or URL that Spark can write to.
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


class Tables:
    def __init__(self, spark: SparkSession, root: str) -> None:
        self._spark, self.root = spark, root.rstrip("/")

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
        """Writes the partition of this export. How many rows."""
        path = self.partition(table, export_id)
        rows.write.mode("overwrite").parquet(path)
        return self._spark.read.schema(rows.schema).parquet(path).count()

    def overwrite_within(self, rows: DataFrame, table: str, parts: list[str], export_id: str) -> int:
        """Writes rows that are partitioned by more than the export, which comes last. How many rows."""
        path = self.path(table)
        rows.withColumn("export", F.lit(export_id)).write.mode("overwrite").partitionBy(*parts, "export").parquet(path)
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
        """The same rows, computed once: written aside, and removed afterwards. Names that begin with `_` are no
        tables."""
        place = f"{name}/export={export_id}"
        path = self.path(place)
        try:
            rows.write.mode("overwrite").parquet(path)
            yield self._spark.read.schema(rows.schema).parquet(path)
        finally:
            self._files(place).delete(self._hadoop_path(place), True)

    def append(self, rows: DataFrame, table: str, export_id: str) -> None:
        """Adds to the partition that this run has written."""
        rows.write.mode("append").parquet(self.partition(table, export_id))

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
