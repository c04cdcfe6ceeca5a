"""The frame of every job: its arguments, the export and the tables it works on, one line at its end, an exit code.

    0   done
    1   bad input, or it failed: one line on stderr, and no table is changed but the quarantine, see below
    2   `audit` only: something that must always hold does not
    64  wrong arguments
    130 interrupted

The quarantine is written at once. All other tables are replaced at the end, when nothing but their moves is left that
could fail. If one fails, those before it are undone; where that fails, too, the line says so. An interrupt undoes them
as well. A kill in between leaves some partitions replaced, and perhaps one missing: the next run of the job on the same
export puts it back before it begins. What a job writes elsewhere (`replay`, `search --out`), and what the jobs that
`incremental` and `pipeline` run have done before one fails, stays.

A job is `if __name__ == "__main__": sys.exit(main(Job(name, about, run)))`. `run` receives a `Run` and returns the
summary, or an `Outcome` if the exit code is not 0.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from spark import item_schemas
from spark.errors import BadInput
from spark.frame.command_line import Parser, instant, master, place, positive
from spark.frame.session import open_session
from spark.frame.tables import Tables
from spark.reading import dynamodb_export
from spark.reading.manifest import Export, read_export

DONE, FAILED, VIOLATED, INTERRUPTED = 0, 1, 2, 130


class Outcome(NamedTuple):
    """`text`: the result, for the summary. `where`: the place that was written, if any."""

    text: str
    where: str = ""
    code: int = DONE


@dataclass(frozen=True)
class Job:
    """`add_arguments` adds the job's own arguments. `reads_export=False`: the job reads only tables. `looks_anew`: the
    job checks the export for unreadable input even if an earlier job has done so. `full_only`: the reason why the job
    rejects incremental exports. `writes`: the job's tables; before the job begins, partitions that a killed run left
    unfinished are restored. `kinds`: the kinds of item that the job reads. `only_elsewhere`: of the segments, the job
    reads only those with an entry whose messages lie in payloads."""

    name: str
    about: str
    run: Callable[[Run], Outcome]
    add_arguments: Callable[[argparse.ArgumentParser], object] | None = None
    reads_export: bool = True
    looks_anew: bool = False
    full_only: str = ""
    writes: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    only_elsewhere: bool = False


class Run:
    """One run of a job, with its arguments."""

    def __init__(
        self,
        spark: SparkSession,
        given: argparse.Namespace,
        export: Export | None = None,
        land: Callable[[], DataFrame] | None = None,
    ) -> None:
        """`land` reads the export: `item_schemas.LANDED`, with the kinds of item that the job reads."""
        self.spark, self.given, self._export, self._land = spark, given, export, land
        self.tables = Tables(spark, given.tables)
        self._unreadable: DataFrame | None = None

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

    @cached_property
    def landed(self) -> DataFrame:
        """`item_schemas.LANDED`: the export, read once, on first use."""
        if self._land is None:
            raise LookupError("this job reads no export")
        return self._land()

    def items(self, *kinds: str) -> DataFrame:
        """The items of these kinds in the export: `item_schemas.ITEMS`, without the messages in entries. For an
        incremental export, only the changes."""
        return self.landed.where(F.col("kind").isin(*kinds)).select(*item_schemas.ITEMS.names)

    @cached_property
    def quarantined(self) -> int:
        """The number of quarantine rows for this export."""
        return self.tables.count_quarantine(self.export.id)

    def quarantine(self, rows: DataFrame) -> None:
        """Writes the quarantine of this export: the rows that `check_quarantine` found in this run, and these rows."""
        if self._unreadable is None:
            raise LookupError("this job does not look for what cannot be read")
        self.tables.overwrite(self._unreadable.unionByName(rows), "quarantine", self.export.id)
        self.__dict__.pop("quarantined", None)

    def write(self, rows: DataFrame, table: str) -> int:
        """Writes the table's partition of this export. It replaces the partition of an earlier run once this run has
        succeeded. Returns the number of rows."""
        return self.tables.stage(rows, table, self.export.id)

    def write_within(self, rows: DataFrame, table: str, parts: list[str]) -> int:
        """Like `write`, for a table that is partitioned by more than the export. Partitions of this export for which
        there are no rows stay."""
        return self.tables.stage_within(rows, table, parts, self.export.id)

    def written(self, table: str, schema: StructType) -> DataFrame:
        """The rows that this run has written."""
        return self.tables.read_staged(table, schema, self.export.id)

    def where(self, table: str) -> str:
        """The partition of this export, for the summary."""
        return self.tables.partition(table, self.export.id)

    def check_quarantine(self, anew: bool = False) -> None:
        """Checks the export for unreadable input and writes it to the quarantine, once for all jobs.

        Raises `BadInput` if there is any and `--allow-quarantine` was not given. `anew`: checks even if an earlier run
        has done so. In that case, if the job can go on, the quarantine stays unchanged until the job calls
        `quarantine`, because only then are all of its rows known."""
        if anew or not self.tables.has(f"quarantine/export={self.export.id}"):
            unreadable = self.landed.where(F.col("kind") == item_schemas.UNREADABLE).select("file", "line", "trouble.*")
            if anew:
                self._unreadable = unreadable
                if self.given.allow_quarantine or unreadable.isEmpty():
                    return
            self.tables.overwrite(unreadable, "quarantine", self.export.id)
        self.demand_clean()

    def demand_clean(self) -> None:
        """Raises `BadInput` if the quarantine has rows of this export and `--allow-quarantine` was not given."""
        if self.quarantined and not self.given.allow_quarantine:
            first = self.tables.first_of_quarantine(self.export.id)
            raise BadInput(
                f"{_rows(self.quarantined)} of this export cannot be read, see {self.where('quarantine')};"
                f" the first: {first}. Nothing else was written; --allow-quarantine goes on without them"
            )


def main(job: Job, arguments: Sequence[str] | None = None, landed: DataFrame | None = None) -> int:
    """Runs the job. Returns the exit code. `landed`: `item_schemas.LANDED` with items of all kinds, if the export has
    already been read."""
    given = parser(job).parse_args(arguments)
    began = time.monotonic()
    if not given.traceback:
        logging.basicConfig(handlers=[logging.NullHandler()])  # py4j logs an interrupted call at great length
    try:
        outcome = _run(job, given, landed)
    except KeyboardInterrupt:
        print(f"{job.name}: interrupted", file=sys.stderr)
        return INTERRUPTED
    except Exception as error:  # whatever it is, an operator reads one line
        if given.traceback:
            raise
        print(f"{job.name}: {_said(error)}", file=sys.stderr)
        return FAILED
    where = f" -> {outcome.where}" if outcome.where else ""
    print(f"{job.name}: {outcome.text} in {time.monotonic() - began:.1f} s{where}")
    return outcome.code


def _run(job: Job, given: argparse.Namespace, landed: DataFrame | None) -> Outcome:
    export = read_export(given.export) if job.reads_export else None
    if export and export.is_incremental and job.full_only:
        raise BadInput(f"{export.place} is incremental; {job.full_only}")
    spark = open_session(f"decant {job.name}", given.cores, given.master)
    with ExitStack() as parts:

        def land() -> DataFrame:
            return landed if landed is not None else parts.enter_context(landing(run, job))

        run = Run(spark, given, export, land)
        try:
            return _outcome(job, run)
        except Exception:
            with suppress(Exception):  # the first error is the one to report
                run.tables.discard()
            raise


def _outcome(job: Job, run: Run) -> Outcome:
    if not job.reads_export:
        outcome = job.run(run)
    else:
        for table in job.writes:
            run.tables.restore(table, run.export.id)
        run.check_quarantine(anew=job.looks_anew)
        outcome = job.run(run)
        if run.quarantined:
            outcome = outcome._replace(text=f"{outcome.text}, {_rows(run.quarantined)} in quarantine")
    run.tables.commit()  # nothing that could fail may come after it
    return outcome


@contextmanager
def landing(run: Run, job: Job) -> Iterator[DataFrame]:
    """`item_schemas.LANDED` of the export, with the items that the job reads, on disk until this ends: one pass over
    its files."""
    path, name = run.export.place.path, f"landed-{job.name}-{run.export.id}"
    rows = dynamodb_export.landed(run.spark, path, *job.kinds, only_elsewhere=job.only_elsewhere)
    with run.tables.kept_aside(rows, name, "kind") as landed:
        yield landed


def parser(job: Job) -> argparse.ArgumentParser:
    """The parser of the arguments that all jobs share, and of the job's own."""
    made = Parser(prog=job.name, description=job.about, formatter_class=argparse.RawDescriptionHelpFormatter)
    if job.reads_export:
        made.add_argument("--export", required=True, metavar="PATH", help="folder of the export: here, or s3://")
        made.add_argument("--allow-quarantine", action="store_true", help="go on though some of it cannot be read")
    made.add_argument("--tables", type=place, default="tables", metavar="PATH", help="root of all (default: tables)")
    made.add_argument("--now", type=instant, metavar="TIME", help="ISO time or ms (default: that of the export)")
    where = made.add_mutually_exclusive_group()
    where.add_argument("--cores", type=positive, metavar="N", help="use so many of this machine (default: all)")
    where.add_argument("--master", type=master, metavar="URL", help="run on this cluster instead")
    made.add_argument("--traceback", action="store_true", help="of an error, say all there is")
    if job.add_arguments:
        job.add_arguments(made)
    return made


def _rows(count: int) -> str:
    return "1 row" if count == 1 else f"{count} rows"


def _said(error: Exception) -> str:
    """The error's message, in one line."""
    name, text = type(error).__name__, str(error)
    if isinstance(error, PySparkException):
        text = error.getMessage() or ""
    elif cause := getattr(error, "java_exception", None):
        while cause.getCause():
            cause = cause.getCause()
        name, text = cause.getClass().getSimpleName(), cause.getMessage() or ""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if isinstance(error, BadInput):
        return lines[0]
    return f"{name}: {lines[0] if lines else 'no reason given'}"
