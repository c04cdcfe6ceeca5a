"""Counts messages by topic, queue, minute and tag, finds the busiest keys, and shows how evenly queues are used."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

if not __package__:  # spark-submit runs this file by its path
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from pyspark.sql import functions as F

from spark import schemas
from spark.frame import message_options
from spark.frame.command_line import positive
from spark.frame.job import Job, Outcome, main
from spark.frame.run import Run
from spark.transforms.audit.log import topics
from spark.transforms.traffic import hot_keys, only_between, skew, traffic

TOP = 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    message_options.add_span(parser)
    parser.add_argument(
        "--top", type=positive, default=TOP, metavar="N", help=f"how many keys of each topic (default: {TOP})"
    )


def run(run: Run) -> Outcome:
    given = run.given
    message_options.demand_span(given)
    archive = run.read("messages", schemas.MESSAGES)
    messages = archive.transform(only_between, given.from_ms, given.to_ms)
    rows = run.write(messages.transform(traffic).repartition(1), "traffic")
    run.write(messages.transform(hot_keys, given.top).repartition(1), "hot_keys")
    run.write(messages.transform(skew, topics(run.items("topic"))).repartition(1), "skew")
    written = run.written("traffic", schemas.TRAFFIC)
    (total,) = written.agg(F.coalesce(F.sum("messages"), F.lit(0))).collect()[0]
    return Outcome(f"{total} messages in {rows} rows; hot_keys and skew beside them", run.where("traffic"))


JOB = Job("traffic", __doc__ or "", run, add_arguments)

if __name__ == "__main__":
    sys.exit(main(JOB))
