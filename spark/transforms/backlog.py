"""The progress of groups, in the terms and numbers of the service."""

from __future__ import annotations

from typing import cast

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, StringType, StructType

from spark import item_schemas, schemas
from spark.transforms.audit.cursors import owed
from spark.transforms.audit.findings import is_past
from spark.transforms.audit.log import ends, entries, topics
from spark.transforms.items import Items

IDLE_CONSUMER_MS = 7 * 24 * 3_600_000
"""How long after its last pop a broadcast group drops a consumer."""

_WHOSE = ["topic_id", "group_id", "consumer"]
_PLACE = [*_WHOSE, "queue"]


def backlog(items: Items, now_ms: int) -> DataFrame:
    """A row for each topic, group, consumer and queue: `schemas.BACKLOG`. A log ends at the end that the export shows,
    or at the position of a cursor if that is later."""
    standing = (
        _places(items, now_ms)
        .join(_cursors(items), _PLACE, "left")
        .join(_held(items), _PLACE, "left")
        .join(F.broadcast(_bounds(items, now_ms)), ["topic_id", "queue"], "left")
    )
    counted = standing.transform(_with_position).transform(_with_owing, now_ms).transform(_with_counts, now_ms)
    age = (F.lit(now_ms) - F.col("oldest_at_ms")).alias("oldest_age_ms")
    aged = counted.transform(_with_oldest, items).select("*", age)
    return aged.select(*schemas.BACKLOG.fieldNames())


def _places(items: Items, now_ms: int) -> DataFrame:
    """The places that a group can have a position in: each queue of its topic, and in a broadcast group each queue for
    each consumer. A broadcast group without consumers has one place per queue, for its first consumer."""
    groups = items["group"].select(
        "topic_id", F.col("group.name").alias("group"), "group.group_id", "group.starts", "group.mode", "group.ordered"
    )
    whose = _consumers(items, now_ms).join(groups, ["topic_id", "group_id"], "left_semi")
    awaits = groups.join(whose.where("not is_forgotten"), ["topic_id", "group_id"], "left_anti")
    shared = awaits.select("topic_id", "group_id", F.lit("").alias("consumer"), F.lit(False).alias("is_forgotten"))
    return (
        groups.join(whose.unionByName(shared), ["topic_id", "group_id"])
        .join(F.broadcast(topics(items)), "topic_id")
        .select("*", F.explode(F.sequence(F.lit(0), F.col("readers") - 1)).alias("queue"))
        .select("topic", "group", "starts", "ordered", "is_forgotten", *_PLACE)
    )


def _consumers(items: Items, now_ms: int) -> DataFrame:
    """The consumers of broadcast groups. A consumer is dropped if it was idle for too long, or if none of its cursors
    has an instant: these only count its dead letters."""
    seen = items["cursor"].where("cursor.consumer != ''").select("topic_id", "cursor.*")
    is_idle = F.max("at_ms") < now_ms - IDLE_CONSUMER_MS
    return seen.groupBy(*_WHOSE).agg(F.coalesce(is_idle, F.lit(True)).alias("is_forgotten"))


def _cursors(items: Items) -> DataFrame:
    fields = [f"cursor.{name}" for name in (*_PLACE[1:], "next", "dead", "leases", "pages")]
    at_ms = F.col("cursor.at_ms").alias("last_pop_at_ms")
    return items["cursor"].select("topic_id", *fields, at_ms)


def _held(items: Items) -> DataFrame:
    """The content of a cursor's retry pages: `held`, as structs `page_id`, `retries`."""
    page_id = F.explode("cursor.pages.page_id").alias("page_id")
    noted = items["cursor"].select("topic_id", *[f"cursor.{name}" for name in _PLACE[1:]], page_id)
    pages = items["retry_page"].select("topic_id", "retry_page.*")
    stored = noted.join(pages, ["topic_id", "group_id", "queue", "page_id"])
    return stored.groupBy(*_PLACE).agg(F.collect_list(F.struct("page_id", "retries")).alias("held"))


def _bounds(items: Items, now_ms: int) -> DataFrame:
    """The bounds of each queue that has a log: `log_end`, and `first`, the first offset that has not expired."""
    logged = entries(items).join(
        F.broadcast(topics(items).select("topic_id", "retention_ms", "past_retentions")), "topic_id"
    )
    living = logged.where(~is_past(F.col("stored_at_ms"), now_ms))
    firsts = living.groupBy("topic_id", "queue").agg(F.min("offset").alias("first"))
    log_ends = ends(items).select("topic_id", "queue", F.col("end").alias("log_end"))
    first = F.coalesce("first", "log_end").alias("first")
    return log_ends.join(firsts, ["topic_id", "queue"], "left").select("topic_id", "queue", "log_end", first)


