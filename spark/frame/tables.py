"""Stores the tables that jobs write: Parquet, each partitioned by the export that it was made from.

A run overwrites partitions of its own export only. `root` is a path or URL that Spark can write to.

A run first writes everything under `_unfinished`, and `commit` moves it, partition by partition. So a failed query
changes no table. `_SUCCESS` moves with the partition, and marks a partition without rows, too. Readers see the old
partition, for a moment none, then the new one.

Of each partition `commit` first sets the old one aside, then leaves a mark that what is in its place from now on is
new, then moves the new one there. It removes what it has set aside when all moves are done; if one fails, it puts all
back. After a kill, what is in `_unfinished` tells `restore` how far a partition had come. All this takes no move to be
atomic, because on S3 none is: it copies file by file, and then deletes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from spark import schemas
from spark.errors import BadInput

_QUARANTINE = "quarantine"
_OLD, _MARK = ".old", ".replaced"
_UNFINISHED = "_unfinished"
"""Folder beside the tables. Names that begin with `_` are no tables."""


class _Staged(NamedTuple):
    """A partition to be replaced. `leaf`: its path within the table, the export last."""

    table: str
    export_id: str
    leaf: str

    @property
    def partition(self) -> str:
        return f"{self.table}/{self.leaf}"

    @property
    def place(self) -> str:
        """The place of the new partition until it is moved."""
        return f"{_aside(self.table, self.export_id)}/{self.leaf}"

    @property
    def old(self) -> str:
        return f"{_olds(self.table, self.export_id)}/{self.leaf}"

    @property
    def mark(self) -> str:
        """The mark is a file. It exists from the moment the old partition is wholly set aside until that is removed or
        begins to go back."""
        return f"{self.old}{_MARK}"


class Tables:
    def __init__(self, spark: SparkSession, root: str) -> None:
        self._spark, self.root = spark, root.rstrip("/")
        self._staged: list[_Staged] = []
        """Staged partitions, until `commit` moves them."""
        self._wide: list[tuple[str, str]] = []
        """Tables that are partitioned by more than the export, each with the export. They exist even if no row was
        written."""

    def path(self, table: str) -> str:
        return f"{self.root}/{table}"

    def partition(self, table: str, export_id: str) -> str:
        return f"{self.root}/{table}/export={export_id}"

    def has(self, place: str) -> bool:
        """Whether a finished write has left this table, or this partition of a table."""
        return self._exists(f"{place}/_SUCCESS")

    def read(self, table: str, schema: StructType | None = None) -> DataFrame:
        """The whole table, with its partition columns. Raises `BadInput` if no job has written it."""
        if not self._exists(table):
            raise BadInput(f"there is no table {self.path(table)}: the job that writes it has to run first")
        reader = self._spark.read.schema(schema) if schema else self._spark.read
        return reader.parquet(self.path(table))

    def overwrite(self, rows: DataFrame, table: str, export_id: str) -> int:
        """Writes the partition of this export and moves it into place at once. Returns the number of rows."""
        count = self.stage(rows, table, export_id)
        self._commit([each for each in self._staged if (each.table, each.export_id) == (table, export_id)], [])
        return count

    def stage(self, rows: DataFrame, table: str, export_id: str) -> int:
        """Stages the partition of this export; `commit` moves it into place. Returns the number of rows."""
        self.restore(table, export_id)
        staged = _Staged(table, export_id, f"export={export_id}")
        count = Observation()
        _counted(rows, count).write.mode("overwrite").parquet(self.path(staged.place))
        if staged not in self._staged:
            self._staged.append(staged)
        return int(count.get["rows"])

    def stage_within(self, rows: DataFrame, table: str, parts: list[str], export_id: str) -> int:
        """Writes aside rows that are partitioned by more than the export, which comes last. How many rows.

        `commit` replaces the partitions that they belong to; others of this export stay."""
        self.restore(table, export_id)
        aside = _aside(table, export_id)
        count = Observation()
        writing = _counted(rows, count).withColumn("export", F.lit(export_id)).write.mode("overwrite")
        # Whatever the session says, nothing may stay of what a killed run has written aside.
        writing.option("partitionOverwriteMode", "static").partitionBy(*parts, "export").parquet(self.path(aside))
        self._staged += [_Staged(table, export_id, leaf) for leaf in self._leaves(aside)]
        self._wide.append((table, export_id))
        return int(count.get["rows"])

    def read_staged(self, table: str, schema: StructType, export_id: str) -> DataFrame:
        return self._spark.read.schema(schema).parquet(self.path(_aside(table, export_id) + f"/export={export_id}"))

    def commit(self) -> None:
        """Moves all staged partitions into place, or raises and leaves every table unchanged."""
        self._commit(list(self._staged), list(self._wide))

    def discard(self) -> None:
        """Removes staged partitions, except where an old one could not be put back: `restore` needs both."""
        for table, export_id in _sources(self._staged, self._wide):
            if not self._exists(_olds(table, export_id)):
                self._delete(_aside(table, export_id))
        self._staged.clear()
        self._wide.clear()

    def restore_all(self, table: str) -> None:
        """Like `restore`, for every export: for a job that is the only writer of this table."""
        olds = self._names(_UNFINISHED) if self._exists(_UNFINISHED) else []
        for name in olds:
            if name.startswith(f"{table}-") and name.endswith(_OLD):
                self.restore(table, name.removeprefix(f"{table}-").removesuffix(_OLD))

    def restore(self, table: str, export_id: str) -> None:
        """Puts back partitions that a killed run has set aside and not replaced."""
        olds = _olds(table, export_id)
        if not self._exists(olds):
            return
        for leaf in self._leaves(olds):
            staged = _Staged(table, export_id, leaf)
            is_waiting = self._exists(staged.place)
            if self._exists(staged.mark) and self._exists(staged.partition) and not is_waiting:
                self._forget(staged)  # it was replaced
            else:
                self._put_back(staged)
        self._delete(olds)

    def _commit(self, staged: list[_Staged], wide: list[tuple[str, str]]) -> None:
        begun: list[_Staged] = []
        try:
            for each in staged:
                begun.append(each)
                self._replace(each)
            for table, _ in wide:
                self._create(f"{table}/_SUCCESS")
        except BaseException as error:
            self._roll_back(begun, error)
            raise
        self._staged = [each for each in self._staged if each not in staged]
        self._wide = [each for each in self._wide if each not in wide]
        with suppress(Exception):  # it is done; what stays in `_unfinished`, the next run removes
            for each in staged:
                self._forget(each)
            for table, export_id in _sources(staged, wide):
                self._delete(_olds(table, export_id))
                self._delete(_aside(table, export_id))

    def _roll_back(self, begun: list[_Staged], error: BaseException) -> None:
        failed = list[str]()
        for each in reversed(begun):
            with suppress(Exception):  # others can perhaps be put back
                self._put_back(each)
                continue
            failed.append(each.partition)
        if failed:
            text = f"{failed[0]} could not be put back, the next run tries it again; before that: {error}"
            raise OSError(text) from error
        with suppress(Exception):  # nothing is left there
            for table, export_id in _sources(begun, []):
                self._delete(_olds(table, export_id))

    def _replace(self, staged: _Staged) -> None:
        if self._exists(staged.partition):
            self._move(staged.partition, staged.old)
        self._create(staged.mark)
        self._move(staged.place, staged.partition)

    def _put_back(self, staged: _Staged) -> None:
        """Puts the old partition back. The steps are ordered so that, after a kill between any two, all of them can be
        repeated."""
        if self._exists(staged.mark):
            self._files(staged.place).mkdirs(self._hadoop_path(staged.place))  # says that it is not replaced
            self._delete(staged.partition)  # half of the new one, perhaps, into which the old one would be moved
            self._delete(staged.mark)
        if not self._exists(staged.old):
            return
        if not self._exists(staged.partition):
            self._move(staged.old, staged.partition)
            return
        for name in self._names(staged.old):  # some of the old one's files were still, or are again, in their place
            if not self._exists(f"{staged.partition}/{name}"):
                self._move(f"{staged.old}/{name}", f"{staged.partition}/{name}")
        self._delete(staged.old)

    def _forget(self, staged: _Staged) -> None:
        """Removes the old partition. Its mark goes last: without the mark, `restore` would put the remaining files
        back."""
        self._delete(staged.old)
        self._delete(staged.mark)

    def _move(self, place: str, to: str) -> None:
        files, target = self._files(to), self._hadoop_path(to)
        files.mkdirs(target.getParent())
        if not files.rename(self._hadoop_path(place), target):
            raise OSError(f"{self.path(place)} cannot be moved to {self.path(to)}")

    def _leaves(self, folder: str) -> list[str]:
        """The partitions in a folder, and those whose marks are there."""
        found = set[str]()
        for name in self._names(folder):
            if name.startswith("export="):
                found.add(name.removesuffix(_MARK))
            elif "=" in name:
                found.update(f"{name}/{leaf}" for leaf in self._leaves(f"{folder}/{name}"))
        return sorted(found)

    def of_others(self, table: str, schema: StructType, export_id: str) -> DataFrame:
        """The table's rows from other exports; empty if the table does not exist yet."""
        if not self._exists(table):
            return self._spark.createDataFrame([], _with_export(schema))
        found = self._spark.read.schema(_with_export(schema)).parquet(self.path(table))
        return found.where(F.col("export") != export_id)

    @contextmanager
    def kept_aside(self, rows: DataFrame, name: str, part: str) -> Iterator[DataFrame]:
        """The same rows, computed once: written aside, with a folder for each value of `part`, and removed
        afterwards."""
        place = f"{_UNFINISHED}/{name}"
        path = self.path(place)
        try:
            rows.write.mode("overwrite").option("partitionOverwriteMode", "static").partitionBy(part).parquet(path)
            yield self._spark.read.schema(rows.schema).parquet(path).select(*rows.columns)
        finally:
            self._delete(place)

    def count_quarantine(self, export_id: str) -> int:
        return self._quarantine(export_id).count()

    def first_of_quarantine(self, export_id: str) -> str:
        """File, line and reason of one quarantine row."""
        row = self._quarantine(export_id).orderBy("file", "line").first()
        return f"{row['file']} line {row['line']}, {row['reason']}" if row else "none"

    def _quarantine(self, export_id: str) -> DataFrame:
        return self._spark.read.schema(schemas.QUARANTINE).parquet(self.partition(_QUARANTINE, export_id))

    def _exists(self, place: str) -> bool:
        found: bool = self._files(place).exists(self._hadoop_path(place))
        return found

    def _names(self, folder: str) -> list[str]:
        return [status.getPath().getName() for status in self._files(folder).listStatus(self._hadoop_path(folder))]

    def _create(self, place: str) -> None:
        self._files(place).create(self._hadoop_path(place), True).close()

    def _delete(self, place: str) -> None:
        """Deletes the place if it exists. Raises `OSError` if it still exists afterwards."""
        if not self._files(place).delete(self._hadoop_path(place), True) and self._exists(place):
            raise OSError(f"{self.path(place)} cannot be removed")

    def _files(self, place: str):  # type: ignore[no-untyped-def]
        configuration = self._spark.sparkContext._jsc.hadoopConfiguration()
        return self._hadoop_path(place).getFileSystem(configuration)

    def _hadoop_path(self, place: str):  # type: ignore[no-untyped-def]
        return self._spark.sparkContext._jvm.org.apache.hadoop.fs.Path(self.path(place))  # type: ignore[union-attr]


def _counted(rows: DataFrame, count: Observation) -> DataFrame:
    return rows.observe(count, F.count(F.lit(1)).alias("rows"))


def _with_export(schema: StructType) -> StructType:
    return StructType([*schema.fields, StructField("export", StringType())])


def _aside(table: str, export_id: str) -> str:
    return f"{_UNFINISHED}/{table}-{export_id}"


def _olds(table: str, export_id: str) -> str:
    return f"{_aside(table, export_id)}{_OLD}"


def _sources(staged: list[_Staged], wide: list[tuple[str, str]]) -> set[tuple[str, str]]:
    """The tables and exports of the staged partitions and of the wide tables."""
    return {(each.table, each.export_id) for each in staged} | set(wide)
