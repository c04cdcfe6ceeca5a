"""Runs all jobs on one export, one after the other in one session, and then makes the report."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

if not __package__:  # spark-submit runs this file by its path
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from pyspark.sql import DataFrame

from spark import item_schemas
from spark.errors import BadInput
from spark.frame.job import DONE, INTERRUPTED, VIOLATED, Job, Outcome, Run, landing, main
from spark.jobs import audit, backlog, compact, cost, dead_letters, delays, messages, report, requests, traffic
from spark.reading.manifest import read_export

_JOBS = (messages, audit, backlog, traffic, requests, delays, dead_letters, cost, compact)
"""`messages` first: other jobs read messages there that have expired in the service."""

NAMES = tuple(module.JOB.name for module in (*_JOBS, report))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--export", required=True, metavar="PATH", help="folder of a full export: here, or s3://")
    parser.add_argument("--allow-quarantine", action="store_true", help="go on though some of it cannot be read")
    parser.add_argument("--blobs", metavar="PATH", help="as of the job messages")
    parser.add_argument("--out", default="report.html", metavar="FILE", help="the report (default: report.html)")


def run(run: Run) -> Outcome:
    """Returns the exit code of the first job that failed, which ends the run; otherwise that of the audit."""
    given = run.given
    export = read_export(given.export)
    if export.is_incremental:
        raise BadInput(f"{given.export} is incremental; most jobs need a full export")
    common = _options(given, "export", "tables", "cores", "master", "now", "traceback")
    reading = [*common, *_options(given, "allow_quarantine")]
    worst = DONE
    with landing(Run(run.spark, given, export), JOB) as landed:
        for module in _JOBS:
            code = _one(module.JOB, [*reading, *(_options(given, "blobs") if module is messages else [])], landed)
            if code not in (DONE, VIOLATED):
                return Outcome(f"{module.JOB.name} failed", code=code)
            worst = max(worst, code)
    code = _one(report.JOB, [*common, *_options(given, "out")])
    return Outcome("all jobs" if code == DONE else "report failed", given.out, code or worst)


def _options(given: argparse.Namespace, *names: str) -> list[str]:
    """The arguments of these names that were given, to pass on."""
    options = {f"--{name.replace('_', '-')}": getattr(given, name) for name in names}
    flags = [name for name, value in options.items() if value is True]
    return [*flags, *(f"{name}={value}" for name, value in options.items() if not isinstance(value, bool | None))]


def _one(job: Job, arguments: list[str], landed: DataFrame | None = None) -> int:
    code = main(job, arguments, landed)
    if code == INTERRUPTED:
        raise KeyboardInterrupt
    return code


JOB = Job("pipeline", __doc__ or "", run, add_arguments, reads_export=False, kinds=tuple(item_schemas.KINDS))

if __name__ == "__main__":
    sys.exit(main(JOB))
