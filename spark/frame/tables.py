"""Stores the tables that jobs write: Parquet, each partitioned by the export that it was made from.

A run overwrites partitions of its own export only. `root` is a path or URL that Spark can write to.

A run first writes everything under `_unfinished`, and `commit` moves it, partition by partition. So a failed query
changes no table. `_SUCCESS` moves with the partition, and marks a partition without rows, too. Readers see the old
partition, for a moment none, then the new one.

For each partition, `commit` sets the old one aside, creates a mark (from now on, what is in its place is new), and
moves the new one there. When all moves are done, it removes the old partitions; if one move fails, it puts all of them
back. After a kill, `restore` can tell from `_unfinished` how far each partition had come. No step relies on moves being
atomic: on S3 they are not, files are copied one by one and then deleted.
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
from spark.frame.folder import Folder

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
    def target(self) -> str:
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
        self._spark, self.files = spark, Folder(spark, root)
        self._staged: list[_Staged] = []
        """Staged partitions, until `commit` moves them."""
        self._wide: list[tuple[str, str]] = []
        """Tables that are partitioned by more than the export, each with the export. They exist even if no row was
        written."""

    @property
    def root(self) -> str:
        return self.files.root

    def path(self, table: str) -> str:
        return self.files.path(table)

    def partition(self, table: str, export_id: str) -> str:
        return self.files.path(f"{table}/export={export_id}")

    def has(self, place: str) -> bool:
        """Whether a finished write has left this table, or this partition of a table."""
        return self.files.exists(f"{place}/_SUCCESS")

    def read(self, table: str, schema: StructType | None = None) -> DataFrame:
        """The whole table, with its partition columns. Raises `BadInput` if no job has written it."""
        if not self.files.exists(table):
            raise BadInput(f"there is no table {self.path(table)}: the job that writes it has to run first")
        reader = self._spark.read.schema(schema) if schema else self._spark.read
        return reader.parquet(self.path(table))

    def overwrite(self, rows: DataFrame, table: str, export_id: str) -> int:
        """Writes the partition of this export and moves it into place at once. Returns the number of rows."""
        count = self.stage(rows, table, export_id)
        self._commit([staged for staged in self._staged if (staged.table, staged.export_id) == (table, export_id)], [])
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
        """Stages rows of a table that is partitioned by `parts`, and last by the export. Returns the number of rows.

        `commit` replaces the partitions that have rows; others of this export stay."""
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
            if not self.files.exists(_olds(table, export_id)):
                self.files.delete(_aside(table, export_id))
        self._staged.clear()
        self._wide.clear()

    def restore_all(self, table: str) -> None:
        """Like `restore`, for every export: for a job that is the only writer of this table."""
        olds = self.files.names(_UNFINISHED) if self.files.exists(_UNFINISHED) else []
        for name in olds:
            if name.startswith(f"{table}-") and name.endswith(_OLD):
                self.restore(table, name.removeprefix(f"{table}-").removesuffix(_OLD))

    def restore(self, table: str, export_id: str) -> None:
        """Puts back partitions that a killed run has set aside and not replaced."""
        olds = _olds(table, export_id)
        if not self.files.exists(olds):
            return
        for leaf in self._leaves(olds):
            staged = _Staged(table, export_id, leaf)
            is_waiting = self.files.exists(staged.place)
            if self.files.exists(staged.mark) and self.files.exists(staged.target) and not is_waiting:
                self._forget(staged)  # it was replaced
            else:
                self._put_back(staged)
        self.files.delete(olds)

    def _commit(self, staged: list[_Staged], wide: list[tuple[str, str]]) -> None:
        begun: list[_Staged] = []
        try:
            for partition in staged:
                begun.append(partition)
                self._replace(partition)
            for table, _ in wide:
                self.files.create(f"{table}/_SUCCESS")
        except BaseException as error:
            self._roll_back(begun, error)
            raise
        self._staged = [partition for partition in self._staged if partition not in staged]
        self._wide = [table for table in self._wide if table not in wide]
        with suppress(Exception):  # it is done; what stays in `_unfinished`, the next run removes
            for partition in staged:
                self._forget(partition)
            for table, export_id in _sources(staged, wide):
                self.files.delete(_olds(table, export_id))
                self.files.delete(_aside(table, export_id))

    def _roll_back(self, begun: list[_Staged], error: BaseException) -> None:
        failed = list[str]()
        for partition in reversed(begun):
            with suppress(Exception):  # others can perhaps be put back
                self._put_back(partition)
                continue
            failed.append(partition.target)
        if failed:
            text = f"{failed[0]} could not be put back, the next run tries it again; before that: {error}"
            raise OSError(text) from error
        with suppress(Exception):  # nothing is left there
            for table, export_id in _sources(begun, []):
                self.files.delete(_olds(table, export_id))

    def _replace(self, staged: _Staged) -> None:
        if self.files.exists(staged.target):
            self.files.move(staged.target, staged.old)
        self.files.create(staged.mark)
        self.files.move(staged.place, staged.target)

    def _put_back(self, staged: _Staged) -> None:
        """Puts the old partition back. The steps are ordered so that, after a kill between any two, all of them can be
        repeated."""
        if self.files.exists(staged.mark):
            self.files.make(staged.place)  # says that it is not replaced
            self.files.delete(staged.target)  # half of the new one, perhaps, into which the old one would be moved
            self.files.delete(staged.mark)
        if not self.files.exists(staged.old):
            return
        if not self.files.exists(staged.target):
            self.files.move(staged.old, staged.target)
            return
        for name in self.files.names(staged.old):  # some files of the old one have stayed, or are back already
            if not self.files.exists(f"{staged.target}/{name}"):
                self.files.move(f"{staged.old}/{name}", f"{staged.target}/{name}")
        self.files.delete(staged.old)

    def _forget(self, staged: _Staged) -> None:
        """Removes the old partition. Its mark goes last: without the mark, `restore` would put the remaining files
        back."""
        self.files.delete(staged.old)
        self.files.delete(staged.mark)

    def _leaves(self, folder: str) -> list[str]:
        """The partitions in a folder, and those whose marks are there."""
        leaves = set[str]()
        for name in self.files.names(folder):
            if name.startswith("export="):
                leaves.add(name.removesuffix(_MARK))
            elif "=" in name:
                leaves.update(f"{name}/{leaf}" for leaf in self._leaves(f"{folder}/{name}"))
        return sorted(leaves)

    def of_others(self, table: str, schema: StructType, export_id: str) -> DataFrame:
        """The table's rows from other exports; empty if the table does not exist yet."""
        if not self.files.exists(table):
            return self._spark.createDataFrame([], _with_export(schema))
        rows = self._spark.read.schema(_with_export(schema)).parquet(self.path(table))
        return rows.where(F.col("export") != export_id)

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
            self.files.delete(place)

    def count_quarantine(self, export_id: str) -> int:
        return self._quarantine(export_id).count()

    def first_of_quarantine(self, export_id: str) -> str:
        """File, line and reason of one quarantine row."""
        row = self._quarantine(export_id).orderBy("file", "line").first()
        return f"{row['file']} line {row['line']}, {row['reason']}" if row else "none"

    def _quarantine(self, export_id: str) -> DataFrame:
        return self._spark.read.schema(schemas.QUARANTINE).parquet(self.partition(_QUARANTINE, export_id))


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
    return {(partition.table, partition.export_id) for partition in staged} | set(wide)
