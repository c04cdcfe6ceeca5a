"""Unpacks every message of an export into the table `messages`, which keeps them permanently."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

if not __package__:  # spark-submit runs this file by its path
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from spark.errors import BadInput
from spark.files import Place
from spark.frame.job import Job, JobResult, main
from spark.frame.run import Run
from spark.landing.unpacked import MESSAGES

ABOUT = """Unpacks the messages of an export that the table messages does not have, and adds them to it (by date, with
the export that brought them). Notes what cannot be read in the table quarantine."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--blobs", metavar="PATH", help="where bodies too big for the table lie: here, or s3://bucket")


def run(run: Run) -> JobResult:
    blobs = Place(run.given.blobs) if run.given.blobs else None
    if blobs and not blobs.is_folder():
        raise BadInput(f"--blobs: there is nothing at {blobs}")
    reading = run.pass_over(unpacks=True)
    reading.land()
    if not reading.quarantined or run.given.allow_quarantine:
        reading.unpack(keeps=True, blobs=blobs)
    if reading.quarantined and not run.given.allow_quarantine:
        run.commit(reading.only_landed)
        run.demand_clean()
    run.commit(reading.whole)
    brought = reading.brought
    left_out = f", {brought.orphaned} of deleted topics left out" if brought.orphaned else ""
    return JobResult(f"{brought.written} messages, {brought.known} already there{left_out}", run.tables.path(MESSAGES))


JOB = Job("messages", ABOUT, run, add_arguments, lands=False)

if __name__ == "__main__":
    sys.exit(main(JOB))
