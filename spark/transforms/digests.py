"""The tables of the jobs, made as small as a page can show. Each ends with what matters most in front."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

_STEPS_MS = [minutes * 60_000 for minutes in (1, 5, 15, 60, 360, 1440, 10_080)]
"""The spans that one column of a chart over time may cover."""


def step_ms(span_ms: int, columns_max: int = 48) -> int:
    """The smallest step that divides the span into at most `columns_max` columns."""
    return next((step for step in _STEPS_MS if span_ms / step <= columns_max), _STEPS_MS[-1])


def by_group(backlog: DataFrame) -> DataFrame:
    """A row a group: all its queues and consumers together."""
    summed = [F.sum(name).alias(name) for name in ("ready", "in_flight", "retrying", "dead")]
    return (
        backlog.groupBy("topic", "group")
        .agg(*summed, F.max("oldest_age_ms").alias("oldest_age_ms"), F.max("last_pop_at_ms").alias("last_pop_at_ms"))
        .orderBy(F.desc("ready"), F.desc("oldest_age_ms"), "topic", "group")
    )


def by_topic(traffic: DataFrame) -> DataFrame:
    """A row a topic: what was stored, and when it was first and last."""
    return (
        traffic.groupBy("topic")
        .agg(
            F.sum("messages").alias("messages"),
            F.sum("body_bytes").alias("body_bytes"),
            F.min("minute_ms").alias("first_ms"),
            F.max("minute_ms").alias("last_ms"),
        )
        .orderBy(F.desc("messages"), "topic")
    )


def over_time(minutes: DataFrame, step_ms: int, value: Column) -> DataFrame:
    """`at_ms`, and the `value` of its rows: of each step in which there were any. `minutes` has `minute_ms`."""
    at_ms = (F.col("minute_ms") - F.col("minute_ms") % step_ms).alias("at_ms")
    return minutes.groupBy(at_ms).agg(value.alias("value")).orderBy("at_ms")


def calls_by_topic(requests: DataFrame) -> DataFrame:
    """A row a topic: the columns of `schemas.REQUESTS` of all its minutes together, the first and the last minute, and
    `wrong`: replies that are late or orphaned."""
    of_topic = F.col("minute_ms").isNull()
    names = [name for name in requests.columns if name not in ("topic", "topic_id", "minute_ms")]
    bounds = [F.min("minute_ms").alias("first_ms"), F.max("minute_ms").alias("last_ms")]
    topics = requests.groupBy("topic", "topic_id").agg(
        *bounds, *(F.max(F.when(of_topic, F.col(name))).alias(name) for name in names)
    )
    wrong = (F.col("late") + F.col("orphaned")).alias("wrong")
    return topics.select("*", wrong).orderBy(F.desc("wrong"), F.desc("timed_out"), F.desc("replied_p99_ms"), "topic")


def by_reason(letters: DataFrame) -> DataFrame:
    """A row for each reason of each group."""
    return (
        letters.groupBy("topic", "group", "reason")
        .agg(F.sum("letters").alias("letters"), F.max("hour_ms").alias("last_hour_ms"))
        .orderBy(F.desc("letters"), "topic", "group", "reason")
    )


def by_kind(cost: DataFrame) -> DataFrame:
    """A row for each kind of item of each topic."""
    summed = [F.sum(name).alias(name) for name in ("items", "bytes", "usd_per_month", "write_usd", "read_usd")]
    return cost.groupBy("topic", "kind").agg(*summed).orderBy(F.desc("bytes"), "topic", "kind")
