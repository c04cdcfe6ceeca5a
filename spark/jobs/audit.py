"""Checks the invariants of the table on one full export. The table violations has the findings."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path
from typing import Any

if not __package__:  # spark-submit runs this file by its path
    sys.path[0] = str(Path(__file__).resolve().parents[2])

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema

from spark import schemas
from spark.frame.command_line import add_slack
from spark.frame.job import DONE, VIOLATED, Job, JobResult, main
from spark.frame.run import Run
from spark.landing.unpacked import UNREADABLE
from spark.report.digests import worst_first
from spark.transforms.audit import COST, DOUBT, VIOLATION, Moment, violations
from spark.transforms.audit.findings import SLACK_MS

TABLE = "violations"
SHOWN_MAX = 20
"""The most rows printed; the table has them all."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_slack(parser, SLACK_MS)
    parser.add_argument("--strict", action="store_true", help="exit with 2 for doubts and costs, too")


def run(run: Run) -> JobResult:
    run.land(unpacks=True)
    unreadable = run.read(UNREADABLE, schemas.UNREADABLE, [run.part])
    audited = violations(run.items, Moment(run.now_ms, run.given.slack), unreadable)
    run.write(audited.hint("rebalance"), TABLE)
    counts, worst = Counter[str](), pa.Table.from_batches([], to_arrow_schema(schemas.VIOLATIONS))
    for batch in run.written_rows(TABLE, schemas.VIOLATIONS.names):
        counts.update(batch["severity"].to_pylist())
        both = pa.concat_tables([worst, pa.Table.from_batches([batch])], promote_options="default")
        worst = worst_first(both)[:SHOWN_MAX]
    _print(worst.to_pylist(), is_all=counts.total() <= SHOWN_MAX)
    is_wrong = bool(counts) if run.given.strict else VIOLATION in counts
    said = ", ".join(f"{counts[severity]} {severity}s" for severity in (VIOLATION, DOUBT, COST))
    return JobResult(said, run.where(TABLE), VIOLATED if is_wrong else DONE)


def _print(rows: list[dict[str, Any]], is_all: bool) -> None:
    for row in rows:
        place = f"{row['topic']}, queue {row['queue']}" + ("" if row["offset"] is None else f", offset {row['offset']}")
        print(f"{row['severity']} {row['invariant']}: {place}: {row['detail']}")
    if not is_all:
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
