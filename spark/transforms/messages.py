"""From items to messages: every message of every log, unpacked.

Entries that hold their messages are unpacked where they are read; the others first meet their payloads, by the entry's
id, in the one shuffle that this takes."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from spark import schemas
from spark.transforms.unpacking import COLUMNS, ReadBlob, inline_entries, unpack

_PLACE = ("queue", "offset", "count", "stored_at_ms", "codec", "pieces", "file", "line")
_ID_BEFORE_DUE = 19
"""Letters of the id of a message that waited before its due time: the entry's id, the queue, `t`."""


def only_newest(items: DataFrame) -> DataFrame:
    """Of an incremental export: the last image of each key, and nothing of what was removed in the end."""
    newest = Window.partitionBy("pk", "sk").orderBy(F.desc("written_us"), F.desc("file"), F.desc("line"))
    numbered = items.withColumn("_number", F.row_number().over(newest))
    return numbered.where((F.col("_number") == 1) & ~F.col("is_deleted")).select(*items.columns)


def unpacked_inline(items: DataFrame) -> DataFrame:
    """The messages that lie in their segments: `unpacking.COLUMNS`."""
    segments = items.where("kind = 'segment' and segment is not null").select("topic_id", "segment", "file", "line")
    return segments.mapInArrow(_unpack_inline, COLUMNS)


def _unpack_inline(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield from unpack(inline_entries(batch))


def unpacked_elsewhere(items: DataFrame, read_blob: ReadBlob | None = None) -> DataFrame:
    """The messages that lie in payload items, or in S3: `unpacking.COLUMNS`."""

    def unpack_all(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield from unpack(batch, read_blob)

    return items.transform(pointing_entries).mapInArrow(unpack_all, COLUMNS)


def pointing_entries(items: DataFrame) -> DataFrame:
    """The entries with their messages elsewhere, each with its `data`, put together of its payload items; null when not
    all of them are there, or they are in S3."""
    is_wanted = "(kind = 'segment' and segment is not null) or (kind = 'payload' and payload is not null)"
    parts = items.where(is_wanted).select("topic_id", F.explode(_parts()).alias("part"))
    parts = parts.select("topic_id", "part.*")
    together = parts.groupBy("topic_id", "entry_id").agg(
        F.collect_list("place").alias("places"), F.array_sort(F.collect_list("piece")).alias("pieces")
    )
    placed = together.select("topic_id", "entry_id", F.explode("places").alias("place"), "pieces")
    data = F.aggregate("pieces.data", F.unhex(F.lit("")), lambda all_, piece: F.concat(all_, piece))
    is_whole = (F.col("place.pieces") > 0) & (
        F.col("pieces.piece") == F.sequence(F.lit(0), F.greatest(F.col("place.pieces") - 1, F.lit(0)))
    )
    return placed.select("topic_id", "entry_id", "place.*", F.when(is_whole, data).alias("data"))


def _parts() -> Column:
    """Of a segment, the places of the entries that point elsewhere; of a payload, the piece that it is."""
    piece = F.struct("payload.piece", "payload.data")
    place = _place(F.col("segment.entries")[0], F.lit(0))
    of_payload = F.array(_part(F.col("payload.entry_id"), F.when(F.lit(False), place), piece))
    of_segment = F.filter(
        F.transform(
            "segment.entries", lambda entry, at: _part(entry["id"], _place(entry, at), F.when(F.lit(False), piece))
        ),
        lambda part: part["place"]["pieces"].isNotNull(),
    )
    return F.when(F.col("kind") == "payload", of_payload).otherwise(of_segment)


def _part(entry_id: Column, place: Column, piece: Column) -> Column:
    return F.struct(entry_id.alias("entry_id"), place.alias("place"), piece.alias("piece"))


def _place(entry: Column, at: Column) -> Column:
    before = F.slice("segment.entries.count", F.lit(1), at)
    offset = F.col("segment.base") + F.aggregate(before, F.lit(0).cast("long"), lambda all_, count: all_ + count)
    columns = {"queue": F.col("segment.queue"), "offset": offset, "file": F.col("file"), "line": F.col("line")}
    return F.struct(*((columns[name] if name in columns else entry[name]).alias(name) for name in _PLACE))


def topic_names(items: DataFrame) -> DataFrame:
    """`topic_id`, `topic`."""
    return items.where("kind = 'topic' and topic is not null").select("topic_id", F.col("topic.name").alias("topic"))


def messages(unpacked: DataFrame, names: DataFrame) -> DataFrame:
    """`schemas.MESSAGES`, of what was unpacked. A topic without a name is gone: its messages are left out."""
    entry_id = F.lower(F.hex("entry_id"))
    own_id = F.concat(entry_id, F.lower(F.lpad(F.hex("queue"), 2, "0")), F.lower(F.hex("offset")))
    due = F.conv(F.substring("delayed_id", _ID_BEFORE_DUE + 1, 16), 16, 10).cast("long")
    known = unpacked.where("reason is null").join(F.broadcast(names), "topic_id")
    made = known.withColumns(
        {
            "message_id": F.coalesce("delayed_id", own_id),
            "entry_id": entry_id,
            "due_ms": due,
            "date": F.to_date(F.timestamp_millis("stored_at_ms")),
        }
    )
    return made.select(*schemas.MESSAGES.names)


def failures(unpacked: DataFrame) -> DataFrame:
    """`schemas.QUARANTINE`, and the place of the entry in its log."""
    entry = F.concat(F.lit("entry "), F.lower(F.hex("entry_id")), F.lit(" at offset "), F.col("offset"))
    failed = unpacked.where("reason is not null")
    reason = F.concat(entry, F.lit(": "), F.col("reason"))
    return failed.select("file", "line", reason.alias("reason"), F.lit("").alias("raw"), "topic_id", "queue", "offset")


def only_new(found: DataFrame, known: DataFrame) -> DataFrame:
    """What no other export has brought. Both have `topic_id`, `queue`, `offset`."""
    return found.join(known.select("topic_id", "queue", "offset"), ["topic_id", "queue", "offset"], "left_anti").select(
        *found.columns
    )
