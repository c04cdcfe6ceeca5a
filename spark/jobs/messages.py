"""Every message of an export, unpacked into the table `messages`, which keeps them for good."""

from __future__ import annotations

import argparse
import sys
from functools import partial
from pathlib import Path

if not __package__:  # spark-submit runs this file by its path
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark import schemas
from spark.frame.job import Job, Outcome, Run, main
from spark.reading.files import Place
from spark.transforms import messages as unpacking

ABOUT = """Unpacks every message of an export into the table messages (by topic, date, and the export that brought it
first), and notes what cannot be read in the table quarantine. A message that another export has brought stays there."""

_TABLE, _NAMES = "messages", "topics"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--blobs", metavar="PATH", help="where bodies too big for the table lie: here, or s3://bucket")


def run(run: Run) -> Outcome:
    if run.export.is_incremental:
        topics = run.items("segment", "payload", "topic").transform(unpacking.only_newest)
        packed = topics.transform(unpacking.packed)
        inline = packed.transform(unpacking.inline).transform(unpacking.unpacked)
    else:
        topics, (inline, packed) = run.items("topic"), run.messages()
    own = topics.transform(unpacking.topic_names)
    names = run.spark.createDataFrame(_named(run, own).collect(), own.schema)
    read_blob = partial(_read_blob, run.given.blobs) if run.given.blobs else None
    elsewhere = packed.transform(unpacking.elsewhere).transform(unpacking.unpacked, read_blob)
    run.write(own, _NAMES)
    with run.tables.staged(inline.unionByName(elsewhere), _TABLE, run.export.id) as unpacked:
        return _keep(run, unpacked, names)


def _keep(run: Run, unpacked: DataFrame, names: DataFrame) -> Outcome:
    known = _known(run, unpacked)
    run.quarantine(unpacking.failures(unpacked).transform(unpacking.only_new, known).select(*schemas.QUARANTINE.names))
    run.demand_clean()
    found = unpacking.messages(unpacked, names)
    fresh = found.transform(unpacking.only_new, known)
    of_known = F.col("topic_id").isin([row["topic_id"] for row in names.collect()])
    counted = unpacked.where("failure is null").groupBy(of_known.alias("known")).count().collect()
    sides = {row["known"]: row["count"] for row in counted}
    gone, total = sides.get(False, 0), sides.get(True, 0)
    count = run.write_within(fresh, _TABLE, ["topic", "date"])
    left_out = f", {gone} of deleted topics left out" if gone else ""
    return Outcome(f"{count} messages, {total - count} already there{left_out}", run.tables.path(_TABLE))


def _known(run: Run, unpacked: DataFrame) -> DataFrame:
    """The messages of these topics and dates that other exports have brought."""
    dates_and_topics = unpacked.agg(F.min("date"), F.max("date"), F.collect_set("topic_id"))
    (bounds,) = dates_and_topics.collect()
    table = run.tables.of_others(_TABLE, schemas.MESSAGES, run.export.id)
    first, last, topics = bounds
    return table.where(F.col("date").between(first, last) & F.col("topic_id").isin(topics))


def _named(run: Run, own: DataFrame) -> DataFrame:
    """The topics that there are. An incremental export has those that changed: others are as exports before it had
    them. Raises `BadInput` if there is none before it."""
    if run.export.is_incremental:
        return run.tables.read(_NAMES).select("topic_id", "topic").unionByName(own).distinct()
    return own


def _read_blob(root: str, topic_id: str, entry_id: bytes) -> bytes | None:
    blob = Place(root) / f"payloads/{topic_id}/{entry_id.hex()}"
    return None if blob.size() is None else blob.read()


JOB = Job("messages", ABOUT, run, add_arguments, looks_anew=True, writes=(_TABLE, _NAMES))

if __name__ == "__main__":
    sys.exit(main(JOB))
