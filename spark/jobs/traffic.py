"""Counts messages by topic, queue, minute and tag, finds the busiest keys, and shows how evenly queues are used.

All by day: only the days whose messages have changed are counted again."""

from __future__ import annotations

import sys
from pathlib import Path

if not __package__:  # spark-submit runs this file by its path
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from spark import schemas
from spark.frame.job import Job, JobResult, main
from spark.frame.run import Run
from spark.landing.unpacked import MESSAGES
from spark.transforms.audit.log import topics
from spark.transforms.traffic import hot_keys, skew, traffic

TOP = 20
"""Keys of a topic and day in `hot_keys`."""


def run(run: Run) -> JobResult:
    days = run.stale_days("traffic", MESSAGES)
    if not days:
        return JobResult("every day is counted already", run.tables.path("traffic"))
    messages = run.read(MESSAGES, schemas.MESSAGES, days)
    rows = run.write_days(messages.transform(traffic), "traffic", MESSAGES, days)
    run.write_days(messages.transform(hot_keys, TOP), "hot_keys", MESSAGES, days)
    run.write_days(messages.transform(skew, topics(run.items)), "skew", MESSAGES, days)
    total = sum(run.parts(MESSAGES)[day].rows for day in days)
    of_days = "1 day" if len(days) == 1 else f"{len(days)} days"
    return JobResult(
        f"{total} messages of {of_days} in {rows} rows; hot_keys, skew beside them", run.tables.path("traffic")
    )


JOB = Job("traffic", __doc__ or "", run)

if __name__ == "__main__":
    sys.exit(main(JOB))
