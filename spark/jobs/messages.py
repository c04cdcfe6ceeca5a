"""Unpacks every message of an export into the table `messages`, which keeps them permanently."""

from __future__ import annotations

import argparse
import sys
from functools import partial
from pathlib import Path

if not __package__:  # spark-submit runs this file by its path
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F

from spark import schemas
from spark.frame.job import Job, Outcome, Run, main
from spark.reading import dynamodb_export
from spark.reading.files import Place
from spark.transforms.messages import (
    failures,
    messages,
    only_new,
    only_newest,
    packed,
    topic_names,
    unpacked,
    with_topic,
)

ABOUT = """Unpacks every message of an export into the table messages (by topic, date, and the export that brought it
first), and notes what cannot be read in the table quarantine. A message that another export has brought stays as it
is."""

_TABLE, _NAMES = "messages", "topics"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--blobs", metavar="PATH", help="where bodies too big for the table lie: here, or s3://bucket")


def run(run: Run) -> Outcome:
    topics = run.items("topic")
    own = topic_names(only_newest(topics) if run.export.is_incremental else topics)
    names = run.spark.createDataFrame(_named(run, own).collect(), own.schema)
    run.write(own, _NAMES)
    known, counts = _known(run), Observation()
    named = with_topic(_unpacked(run), names).observe(counts, *_counts())
    written = run.write_within(messages(named).transform(only_new, known), _TABLE, ["topic", "date"])
    _quarantine(run, known, any_failed=counts.get["failed"] > 0)
    orphaned, there = counts.get["orphaned"], counts.get["kept"] - written
    left_out = f", {orphaned} of deleted topics left out" if orphaned else ""
    return Outcome(f"{written} messages, {there} already there{left_out}", run.tables.path(_TABLE))


def _counts() -> list[Column]:
    is_message, is_there = F.col("failure").isNull(), F.col("topic").isNotNull()
    counted = {"failed": ~is_message, "orphaned": is_message & ~is_there, "kept": is_message & is_there}
    return [F.count_if(which).alias(name) for name, which in counted.items()]


def _unpacked(run: Run, only_failures: bool = False) -> DataFrame:
    """All messages of the export, with rows of the entries that cannot be unpacked, or these alone: `unpack.COLUMNS`.
    Each call is a pass over the export."""
    read_blob = partial(_read_blob, run.given.blobs) if run.given.blobs else None
    path = run.export.place.path
    if run.export.is_incremental:
        items = dynamodb_export.items(run.spark, path, "segment", "payload")
        return unpacked(packed(only_newest(items)), read_blob)
    inline = (dynamodb_export.failures if only_failures else dynamodb_export.messages)(run.spark, path)
    elsewhere = packed(run.items("segment", "payload"), only_elsewhere=True)
    return inline.unionByName(unpacked(elsewhere, read_blob))


def _quarantine(run: Run, known: DataFrame, any_failed: bool) -> None:
    """Writes the entries that could not be unpacked to the quarantine, except those that another export has brought.
    Raises `BadInput` if the quarantine then has rows and they are not allowed."""
    rows = run.spark.createDataFrame([], schemas.QUARANTINE)
    if any_failed:
        rows = failures(_unpacked(run, only_failures=True)).transform(only_new, known).select(*rows.columns)
    run.quarantine(rows)
    run.demand_clean()


def _known(run: Run) -> DataFrame:
    """The messages that other exports have brought for the days of this export."""
    (days,) = run.landed.agg(F.min("days.first").alias("first"), F.max("days.last").alias("last")).collect()
    table = run.tables.of_others(_TABLE, schemas.MESSAGES, run.export.id)
    return table.where(F.col("date").between(days["first"], days["last"]))


def _named(run: Run, own: DataFrame) -> DataFrame:
    """The topics that exist. An incremental export has only those that changed; the others come from earlier exports.
    Raises `BadInput` if there is no earlier export."""
    if run.export.is_incremental:
        return run.tables.read(_NAMES).select("topic_id", "topic").unionByName(own).distinct()
    return own


def _read_blob(root: str, topic_id: str, entry_id: bytes) -> bytes | None:
    blob = Place(root) / f"payloads/{topic_id}/{entry_id.hex()}"
    return None if blob.size() is None else blob.read()


JOB = Job(
    "messages",
    ABOUT,
    run,
    add_arguments,
    looks_anew=True,
    writes=(_TABLE, _NAMES),
    kinds=("topic", "segment", "payload"),
    only_elsewhere=True,
)

if __name__ == "__main__":
    sys.exit(main(JOB))
