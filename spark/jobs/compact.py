"""Keeps the last message of each key of each topic in the table messages."""

from __future__ import annotations

import sys
from pathlib import Path

if not __package__:  # spark-submit runs this file by its path
    sys.path[0] = str(Path(__file__).resolve().parents[2])

import orjson
from pyspark.sql import functions as F

from spark import schemas
from spark.frame.job import Job, JobResult, main
from spark.frame.run import Run
from spark.landing.export_pass import ALL
from spark.landing.unpacked import MESSAGES
from spark.tables.versions import Part
from spark.transforms.selection import newest_of_keys

TABLE = "compact"


def run(run: Run) -> JobResult:
    days = {day: part.rows for day, part in run.demand(MESSAGES).parts(MESSAGES).items()}
    before = run.parts(TABLE).get(ALL, Part())
    known = orjson.loads(before.made_from or "{}")
    if known == days:
        return JobResult(f"{before.rows} keys, nothing new", run.tables.path(TABLE))
    stale = [day for day, rows in days.items() if known.get(day) != rows]
    messages = run.read(MESSAGES, schemas.MESSAGES, stale)
    if known:
        dates = [day.removeprefix("date=") for day in stale]
        kept = run.read(TABLE, schemas.MESSAGES).where(~F.col("date").isin(dates))
        messages = messages.select(*kept.columns).unionByName(kept)
    rows = run.write_all(messages.transform(newest_of_keys), TABLE, orjson.dumps(days).decode())
    return JobResult(f"{rows} keys", run.tables.path(TABLE))


JOB = Job("compact", __doc__ or "", run, reads_export=False)

if __name__ == "__main__":
    sys.exit(main(JOB))
