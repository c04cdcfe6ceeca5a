"""The outcomes of requests, and the duration of each step."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark import schemas
from spark.transforms.audit.findings import Moment, is_past
from spark.transforms.audit.log import topics
from spark.transforms.items import Items
from spark.transforms.traffic import MINUTE_MS, only_between

HOUR_MS = 3_600_000
KEPT_MS = 25 * HOUR_MS
"""How long after the call's deadline the service keeps a reply or a time-out: an hour in which clients can fetch it,
and a day."""
TIMEOUT_MS_MAX = HOUR_MS

_ACCURACY = 10_000
"""The accuracy of a percentile: its rank is right to a ten-thousandth, whatever the number of calls."""
_STEPS = {"taken": ("asked", "taken"), "handled": ("taken", "replied"), "replied": ("asked", "replied")}
_PERCENTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
_TOPIC = ["topic", "topic_id"]


def calls(messages: DataFrame, items: Items, moment: Moment) -> DataFrame:
    """A row for each call whose reply, if any, the service still keeps: `topic`, `topic_id`, `asked_at_ms`,
    `taken_at_ms`, `replied_at_ms` (null: not known, or it did not happen), `is_timed_out`, `is_late`, `is_orphaned`.

    `messages`: rows of `schemas.MESSAGES`, which may be more than the export has. Calls of deleted topics are left
    out."""
    asked = only_between(messages, asked_from_ms(moment), None).where("correlation_id is not null")
    requests = asked.select(
        "topic_id",
        nonce(F.col("correlation_id")).alias("nonce"),
        F.col("stored_at_ms").alias("request_at_ms"),
        F.col("reply_by_ms").alias("request_by_ms"),
    )
    both = requests.join(_replies(items), ["topic_id", "nonce"], "full").withColumns(
        {
            "asked_at_ms": F.coalesce("asked_at_ms", "request_at_ms"),
            "reply_by_ms": F.coalesce("reply_by_ms", "request_by_ms"),
        }
    )
    known = both.where(F.col("reply_by_ms") > moment.now_ms - KEPT_MS).join(F.broadcast(topics(items)), "topic_id")
    return known.select(*_TOPIC, "asked_at_ms", "taken_at_ms", "replied_at_ms", *_outcomes(moment))


def asked_from_ms(moment: Moment) -> int:
    """Requests sent before this instant do not count."""
    return moment.now_ms - KEPT_MS - TIMEOUT_MS_MAX


def nonce(correlation_id: Column) -> Column:
    """The part of a correlation id that is in the key of its reply: 8 bytes from the eleventh on."""
    nine = F.translate(F.substring(correlation_id, 13, 12), "-_", "+/")
    return F.substring(F.try_to_binary(nine, F.lit("base64")), 2, 8)


def _replies(items: Items) -> DataFrame:
    """The replies and time-outs."""
    is_reply = F.col("reply.entry").isNotNull()
    return items["reply"].select(
        "topic_id",
        "reply.nonce",
        "reply.asked_at_ms",
        "reply.reply_by_ms",
        "reply.taken_at_ms",
        F.when(is_reply, F.col("reply.at_ms")).alias("replied_at_ms"),
        (~is_reply).alias("has_timed_out"),
    )


def _outcomes(moment: Moment) -> list[Column]:
    """A reply is orphaned if its request is in no log, though it cannot have expired there."""
    asked_at_ms, replied_at_ms, reply_by_ms = (F.col(f"{name}_ms") for name in ("asked_at", "replied_at", "reply_by"))
    has_ended = F.coalesce("has_timed_out", F.lit(False)) | moment.has_seen(reply_by_ms)
    is_logged = F.col("request_at_ms").isNotNull() | is_past(asked_at_ms, moment.after_ms)
    return [
        (replied_at_ms.isNull() & has_ended).alias("is_timed_out"),
        F.coalesce(replied_at_ms >= reply_by_ms, F.lit(False)).alias("is_late"),
        (replied_at_ms.isNotNull() & ~is_logged & moment.has_seen(asked_at_ms)).alias("is_orphaned"),
    ]


def requests(calls: DataFrame) -> DataFrame:
    """`schemas.REQUESTS`, from `calls`: by topic and minute, and by topic."""
    spans = {name: F.col(f"{end}_at_ms") - F.col(f"{start}_at_ms") for name, (start, end) in _STEPS.items()}
    latencies = [
        F.percentile_approx(span, rank, _ACCURACY).alias(f"{name}_{percentile}_ms")
        for name, span in spans.items()
        for percentile, rank in _PERCENTILES.items()
    ]
    highest = [F.max(span).alias(f"{name}_max_ms") for name, span in spans.items()]
    is_replied = F.col("replied_at_ms").isNotNull()
    counts = {
        "replied": is_replied,
        "timed_out": F.col("is_timed_out"),
        "waiting": ~is_replied & ~F.col("is_timed_out"),
        "late": F.col("is_late"),
        "orphaned": F.col("is_orphaned"),
    }
    minute_ms = F.col("asked_at_ms") - F.col("asked_at_ms") % MINUTE_MS
    grouped = calls.withColumn("minute_ms", minute_ms).groupingSets(
        [[F.col(name) for name in (*_TOPIC, "minute_ms")], [F.col(name) for name in _TOPIC]],
        *_TOPIC,
        "minute_ms",
    )
    counted = [F.count_if(which).alias(name) for name, which in counts.items()]
    made = grouped.agg(F.count("*").alias("calls"), *counted, *latencies, *highest)
    return made.select(*schemas.REQUESTS.fieldNames())
