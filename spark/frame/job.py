"""The frame of every job: its arguments, the export and the tables it works on, one line at its end, an exit code.

    0   done
    1   bad input, or it failed: one line on stderr, and no table is changed but the quarantine
    2   `audit` only: an invariant does not hold
    64  wrong arguments
    130 interrupted

A job commits its rows to the tables in one commit at its end: all of them, or none. Only unreadable input of an export
is committed at once. Output elsewhere (`replay`, `search --out`) stays, and so do the commits of jobs that
`incremental` and `pipeline` ran before one failed.

A job is `if __name__ == "__main__": sys.exit(main(Job(name, about, run)))`. `run` receives a `Run` and returns the
summary, or an `JobResult` if the exit code is not 0.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pyspark.errors import PySparkException

from spark.errors import BadInput
from spark.frame.command_line import Parser, instant, master, place, positive
from spark.frame.run import JobContext, Run, rows_of

DONE, FAILED, VIOLATED, INTERRUPTED = 0, 1, 2, 130


class JobResult(NamedTuple):
    """`text`: the result, for the summary. `where`: the written place, if any."""

    text: str
    where: str = ""
    code: int = DONE


@dataclass(frozen=True)
class Job:
    """`add_arguments` adds the job's own arguments. `reads_export=False`: the job reads only tables. `full_only`: the
    reason why the job rejects incremental exports. `writes=False`: the job leaves the tables as they are.
    `lands=False`: the job itself lands its export."""

    name: str
    about: str
    run: Callable[[Run], JobResult]
    add_arguments: Callable[[argparse.ArgumentParser], object] | None = None
    reads_export: bool = True
    full_only: str = ""
    writes: bool = True
    lands: bool = True


def main(job: Job, arguments: Sequence[str] | None = None, context: JobContext | None = None) -> int:
    """Runs the job. Returns the exit code. `context`: of the job that runs this one."""
    given = parser(job).parse_args(arguments)
    began = time.monotonic()
    if not given.traceback:
        logging.basicConfig(handlers=[logging.NullHandler()])  # py4j logs an interrupted call at great length
    try:
        outcome = _outcome(job, given, context or JobContext(f"decant {job.name}", given))
    except KeyboardInterrupt:
        print(f"{job.name}: interrupted", file=sys.stderr)
        return INTERRUPTED
    except Exception as error:  # an operator reads one line, whatever the error
        if given.traceback:
            raise
        print(f"{job.name}: {_said(error)}", file=sys.stderr)
        return FAILED
    where = f" -> {outcome.where}" if outcome.where else ""
    print(f"{job.name}: {outcome.text} in {time.monotonic() - began:.1f} s{where}")
    return outcome.code


def _outcome(job: Job, given: argparse.Namespace, context: JobContext) -> JobResult:
    export = context.export(given.export) if job.reads_export else None
    if export and export.is_incremental and job.full_only:
        raise BadInput(f"{export.place} is incremental; {job.full_only}")
    run = Run(context, given, export)
    if not job.writes:
        return job.run(run)
    with context.tables.writing():
        if export and job.lands:
            run.land()
        outcome = job.run(run)
        run.commit()
    if export and (count := run.quarantined):
        outcome = outcome._replace(text=f"{outcome.text}, {rows_of(count)} in quarantine")
    return outcome


def parser(job: Job) -> argparse.ArgumentParser:
    """The parser of the shared arguments and the job's own."""
    how = argparse.RawDescriptionHelpFormatter
    made = Parser(prog=job.name, description=job.about, formatter_class=how, allow_abbrev=False)
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
