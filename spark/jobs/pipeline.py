"""Runs all jobs on one export, one after the other in one session, and then makes the report."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

if not __package__:  # spark-submit runs this file by its path
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from spark.frame.job import DONE, INTERRUPTED, VIOLATED, Job, JobResult, main
from spark.frame.run import JobContext, Run
from spark.jobs import audit, backlog, compact, cost, dead_letters, delays, messages, report, requests, traffic

_JOBS = (messages, audit, backlog, traffic, requests, delays, dead_letters, cost, compact)
"""`messages` first: other jobs read messages there that have expired in the service."""

NAMES = tuple(module.JOB.name for module in (*_JOBS, report))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--blobs", metavar="PATH", help="as of the job messages")
    parser.add_argument("--out", default="report.html", metavar="FILE", help="the report (default: report.html)")


def run(run: Run) -> JobResult:
    """Returns the exit code of the first job that failed, which ends the run; otherwise that of the audit."""
    given, context = run.given, run.context
    common = _options(given, "tables", "cores", "master", "now", "traceback")
    reading = [*common, *_options(given, "export", "allow_quarantine")]
    worst = DONE
    for module in _JOBS:
        arguments = [*reading, *_options(given, "blobs")] if module is messages else reading
        code = _one(module.JOB, arguments if module.JOB.reads_export else common, context)
        if code not in (DONE, VIOLATED):
            return JobResult(f"{module.JOB.name} failed", code=code)
        worst = max(worst, code)
    code = _one(report.JOB, [*common, *_options(given, "export", "out")], context)
    return JobResult("all jobs" if code == DONE else "report failed", given.out, code or worst)


def _options(given: argparse.Namespace, *names: str) -> list[str]:
    """The arguments of these names that were given, to pass on."""
    options = {f"--{name.replace('_', '-')}": getattr(given, name) for name in names}
    flags = [name for name, value in options.items() if value is True]
    return [*flags, *(f"{name}={value}" for name, value in options.items() if not isinstance(value, bool | None))]


def _one(job: Job, arguments: list[str], context: JobContext) -> int:
    code = main(job, arguments, context)
    if code == INTERRUPTED:
        raise KeyboardInterrupt
    return code


JOB = Job("pipeline", __doc__ or "", run, add_arguments, full_only="most jobs need a full export", lands=False)

if __name__ == "__main__":
    sys.exit(main(JOB))
