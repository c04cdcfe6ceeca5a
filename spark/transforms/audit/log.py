"""Checks the log of each queue: a chain of segments without hole or overlap."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from spark.transforms.audit.findings import Moment, finding, findings, is_past, proved
from spark.transforms.items import Items

SEGMENT_FULL_BYTES = 700
"""A segment with entries of this many bytes is full: the next message begins a new one. See docs/table.md."""


def topics(items: Items) -> DataFrame:
    """The columns of each topic: `topic_id`, `topic`, `queues`, `readers`, `most`, `retention_ms`, `past_retentions`,
    `created_at_ms`."""
    return items["topic"].select("topic_id", F.col("topic.name").alias("topic"), *_of_topic())


def _of_topic() -> list[str]:
    names = ("queues", "readers", "most", "retention_ms", "past_retentions", "created_at_ms")
    return [f"topic.{name}" for name in names]


def segments(items: Items) -> DataFrame:
    """Each segment: `topic_id`, `queue`, `base`, `end`, `ttl`; `messages` of its entries; `first_at_ms`, `last_at_ms`:
    when they were stored; `is_full`; `is_closed`."""
    entries = F.col("segment.entries")
    return items["segment"].select(
        "topic_id",
        "segment.queue",
        "segment.base",
        "segment.end",
        "ttl",
        F.aggregate(entries, F.lit(0).cast("long"), lambda total, entry: total + entry["count"]).alias("messages"),
        F.array_min(entries["stored_at_ms"]).alias("first_at_ms"),
        F.array_max(entries["stored_at_ms"]).alias("last_at_ms"),
        (F.col("segment.bytes") >= SEGMENT_FULL_BYTES).alias("is_full"),
        F.col("segment.closed").alias("is_closed"),
    )


def entries(items: Items) -> DataFrame:
    """Each entry of each segment: `topic_id`, `queue`, and the fields of `item_schemas.SEGMENT_ENTRY`."""
    segments = items["segment"]
    return segments.select("topic_id", "segment.queue", F.inline("segment.entries"))


def ends(items: Items) -> DataFrame:
    """Each queue that has a log: `topic_id`, `queue`, `first` and `end` of its segments, `last_at_ms`, when its last
    message was stored, `is_dense`: they have no gap and no overlap, by the sum of their sizes."""
    last_at_ms = F.array_max("segment.entries.stored_at_ms").alias("last_at_ms")
    held = items["segment"].select("topic_id", "segment.queue", "segment.base", "segment.end", last_at_ms)
    return (
        held.groupBy("topic_id", "queue")
        .agg(
            F.min("base").alias("first"),
            F.max("end").alias("end"),
            F.max("last_at_ms").alias("last_at_ms"),
            F.sum(held.end - held.base).alias("held"),
        )
        .select(
            "topic_id",
            "queue",
            "first",
            "end",
            "last_at_ms",
            (F.col("end") - F.col("first") == F.col("held")).alias("is_dense"),
        )
    )


def of_logs(items: Items, moment: Moment) -> DataFrame:
    """`segment_end`: a segment ends where its entries do. `overlap`, `hole`: the next segment begins there. `head`: the
    first segment begins at 0, unless messages before it may have expired. `queue`: the topic has, or had, this queue.
    `closed`: a closed log has no later segment. `left_open`: the log of a queue that has left is closed."""
    order = Window.partitionBy("topic_id", "queue").orderBy("base")
    prior = [
        F.lag(name).over(order).alias(f"prior_{name}") for name in ("end", "is_full", "last_at_ms", "ttl", "is_closed")
    ]
    is_last = F.lead("base").over(order).isNull().alias("is_last")
    chain = segments(items).select("*", *prior, is_last).join(F.broadcast(topics(items)), "topic_id")
    base, end, prior_end = F.col("base"), F.col("end"), F.col("prior_end")
    entries_end = base + F.col("messages")
    is_headless = prior_end.isNull() & (base > 0) & ~is_past(F.col("created_at_ms"), moment.now_ms)
    said_end = F.format_string("ends at %d; its entries end at %d", end, entries_end)
    said_head = F.lit("the log begins here, though nothing can have expired")
    said_queue = F.format_string("a log, but the topic had %d queues at most", F.col("most"))
    has_left = (F.col("queue") >= F.col("readers")) & (F.col("queue") < F.col("most"))
    is_open = has_left & F.col("is_last") & ~F.col("is_closed")
    said_open = F.format_string("the log is open, but %d queues are read", F.col("readers"))
    return findings(
        chain,
        finding("segment_end", end != entries_end, base, said_end),
        finding("overlap", prior_end > base, base, F.format_string("the segment before it ends at %d", prior_end)),
        _hole(moment),
        finding("head", is_headless, base, said_head, proved(F.size("past_retentions") == 0)),
        finding("queue", (F.col("queue") >= F.col("most")) & prior_end.isNull(), base, said_queue),
        finding(
            "closed",
            F.coalesce("prior_is_closed", F.lit(False)),
            base,
            F.lit("the segment before it is closed"),
            proved(moment.has_seen(F.col("first_at_ms"))),
        ),
        finding("left_open", is_open, base, said_open, proved(moment.is_still(F.col("created_at_ms")))),
    )


def _hole(moment: Moment) -> Column:
    """The missing messages were stored after the segment before them: if that has not expired, neither have they.
    Segments are removed oldest first; a segment before the hole may have been read just before its removal."""
    prior_end, base = F.col("prior_end"), F.col("base")
    before_gone = moment.has_expired(F.col("prior_last_at_ms"), F.col("prior_ttl"))
    after_gone = moment.has_expired(F.col("first_at_ms"), F.col("ttl"))
    is_proved = ~before_gone & (F.col("prior_is_full") | moment.has_seen(F.col("first_at_ms")))
    said = F.format_string("offsets %d to %d are missing", prior_end, base - 1)
    return finding("hole", (prior_end < base) & ~(before_gone & after_gone), prior_end, said, proved(is_proved))
