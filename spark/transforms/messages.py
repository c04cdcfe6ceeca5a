"""From items to messages: unpacks every message of every log.

Of a full export, entries that hold their messages are unpacked where they are read (`reading.dynamodb_export`). The
others first meet their payloads, by the entry's id, in the one shuffle that this takes."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from spark import item_schemas, schemas
from spark.unpacking import entries
from spark.unpacking.unpack import COLUMNS, ReadBlob, unpack

_PLACE = ("queue", "offset", "count", "stored_at_ms", "codec", "pieces", "data", "file", "line")


def only_newest(items: DataFrame) -> DataFrame:
    """Reduces an incremental export to the last image of each key, without items whose last change is a removal."""
    newest = Window.partitionBy("pk", "sk").orderBy(F.desc("written_us"), F.desc("file"), F.desc("line"))
    numbered = items.withColumn("_number", F.row_number().over(newest))
    return numbered.where((F.col("_number") == 1) & ~F.col("is_deleted")).select(*items.columns)


def packed(items: DataFrame, only_elsewhere: bool = False) -> DataFrame:
    """The entries of segments, or only those whose messages do not lie in them: `item_schemas.PACKED` but for `piece`.

    Each has its `data`, its own or those of its payload items together; null where not all of these are there, or they
    are in S3."""
    is_held = F.col("kind") == "segment"
    if only_elsewhere:
        is_held = is_held & F.exists("segment.entries", lambda entry: entry["pieces"].isNotNull())
    holders = items.where(is_held | (F.col("kind") == "payload"))
    wanted = holders.select("topic_id", "file", "line", "segment", "payload").mapInArrow(_packed, item_schemas.PACKED)
    if only_elsewhere:
        wanted = wanted.where("pieces is not null or piece is not null")
    place = F.struct(*_PLACE)
    together = wanted.groupBy("topic_id", "entry_id").agg(
        F.collect_list(F.when(F.col("count").isNotNull(), place)).alias("places"),
        F.array_sort(F.collect_list(F.when(F.col("piece").isNotNull(), F.struct("piece", "data")))).alias("held"),
    )
    placed = together.select("topic_id", "entry_id", F.inline("places"), "held")
    numbers = F.sequence(F.lit(0), F.greatest(F.col("pieces") - 1, F.lit(0)))
    is_whole = (F.col("pieces") > 0) & (F.col("held.piece") == numbers)
    pieces = F.aggregate("held.data", F.unhex(F.lit("")), lambda all_, piece: F.concat(all_, piece))
    data = F.when(F.col("pieces").isNull(), F.col("data")).when(is_whole, pieces)
    return placed.withColumn("data", data).drop("held")


def _packed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield from entries.packed(batch)


def unpacked(packed: DataFrame, read_blob: ReadBlob | None = None) -> DataFrame:
    """The messages of entries: `unpack.COLUMNS`. `read_blob` returns those that are in S3."""

    def unpack_all(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield from unpack(batch, read_blob)

    return packed.mapInArrow(unpack_all, COLUMNS)


def topic_names(items: DataFrame) -> DataFrame:
    """`topic_id`, `topic`."""
    return items.where("kind = 'topic' and topic is not null").select("topic_id", F.col("topic.name").alias("topic"))


def with_topic(unpacked: DataFrame, names: DataFrame) -> DataFrame:
    """Adds the name of the `topic`; null if the topic was deleted."""
    return unpacked.join(F.broadcast(names), "topic_id", "left")


def messages(named: DataFrame) -> DataFrame:
    """`schemas.MESSAGES`, from `with_topic`. Messages of deleted topics are left out."""
    return named.where("failure is null and topic is not null").select(*schemas.MESSAGES.names)


def failures(unpacked: DataFrame) -> DataFrame:
    """`schemas.QUARANTINE`, and the place of the entry in its log."""
    entry = F.format_string("entry %s at offset %s: %s", "entry_id", "offset", "failure.reason")
    failed = unpacked.where("failure is not null")
    return failed.select(
        "failure.file", "failure.line", entry.alias("reason"), F.lit("").alias("raw"), "topic_id", "queue", "offset"
    )


def only_new(messages: DataFrame, known: DataFrame) -> DataFrame:
    """The messages that no other export has brought. Both have `topic_id`, `queue`, `offset`."""
    place = ["topic_id", "queue", "offset"]
    return messages.join(known.select(*place), place, "left_anti").select(*messages.columns)
