"""Delayed messages: how late they were delivered, and which ones still wait."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark import schemas
from spark.transforms.audit.log import topics
from spark.transforms.items import Items

BOUNDS_MS = (0, 10, 100, 1000, 10_000, 60_000, 600_000, 3_600_000)
"""The upper ends of the histogram's bars. Below the first: early."""

HOUR_MS = 3_600_000
_ACCURACY = 10_000
"""The accuracy of a percentile: its rank is right to a ten-thousandth, whatever the number of messages."""
_TOPIC = ["topic", "topic_id"]
_DAY = [*_TOPIC, "date"]


def with_lateness(messages: DataFrame) -> DataFrame:
    """The delayed messages in the log, with `late_ms`: how long after their due time they entered it; negative: before
    that."""
    waited = messages.where("due_ms is not null")
    return waited.select(*_DAY, (F.col("stored_at_ms") - F.col("due_ms")).alias("late_ms"))


def lateness(late: DataFrame) -> DataFrame:
    """`schemas.LATENESS`, from `with_lateness`: by topic and `date`."""
    p50, p90, p99 = (
        F.percentile_approx("late_ms", rank, _ACCURACY).alias(f"p{int(100 * rank)}_ms") for rank in (0.5, 0.9, 0.99)
    )
    early, latest = F.count_if(F.col("late_ms") < 0).alias("early"), F.max("late_ms").alias("max_ms")
    delivered = late.groupBy(*_DAY).agg(F.count("*").alias("messages"), early, p50, p90, p99, latest)
    return delivered.select(*schemas.LATENESS.fieldNames(), "date")


def histogram(late: DataFrame) -> DataFrame:
    """`schemas.LATENESS_HISTOGRAM`, by topic and `date`, without empty bars."""
    bounds = F.array(*[F.lit(bound).cast("long") for bound in BOUNDS_MS])
    bar = F.size(F.filter(bounds, lambda bound: bound <= F.col("late_ms")))
    counted = late.groupBy(*_DAY, bar.alias("bar")).agg(F.count("*").alias("messages"))
    below = F.get(bounds, F.col("bar")).alias("below_ms")
    from_ms = F.get(bounds, F.col("bar") - 1).alias("from_ms")
    return counted.select("*", from_ms, below).select(*schemas.LATENESS_HISTOGRAM.fieldNames(), "date")


def only_waiting(items: Items, now_ms: int) -> DataFrame:
    """The messages that wait in an export: `topic`, `topic_id`, `due_ms`, `is_overdue`. Skips cancelled messages, and
    those that a decision has delivered but whose item was not removed yet."""
    place = ["topic_id", "queue", "due_ms", "entry_id"]
    delayed = items["delayed"].where("not coalesce(delayed.cancelled, false)")
    due = delayed.select("topic_id", "delayed.queue", "delayed.due_ms", F.col("delayed.entry.id").alias("entry_id"))
    slots = items["decision"].select(
        "topic_id", "decision.queue", F.inline("decision.slots").alias("due_ms", "entry_id")
    )
    waits = due.join(slots, place, "left_anti").join(F.broadcast(topics(items)), "topic_id")
    return waits.select(*_TOPIC, "due_ms", (F.col("due_ms") <= now_ms).alias("is_overdue"))


def waiting(waits: DataFrame) -> DataFrame:
    """`schemas.WAITING`, from `only_waiting`."""
    hour = (F.col("due_ms") - F.col("due_ms") % HOUR_MS).alias("due_hour_ms")
    counted = waits.groupBy(*_TOPIC, hour).agg(
        F.count("*").alias("messages"),
        F.count_if("is_overdue").alias("overdue"),
        F.min("due_ms").alias("first_due_ms"),
    )
    return counted.select(*schemas.WAITING.fieldNames())
