"""Checks the invariants of the table on one full export. The table violations has the findings."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

if not __package__:  # spark-submit runs this file by its path
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from pyspark.sql import DataFrame

from spark import schemas
from spark.frame.command_line import add_slack
from spark.frame.job import DONE, VIOLATED, Job, Outcome, main
from spark.frame.run import Run
from spark.landing.unpacked import UNREADABLE
from spark.transforms.audit import COST, DOUBT, KINDS, VIOLATION, Moment, violations, worst_first
from spark.transforms.audit.findings import SLACK_MS

TABLE = "violations"
SHOWN_MAX = 20
"""Rows that are printed; the table has them all."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_slack(parser, SLACK_MS)
    parser.add_argument("--strict", action="store_true", help="exit with 2 for doubts and costs, too")


def run(run: Run) -> Outcome:
    run.land(unpacks=True)
    unreadable = run.read(UNREADABLE, schemas.UNREADABLE, [run.part])
    audited = violations(run.items(*KINDS), Moment(run.now_ms, run.given.slack), unreadable)
    run.write(audited.repartition(1), TABLE)
    findings = run.written(TABLE, schemas.VIOLATIONS)
    _print(findings)
    counts = {row["severity"]: row["count"] for row in findings.groupBy("severity").count().collect()}
    is_wrong = bool(counts) if run.given.strict else VIOLATION in counts
    said = ", ".join(f"{counts.get(severity, 0)} {severity}s" for severity in (VIOLATION, DOUBT, COST))
    return Outcome(said, run.where(TABLE), VIOLATED if is_wrong else DONE)


def _print(findings: DataFrame) -> None:
    rows = findings.transform(worst_first).limit(SHOWN_MAX + 1).collect()
    for row in rows[:SHOWN_MAX]:
        place = f"{row['topic']}, queue {row['queue']}" + ("" if row["offset"] is None else f", offset {row['offset']}")
        print(f"{row['severity']} {row['invariant']}: {place}: {row['detail']}")
    if len(rows) > SHOWN_MAX:
        print("and more")


JOB = Job(
    "audit",
    __doc__ or "",
    run,
    add_arguments,
    lands=False,
    full_only="the audit needs a full export, to see what is missing",
)

if __name__ == "__main__":
    sys.exit(main(JOB))