def _with_position(standing: DataFrame) -> DataFrame:
    """With `next` (without a cursor, the start of the group), `end`, and `untaken`: the first offset that no pop has
    taken; null: there is none."""
    none = F.lit(0).cast("long")
    next_ = F.coalesce("next", F.get("starts", F.col("queue")), none)
    end = F.greatest(F.coalesce("log_end", none), next_)
    untaken = F.greatest(F.coalesce("first", none), next_)
    return standing.withColumns({"next": next_, "end": end, "untaken": F.when(untaken < end, untaken)})


def _with_owing(standing: DataFrame, now_ms: int) -> DataFrame:
    """With `owing`: leases, including the retries of due retry pages, as structs `offsets`, `deadline_ms`, `parked`;
    and `noted`: retry pages that are not due or do not exist, of which only the cursor's note counts."""
    held = F.coalesce("held", F.array().cast(_HELD))
    pages = F.coalesce("pages", F.array().cast(_PAGES))

    def is_open(page: Column) -> Column:
        return (page["due_ms"] <= now_ms) & F.array_contains(held["page_id"], page["page_id"])

    due_ids = F.filter(pages, is_open)["page_id"]
    opened = F.filter(held, lambda page: F.array_contains(due_ids, page["page_id"]))
    retries = F.transform(F.flatten(opened["retries"]), _as_retry)
    leases = F.transform(F.coalesce("leases", F.array().cast(_LEASES)), _as_owing)
    live = F.filter(F.concat(leases, retries), lambda lease: F.size(lease["offsets"]) > 0)
    return standing.withColumns({"owing": live, "noted": F.filter(pages, lambda page: ~is_open(page))})


_CURSOR = cast(StructType, item_schemas.ITEMS["cursor"].dataType)
_LEASES, _PAGES = _CURSOR["leases"].dataType, _CURSOR["pages"].dataType
_HELD = ArrayType(StructType().add("page_id", StringType()).add("retries", ArrayType(item_schemas.LEASE)))


def _as_owing(lease: Column) -> Column:
    parked = F.startswith(lease["token"], F.lit("~"))
    return F.struct(owed(lease).alias("offsets"), lease["deadline_ms"].alias("deadline_ms"), parked.alias("parked"))


def _as_retry(retry: Column) -> Column:
    offsets = F.sequence(retry["start"], retry["start"] + retry["count"] - 1)
    return F.struct(offsets.alias("offsets"), retry["deadline_ms"].alias("deadline_ms"), F.lit(True).alias("parked"))


def _with_counts(standing: DataFrame, now_ms: int) -> DataFrame:
    """With the counts of `schemas.BACKLOG`. Messages of expired leases, due retries and messages set aside count as
    ready; messages that expired before a pop took them do not. For a dropped consumer, only the dead letters count."""
    none, owing, noted = F.lit(0).cast("long"), F.col("owing"), F.col("noted")
    holds = ~F.col("is_forgotten")

    def is_due(lease: Column) -> Column:
        return (lease["deadline_ms"] <= now_ms) | (lease["deadline_ms"] == item_schemas.SET_ASIDE_UNTIL_MS)

    untaken = F.coalesce(F.col("end") - F.col("untaken"), none)
    ready = untaken + _messages(F.filter(owing, is_due))
    in_flight = _messages(F.filter(owing, lambda lease: ~is_due(lease) & ~lease["parked"]))
    parked = _messages(F.filter(owing, lambda lease: ~is_due(lease) & lease["parked"]))
    paged = F.aggregate(noted, none, lambda total, page: total + page["count"])
    lowest = [F.array_min(F.flatten(owing["offsets"])), F.array_min(noted["low"]), F.col("untaken")]
    committing = F.filter(owing, lambda lease: F.col("ordered") | ~lease["parked"])
    return standing.withColumns(
        {
            "ready": F.when(holds, ready).otherwise(0),
            "in_flight": F.when(holds, in_flight).otherwise(0),
            "retrying": F.when(holds, parked + paged).otherwise(0),
            "dead": F.coalesce("dead", none),
            "committed": F.least("next", F.array_min(F.flatten(committing["offsets"]))),
            "oldest_offset": F.when(holds, F.least(*lowest)),
        }
    ).withColumn("lag", F.col("ready") + F.col("in_flight"))


def _messages(leases: Column) -> Column:
    return F.size(F.flatten(leases["offsets"])).cast("long")


def _with_oldest(standing: DataFrame, items: Items) -> DataFrame:
    """With `oldest_at_ms`: when the entry with `oldest_offset` was stored."""
    place = ["topic_id", "queue", "oldest_offset"]
    wanted = standing.where("oldest_offset is not null").select(*place).distinct()
    logged = entries(items).select("topic_id", "queue", "offset", "count", "stored_at_ms")
    within = F.col("oldest_offset").between(F.col("offset"), F.col("offset") + F.col("count") - 1)
    holding = logged.join(wanted, ["topic_id", "queue"]).where(within)
    stored = holding.groupBy(*place).agg(F.min("stored_at_ms").alias("oldest_at_ms"))
    return standing.join(stored, place, "left")
