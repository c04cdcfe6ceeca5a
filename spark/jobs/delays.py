"""Shows how late delayed messages were delivered, and which ones still wait."""

from __future__ import annotations

import sys
from pathlib import Path

if not __package__:  # spark-submit runs this file by its path
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from spark import schemas
from spark.frame.job import Job, JobResult, main
from spark.frame.run import Run
from spark.landing.unpacked import MESSAGES
from spark.transforms.delays import histogram, lateness, only_waiting, waiting, with_lateness


def run(run: Run) -> JobResult:
    rows, days = 0, run.stale_days("delays", MESSAGES)
    if days:
        late = run.read(MESSAGES, schemas.MESSAGES, days).transform(with_lateness)
        rows = run.write_days(lateness(late), "delays", MESSAGES, days)
        run.write_days(histogram(late), "delay_histogram", MESSAGES, days)
    hours = run.write(only_waiting(run.items, run.now_ms).transform(waiting), "delay_waiting")
    return JobResult(f"{rows} topics and days; {hours} hours in which messages wait", run.tables.path("delays"))


JOB = Job(
    "delays",
    __doc__ or "",
    run,
    full_only="what waits is known from a full export only",
)

if __name__ == "__main__":
    sys.exit(main(JOB))
