"""Keeps the last message of each key of each topic in the table messages."""

from __future__ import annotations

import sys
from pathlib import Path

if not __package__:  # spark-submit runs this file by its path
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from spark import schemas
from spark.frame.job import Job, Outcome, main
from spark.frame.run import Run
from spark.transforms.selection import newest_of_keys

TABLE = "compact"


def run(run: Run) -> Outcome:
    rows = run.write(run.read("messages", schemas.MESSAGES).transform(newest_of_keys), TABLE)
    return Outcome(f"{rows} keys", run.where(TABLE))


JOB = Job("compact", __doc__ or "", run)

if __name__ == "__main__":
    sys.exit(main(JOB))
