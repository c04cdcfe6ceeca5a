"""Shows how late delayed messages were delivered, and which ones still wait."""

from __future__ import annotations

import sys
from pathlib import Path

if not __package__:  # spark-submit runs this file by its path
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from spark import schemas
from spark.frame.job import Job, Outcome, main
from spark.frame.run import Run
from spark.transforms.delays import KINDS, histogram, lateness, only_waiting, waiting, with_lateness


def run(run: Run) -> Outcome:
    late = run.read("messages", schemas.MESSAGES).transform(with_lateness)
    waits = run.items(*KINDS).transform(only_waiting, run.now_ms).persist()
    rows = run.write(lateness(late, waits).repartition(1), "delays")
    run.write(late.transform(histogram).repartition(1), "delay_histogram")
    run.write(waits.transform(waiting).repartition(1), "delay_waiting")
    waits.unpersist()
    return Outcome(f"{rows} topics; delay_histogram and delay_waiting beside them", run.where("delays"))


JOB = Job(
    "delays",
    __doc__ or "",
    run,
    full_only="what waits is known from a full export only",
)

if __name__ == "__main__":
    sys.exit(main(JOB))
