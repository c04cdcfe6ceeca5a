"""Shows how long consumers took to pop and answer requests, and how many got no answer in time."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

if not __package__:  # spark-submit runs this file by its path
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from spark import schemas
from spark.frame.command_line import add_slack
from spark.frame.job import Job, JobResult, main
from spark.frame.run import Run
from spark.landing.unpacked import MESSAGES
from spark.transforms.audit.findings import SLACK_MS, Moment
from spark.transforms.requests import asked_from_ms, calls, requests

TABLE = "requests"
_COUNTS = ["minute_ms", "calls", "replied", "timed_out"]


def run(run: Run) -> JobResult:
    moment = Moment(run.now_ms, run.given.slack)
    first = datetime.fromtimestamp(asked_from_ms(moment) / 1000, UTC)
    days = [day for day in run.parts(MESSAGES) if day >= f"date={first:%Y-%m-%d}"]
    known = calls(run.read(MESSAGES, schemas.MESSAGES, days), run.items, moment)
    run.write(known.transform(requests), TABLE)
    rows = [row for batch in run.written_rows(TABLE, _COUNTS) for row in batch.to_pylist() if row["minute_ms"] is None]
    total, replied, timed_out = (sum(row[name] for row in rows) for name in _COUNTS[1:])
    return JobResult(f"{total} calls, {replied} answered, {timed_out} timed out", run.where(TABLE))


JOB = Job(
    "requests",
    __doc__ or "",
    run,
    partial(add_slack, default_ms=SLACK_MS),
    full_only="what was not answered is known from a full export only",
)

if __name__ == "__main__":
    sys.exit(main(JOB))
