"""Shows the progress of each group in each queue: messages ready, in flight, retrying and dead, and the oldest."""

from __future__ import annotations

import sys
from pathlib import Path

if not __package__:  # spark-submit runs this file by its path
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from spark.frame.job import Job, JobResult, main
from spark.frame.run import Run
from spark.transforms.backlog import backlog

TABLE = "backlog"


def run(run: Run) -> JobResult:
    rows = run.write(backlog(run.items, run.now_ms), TABLE)
    return JobResult(f"{rows} rows", run.where(TABLE))


JOB = Job(
    "backlog",
    __doc__ or "",
    run,
    full_only="a backlog needs a full export, which has all cursors",
)

if __name__ == "__main__":
    sys.exit(main(JOB))
