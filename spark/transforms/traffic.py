"""When messages were stored, and how evenly they are spread over the queues, from rows of `schemas.MESSAGES`. All by
day: rows have the `date` of their messages, beside the columns of their schema."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from spark import schemas

MINUTE_MS = 60_000
SECOND_MS = 1000

PARTITION_UNITS = 1000
"""Write units a second of one partition key, such as the log of a queue."""
UNITS_PER_APPEND = 2
"""DynamoDB charges an append for the whole segment: one unit up to a kilobyte, two if the last entry exceeds it."""
TARGET_LOAD = 0.5
"""The share of those units that a queue should use in its busiest second, to leave room for retries and growth."""
APPENDS_PER_SECOND = int(PARTITION_UNITS * TARGET_LOAD / UNITS_PER_APPEND)
QUEUES_MAX = 128

_DAY = ["topic", "topic_id", "date"]


def only_between(messages: DataFrame, from_ms: int | None, to_ms: int | None) -> DataFrame:
    """The messages stored at `from_ms` or later, and before `to_ms`; None: without this bound. Whole days outside the
    bounds are not read."""
    for bound, is_lower in ((from_ms, True), (to_ms, False)):
        if bound is not None:
            day = F.to_date(F.timestamp_millis(F.lit(bound)))
            stored, date = F.col("stored_at_ms"), F.col("date")
            within = (stored >= bound) & (date >= day) if is_lower else (stored < bound) & (date <= day)
            messages = messages.where(within)
    return messages


def body_bytes() -> Column:
    return F.coalesce(F.octet_length("body"), F.lit(0)).cast("long")


def traffic(messages: DataFrame) -> DataFrame:
    """Messages by topic, queue, minute and tag: `schemas.TRAFFIC`."""
    stored = F.col("stored_at_ms")
    minute = (stored - stored % MINUTE_MS).alias("minute_ms")
    counted = messages.groupBy(*_DAY, "queue", minute, "tag").agg(*_totals())
    return counted.select(*schemas.TRAFFIC.fieldNames(), "date")


def _totals() -> list[Column]:
    return [F.count("*").alias("messages"), F.sum(body_bytes()).alias("body_bytes")]


def hot_keys(messages: DataFrame, top: int) -> DataFrame:
    """The `top` keys of each topic: `schemas.HOT_KEYS`. Ties are broken by name."""
    by_key = messages.groupBy(*_DAY, "key").agg(*_totals())
    day = Window.partitionBy("topic_id", "date")
    share = (F.col("messages") / F.sum("messages").over(day)).alias("share")
    rank = F.row_number().over(day.orderBy(F.isnull("key"), F.desc("messages"), "key")).alias("rank")
    ranked = by_key.select("*", share, rank).where((F.col("rank") <= top) & F.col("key").isNotNull())
    return ranked.select(*schemas.HOT_KEYS.fieldNames(), "date")


def skew(messages: DataFrame, topics: DataFrame) -> DataFrame:
    """How evenly messages are spread over the queues of each topic: `schemas.SKEW`. `topics`: `topic_id` and `queues`
    of the existing topics; for a deleted topic, the queues of its messages count.

    The suggested number of queues is the one that would take the appends of the busiest second of any queue, times
    `queues`, at `APPENDS_PER_SECOND` each. It is never below `queues`."""
    summed = (
        _of_queues(messages)
        .groupBy(*_DAY)
        .agg(
            F.sum("in_queue").alias("messages"),
            F.max("queue").alias("last_queue"),
            F.max_by("queue", F.struct("in_queue", -F.col("queue"))).alias("fullest_queue"),
            F.max("in_queue").alias("most"),
            F.sum(F.pow("in_queue", F.lit(2))).alias("squares"),
            F.max("peak").alias("peak_appends"),
        )
        .join(F.broadcast(topics.select("topic_id", F.col("queues").alias("has"))), "topic_id", "left")
    )
    queues = F.greatest(F.coalesce("has", F.lit(1)), F.col("last_queue") + 1)
    mean = F.col("messages") / queues
    variance = F.greatest(F.col("squares") / queues - mean * mean, F.lit(0.0))
    asked = F.ceil(queues * F.col("peak_appends") / APPENDS_PER_SECOND)
    suggested = F.least(F.greatest(asked, queues), F.lit(QUEUES_MAX)).cast("int")
    named = {"queues": queues, "max_over_mean": F.col("most") / mean, "variation": F.sqrt(variance) / mean}
    return summed.select(
        "*", *[value.alias(name) for name, value in named.items()], suggested.alias("suggested_queues")
    ).select(*schemas.SKEW.fieldNames(), "date")


def _of_queues(messages: DataFrame) -> DataFrame:
    """`in_queue`: the messages of a queue; `peak`: the entries that went into it in its busiest second. All messages of
    an entry are of one instant."""
    second = F.floor(F.col("stored_at_ms") / SECOND_MS).alias("second")
    counted = F.count("*").alias("held")
    entries = messages.groupBy(*_DAY, "queue", second, "entry_id").agg(counted)
    seconds = entries.groupBy(*_DAY, "queue", "second").agg(F.count("*").alias("appends"), F.sum("held").alias("held"))
    return seconds.groupBy(*_DAY, "queue").agg(F.sum("held").alias("in_queue"), F.max("appends").alias("peak"))
