"""Shows how long requests took to be taken and answered, and how many were not answered in time."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

if not __package__:  # spark-submit runs this file by its path
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from pyspark.sql import functions as F

from spark import schemas
from spark.frame.command_line import add_slack
from spark.frame.job import Job, Outcome, main
from spark.frame.run import Run
from spark.transforms.audit.findings import SLACK_MS, Moment
from spark.transforms.requests import KINDS, calls, requests

TABLE = "requests"


def run(run: Run) -> Outcome:
    archive = run.read("messages", schemas.MESSAGES)
    known = calls(archive, run.items(*KINDS), Moment(run.now_ms, run.given.slack))
    run.write(known.transform(requests).repartition(1), TABLE)
    of_topics = run.written(TABLE, schemas.REQUESTS).where("minute_ms is null")
    counts = [F.coalesce(F.sum(name), F.lit(0)) for name in ("calls", "replied", "timed_out")]
    (total, replied, timed_out) = of_topics.agg(*counts).collect()[0]
    return Outcome(f"{total} calls, {replied} answered, {timed_out} timed out", run.where(TABLE))


JOB = Job(
    "requests",
    __doc__ or "",
    run,
    partial(add_slack, default_ms=SLACK_MS),
    full_only="what was not answered is known from a full export only",
)

if __name__ == "__main__":
    sys.exit(main(JOB))
