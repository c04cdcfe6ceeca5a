"""Joins small files of the table `messages`, and removes files that no version of the tables names."""

from __future__ import annotations

import argparse
import sys
from functools import partial
from pathlib import Path

if not __package__:  # spark-submit runs this file by its path
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from spark.frame.command_line import natural
from spark.frame.job import Job, JobResult, main
from spark.frame.run import Run
from spark.landing.unpacked import MESSAGES, messages_writer
from spark.tables.tidying import joined, remove_unnamed, replacement, small_parts

HOURS = 24


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--hours",
        type=natural,
        default=HOURS,
        metavar="N",
        help="in S3, keep unnamed files that are younger: a run may be about to name them (default: 24)",
    )


def run(run: Run) -> JobResult:
    parts = small_parts(run.tables.newest(), MESSAGES)
    root = run.tables.root
    if parts:
        results = run.in_tasks(partial(joined, root / MESSAGES, partial(messages_writer, root)), parts)
        run.tables.commit(replacement(MESSAGES, results))
    removed = remove_unnamed(run.tables, run.given.hours)
    count = sum(len(names) for _, names in parts)
    return JobResult(f"{count} small files joined, {removed} unnamed files removed", str(root))


JOB = Job("tidy", __doc__ or "", run, add_arguments, reads_export=False)

if __name__ == "__main__":
    sys.exit(main(JOB))
