"""One run of a job: the export and the tables it works on."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import cached_property, partial

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import DataType, DateType, StringType, StructType

from spark import item_schemas
from spark.errors import BadInput
from spark.files import Place
from spark.frame.at_hand import frame_at_hand
from spark.frame.session import SMALL_ITEMS, cores_here, is_submitted, open_session
from spark.landing.export_pass import ALL, ExportPass
from spark.landing.landed import ITEMS, QUARANTINE
from spark.landing.tasks import Given, Made, Workers, over_rows
from spark.landing.unpacked import OF_ENTRIES, UNREADABLE
from spark.reading.manifest import Export, read_export
from spark.tables.tables import Tables
from spark.tables.versions import Part, TableParts, TablesChange, Version
from spark.tables.writing import PartWriter, WrittenPart, as_parts, read_rows, write_part
from spark.transforms.items import Items

_PARTITIONS: dict[str, DataType] = {"date": DateType(), "export": StringType()}


class JobContext:
    """The shared state of the jobs of one process: the tables, the session, the checked exports."""

    def __init__(self, name: str, given: argparse.Namespace) -> None:
        self._name, self._given = name, given
        self.tables = Tables(given.tables)
        self._exports: dict[str, Export] = {}
        self._session: SparkSession | None = None

    def export(self, path: str) -> Export:
        """The export in this folder. Its manifest is checked once. Raises `BadInput`."""
        if path not in self._exports:
            self._exports[path] = read_export(path)
        return self._exports[path]

    @property
    def workers(self) -> Workers:
        """Processes of this machine, unless a cluster was named."""
        if self._given.master or is_submitted():
            return Workers(cluster=self.session)
        return Workers(self._given.cores or cores_here(), self.tables.workers_lock)

    def session(self) -> SparkSession:
        """Opened when it is first needed."""
        if self._session is None:
            is_small = bool(self._exports) and all(export.items < SMALL_ITEMS for export in self._exports.values())
            self._session = open_session(self._name, self._given.cores, self._given.master, is_small=is_small)
        return self._session


class Run:
    """One run of a job, with its arguments."""

    def __init__(self, context: JobContext, given: argparse.Namespace, export: Export | None = None) -> None:
        self._context, self.given, self._export = context, given, export
        self.context, self.tables = context, context.tables
        self._staged = TablesChange()
        self._version: Version | None = None

    @property
    def spark(self) -> SparkSession:
        return self._context.session()

    @property
    def version(self) -> Version:
        """The version of the tables that this run reads: the one at its first read, or of its own last commit. Commits
        of other runs in S3 do not affect it."""
        if self._version is None:
            self._version = self.tables.newest()
        return self._version

    @property
    def export(self) -> Export:
        """The export. Only for a job that reads one."""
        if self._export is None:
            raise LookupError("this job reads no export")
        return self._export

    @cached_property
    def now_ms(self) -> int:
        """The current time for this job: from the arguments, or else the export's own time."""
        given: int | None = self.given.now
        return self.export.at_ms if given is None else given

    @property
    def part(self) -> str:
        """The partition of this export."""
        return f"export={self.export.id}"

    # -- the export ---------------------------------------------------------------------------------------------------

    def pass_over(self, unpacks: bool) -> ExportPass:
        return ExportPass(self.tables, self.export, self._context.workers, unpacks)

    def land(self, unpacks: bool = False) -> None:
        """Reads the export into the tables `_items` and `quarantine`, unless they already have it complete. `unpacks`:
        also finds entries that cannot be unpacked. Raises `BadInput` if something cannot be read and
        `--allow-quarantine` was not given."""
        is_there = all(self.part in self.parts(table) for table in (ITEMS, *([UNREADABLE] if unpacks else [])))
        if not is_there or (self.quarantined and not self.given.allow_quarantine):  # it may have been repaired
            reading = self.pass_over(unpacks)
            reading.land()
            if unpacks:
                reading.unpack(keeps=False)
            self.commit(partial(self._with_entries, reading))
        self.demand_clean()

    def _with_entries(self, reading: ExportPass, newest: Version) -> TablesChange:
        """The job `messages` may have quarantined entries, which stay."""
        change = reading.only_landed(newest)
        known = newest.parts(QUARANTINE).get(self.part, Part()).files
        entries = tuple(file for file in known if file.name.startswith(OF_ENTRIES))
        found = change.put[QUARANTINE, self.part] or Part()
        change.put[QUARANTINE, self.part] = Part((*found.files, *entries))
        return change

    @property
    def quarantined(self) -> int:
        """The number of quarantine rows for this export."""
        return self.parts(QUARANTINE).get(self.part, Part()).rows

    def demand_clean(self) -> None:
        """Raises `BadInput` if the quarantine has rows of this export and `--allow-quarantine` was not given."""
        if (count := self.quarantined) and not self.given.allow_quarantine:
            raise BadInput(
                f"{rows_of(count)} of this export cannot be read, see {self.where(QUARANTINE)}; the first:"
                f" {self._first_of_quarantine()}. Nothing else was written; --allow-quarantine goes on without them"
            )

    def _first_of_quarantine(self) -> str:
        places = self.tables.places(self.version, QUARANTINE, [self.part])
        batches = read_rows(places, ["file", "line", "reason"])
        row = min((row for batch in batches for row in batch.to_pylist()), key=lambda row: (row["file"], row["line"]))
        return f"{row['file']} line {row['line']}, {row['reason']}"

    @cached_property
    def items(self) -> Items:
        """The items of the export, without the messages in entries. For an incremental export, only the changes."""
        return Items(self._items)

    def _items(self, kinds: Collection[str]) -> DataFrame:
        found = self.tables.places(self.version, ITEMS, [self.part])
        wanted = [place for place in found if place.name.rpartition("-")[0] in kinds]
        others = item_schemas.KINDS.keys() - set(kinds)
        return self._frame(wanted, StructType([field for field in item_schemas.ITEMS if field.name not in others]))

    def in_tasks(self, function: Callable[[Given], Made], parts: Sequence[Given]) -> list[Made]:
        """See `Workers.each`."""
        return self._context.workers.each(function, parts)

    # -- tables -------------------------------------------------------------------------------------------------------

    def read(self, table: str, schema: StructType, parts: Collection[str] | None = None) -> DataFrame:
        """The rows of these partitions of the table, or of all, with the partition's column. Raises `BadInput` if no
        job has written the table."""
        version = self.demand(table)
        return self._frame(self.tables.places(version, table, parts), _with_partition(version, table, schema), table)

    def demand(self, table: str) -> Version:
        """The tables. Raises `BadInput` if no job has written this one."""
        return self.tables.demand(table, self.version)

    def parts(self, table: str) -> TableParts:
        """The partitions of the table."""
        return self.version.parts(table)

    def stale_days(self, table: str, source: str) -> list[str]:
        """The partitions of `source`, by day, that have changed since those of `table` were made from them. Days of
        `source` only gain rows."""
        version = self.demand(source)
        made = version.parts(table)
        days = version.parts(source).items()
        return [day for day, part in sorted(days) if made.get(day, Part()).made_from != str(part.rows)]

    def write(self, rows: DataFrame, table: str) -> int:
        """Writes the table's partition of this export, in place of an earlier run's. Returns the number of rows."""
        return self._put(rows, table, self.part)

    def write_days(self, rows: DataFrame, table: str, source: str, days: Collection[str]) -> int:
        """Writes these days of the table, made from the same days of `source`: rows with a `date`. Returns the number
        of rows."""
        made = over_rows(rows, partial(_write_days, self.tables.root, table))
        found = as_parts(written for task in made for written in task)
        made_from = self.parts(source)
        for day in days:
            self._staged.put[table, day] = Part(found.get((table, day), ()), str(made_from[day].rows))
        return sum(file.rows for files in found.values() for file in files)

    def write_all(self, rows: DataFrame, table: str, made_from: str = "") -> int:
        """Writes the only partition of a table. Returns the number of rows."""
        return self._put(rows, table, ALL, made_from)

    def written(self, table: str, schema: StructType) -> DataFrame:
        """The rows of the table that this run has written."""
        return self._frame(self._staged_places(table), schema, table)

    def written_rows(self, table: str, columns: list[str]) -> Iterator[pa.RecordBatch]:
        """The same without Spark, a batch at a time."""
        return read_rows(self._staged_places(table), columns)

    def _staged_places(self, table: str) -> list[Place]:
        staged = [(name, part) for (of, name), part in self._staged.put.items() if of == table and part]
        return [self.tables.root / table / name / file.name for name, part in staged for file in part.files]

    def commit(self, change: Callable[[Version], TablesChange] | None = None) -> None:
        """Commits a change of the tables, by default the rows that this run has written."""
        if change or self._staged.put:
            self._version = self.tables.commit(change or self._staged)

    def where(self, table: str) -> str:
        """The partition of this export, for the summary."""
        return str(self.tables.root / table / self.part)

    def _put(self, rows: DataFrame, table: str, name: str, made_from: str = "") -> int:
        made = over_rows(rows, partial(_write_part, self.tables.root, table, name))
        part = Part(tuple(written.file for task in made for written in task), made_from)
        if not part.files:
            none = write_part(self.tables.root, table, name, to_arrow_schema(rows.schema).empty_table())
            part = Part(none.files, made_from)
        self._staged.put[table, name] = part
        return part.rows

    def _frame(self, places: list[Place], schema: StructType, table: str = "") -> DataFrame:
        at_hand = frame_at_hand(self.spark, places, schema)
        if at_hand is not None:
            return at_hand
        reader = self.spark.read.schema(schema)
        if table:
            reader = reader.option("basePath", (self.tables.root / table).spark_path)
        rows = reader.parquet(*[place.spark_path for place in places])
        return rows.select(*schema.names)  # Spark adds each column that it sees in a path


def rows_of(count: int) -> str:
    return "1 row" if count == 1 else f"{count} rows"


def _with_partition(version: Version, table: str, schema: StructType) -> StructType:
    name = next(iter(version.parts(table))).partition("=")[0]
    if name not in _PARTITIONS or name in schema.names:
        return schema
    return StructType([*schema.fields, *StructType().add(name, _PARTITIONS[name]).fields])


def _write_part(root: Place, table: str, part: str, batches: Iterable[pa.RecordBatch]) -> list[WrittenPart]:
    writer = PartWriter(root, table)
    for batch in batches:
        writer.add(batch, part)
    return writer.close()


def _write_days(root: Place, table: str, batches: Iterable[pa.RecordBatch]) -> list[WrittenPart]:
    writer = PartWriter(root, table)
    for batch in batches:
        writer.add_days(batch)
    return writer.close()
