"""Counts dead letters by topic, group, reason and hour, and lists each with its message."""

from __future__ import annotations

import sys
from pathlib import Path

if not __package__:  # spark-submit runs this file by its path
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from spark import schemas
from spark.frame.job import Job, JobResult, main
from spark.frame.run import Run
from spark.transforms.dead_letters import dead_letters, dead_messages


def run(run: Run) -> JobResult:
    archive = run.read("messages", schemas.MESSAGES)
    letters = run.write(dead_messages(run.items, archive), "dead_messages")
    written = run.written("dead_messages", schemas.DEAD_MESSAGES)
    rows = run.write(written.transform(dead_letters), "dead_letters")
    return JobResult(f"{letters} letters in {rows} rows; dead_messages beside them", run.where("dead_letters"))


JOB = Job(
    "dead_letters",
    __doc__ or "",
    run,
    full_only="dead letters need a full export, which has the groups",
)

if __name__ == "__main__":
    sys.exit(main(JOB))
