"""Runs all jobs on one export, one after the other in one session, and then makes the report."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

if not __package__:  # spark-submit runs this file by its path
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from spark.job import DONE, VIOLATED, main
from spark.jobs import audit, backlog, compact, cost, dead_letters, delays, messages, report, traffic

_JOBS = (messages, audit, backlog, traffic, delays, dead_letters, cost, compact)
"""`messages` first: others look there for what the queue has let go of."""

NAMES = tuple(module.JOB.name for module in _JOBS)


def run(arguments: Sequence[str] | None = None) -> int:
    """The exit code: that of the first job that failed, which ends it; else that of the audit."""
    given = _parser().parse_args(arguments)
    optional = [text for name in ("cores", "now") if (value := getattr(given, name)) for text in (f"--{name}", value)]
    common = ["--export", given.export, "--tables", given.tables, *optional]
    reading = ["--allow-quarantine"] if given.allow_quarantine else []
    blobs = ["--blobs", given.blobs] if given.blobs else []
    worst = DONE
    for module in _JOBS:
        code = main(module.JOB, [*common, *reading, *(blobs if module is messages else [])])
        if code not in (DONE, VIOLATED):
            return code
        worst = max(worst, code)
    return main(report.JOB, [*common, "--out", given.out]) or worst


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="pipeline", description=__doc__)
    parser.add_argument("--export", required=True, metavar="PATH", help="folder of the export: here, or s3://")
    parser.add_argument("--tables", default="tables", metavar="PATH", help="root of all tables (default: tables)")
    parser.add_argument("--out", default="report.html", metavar="FILE", help="the report (default: report.html)")
    parser.add_argument("--now", metavar="TIME", help="ISO time or ms (default: that of the export)")
    parser.add_argument("--cores", metavar="N", help="use so many of this machine (default: all)")
    parser.add_argument("--blobs", metavar="PATH", help="as of the job messages")
    parser.add_argument("--allow-quarantine", action="store_true", help="go on though some of it cannot be read")
    return parser


if __name__ == "__main__":
    sys.exit(run())
