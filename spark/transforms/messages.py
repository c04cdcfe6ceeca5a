"""From items to messages: every message of every log, unpacked.

Entries that hold their messages are unpacked where they are read; the others first meet their payloads, by the entry's
id, in the one shuffle that this takes."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from spark import schemas
from spark.transforms.entries import entries
from spark.unpacking.unpack import COLUMNS, ReadBlob, unpack

_PLACE = ("queue", "offset", "count", "stored_at_ms", "codec", "pieces", "file", "line")


def only_newest(items: DataFrame) -> DataFrame:
    """Of an incremental export: the last image of each key, and nothing of what was removed in the end."""
    newest = Window.partitionBy("pk", "sk").orderBy(F.desc("written_us"), F.desc("file"), F.desc("line"))
    numbered = items.withColumn("_number", F.row_number().over(newest))
    return numbered.where((F.col("_number") == 1) & ~F.col("is_deleted")).select(*items.columns)


def packed(items: DataFrame) -> DataFrame:
    """`schemas.PACKED` of items, as the source gives them of a whole export."""
    kept = entries(items).withColumnRenamed("id", "entry_id").withColumn("piece", F.lit(None).cast("int"))
    pieces = items.where("kind = 'payload' and payload is not null").select("topic_id", "payload.*", "file", "line")
    return kept.select(*schemas.PACKED.names).unionByName(pieces, allowMissingColumns=True)


def inline(packed: DataFrame) -> DataFrame:
    """The entries that hold their messages."""
    return packed.where("piece is null and pieces is null")


def elsewhere(packed: DataFrame) -> DataFrame:
    """The entries that do not, each with its `data`, put together of its pieces; null when not all of them are there,
    or they are in S3."""
    place = F.struct(*_PLACE)
    together = packed.groupBy("topic_id", "entry_id").agg(
        F.collect_list(F.when(F.col("pieces").isNotNull(), place)).alias("places"),
        F.array_sort(F.collect_list(F.when(F.col("piece").isNotNull(), F.struct("piece", "data")))).alias("found"),
    )
    placed = together.select("topic_id", "entry_id", F.inline("places"), "found")
    numbers = F.sequence(F.lit(0), F.greatest(F.col("pieces") - 1, F.lit(0)))
    is_whole = (F.col("pieces") > 0) & (F.col("found.piece") == numbers)
    data = F.aggregate("found.data", F.unhex(F.lit("")), lambda all_, piece: F.concat(all_, piece))
    return placed.withColumn("data", F.when(is_whole, data)).drop("found")


def unpacked(entries: DataFrame, read_blob: ReadBlob | None = None) -> DataFrame:
    """The messages of entries: `unpacking.COLUMNS`. `read_blob` has those that are in S3."""

    def unpack_all(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield from unpack(batch, read_blob)

    return entries.mapInArrow(unpack_all, COLUMNS)


def topic_names(items: DataFrame) -> DataFrame:
    """`topic_id`, `topic`."""
    return items.where("kind = 'topic' and topic is not null").select("topic_id", F.col("topic.name").alias("topic"))


def messages(unpacked: DataFrame, names: DataFrame) -> DataFrame:
    """`schemas.MESSAGES`, of what was unpacked. A topic without a name is gone: its messages are left out."""
    return unpacked.where("failure is null").join(F.broadcast(names), "topic_id").select(*schemas.MESSAGES.names)


def failures(unpacked: DataFrame) -> DataFrame:
    """`schemas.QUARANTINE`, and the place of the entry in its log."""
    entry = F.format_string("entry %s at offset %s: %s", "entry_id", "offset", "failure.reason")
    failed = unpacked.where("failure is not null")
    return failed.select(
        "failure.file", "failure.line", entry.alias("reason"), F.lit("").alias("raw"), "topic_id", "queue", "offset"
    )


def only_new(found: DataFrame, known: DataFrame) -> DataFrame:
    """What no other export has brought. Both have `topic_id`, `queue`, `offset`."""
    return found.join(known.select("topic_id", "queue", "offset"), ["topic_id", "queue", "offset"], "left_anti").select(
        *found.columns
    )
