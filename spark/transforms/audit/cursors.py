"""Checks the positions of groups against their logs, and the marks of leases."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark.transforms.audit.findings import Moment, finding, findings, is_past, proved
from spark.transforms.audit.log import ends, topics
from spark.transforms.items import Items

ACKED, MOVED = "61", "6D"
"""The letters that a mark begins with, `a` and `m`, in hex. After it comes a bit mask, its first byte the lowest."""


def cursors(items: Items) -> DataFrame:
    """The cursors of existing groups, with `mode` and `created_at_ms` of the group; `pk` and `sk` identify a cursor.
    Cursors of deleted groups are left out."""
    groups = items["group"].select(
        "topic_id",
        F.col("group.name").alias("group"),
        F.col("group.group_id").alias("group_id"),
        F.col("group.mode").alias("mode"),
        F.col("group.created_at_ms").alias("created_at_ms"),
    )
    standing = items["cursor"].select("topic_id", "pk", "sk", "cursor.*")
    return standing.join(F.broadcast(groups), ["topic_id", "group", "group_id"])


def owed(lease: Column) -> Column:
    """The offsets that a lease owes: those without a mark."""
    indexes = F.sequence(F.lit(0), lease["count"] - 1)
    return F.transform(
        F.filter(indexes, lambda index: ~F.exists(lease["marks"], lambda mark: _names(mark, index))),
        lambda index: lease["start"] + index,
    )


def _names(mark: Column, index: Column) -> Column:
    """Whether a mark names the message at an index of its lease; a mask ends with its last byte that is not 0."""
    byte = F.conv(F.substr(F.hex(mark), F.lit(3) + (index - index % 8) / 4, F.lit(2)), 16, 10).cast("int")
    return F.coalesce(F.getbit(byte, index % 8) == 1, F.lit(False))


def _is_garbled(lease: Column) -> Column:
    def wrong(mark: Column) -> Column:
        letter = F.substr(F.hex(mark), F.lit(1), F.lit(2))
        beyond = F.sequence(lease["count"], F.greatest(lease["count"], (F.length(mark) - 1) * 8))
        return ~letter.isin(ACKED, MOVED) | F.exists(beyond, lambda index: _names(mark, index))

    return F.exists(lease["marks"], wrong)


def of_cursors(items: Items, moment: Moment) -> DataFrame:
    """`next_beyond_end`: no cursor is beyond the end of its log. `lease_beyond_next`: no lease has messages that were
    not taken. `lease_marks`: a mark names messages of its own lease. `cursor_hint`: reading begins at or before `next`.
    `cursor_mode`: cursors belong to consumers in broadcast groups, and only there."""
    known = cursors(items).join(F.broadcast(ends(items)), ["topic_id", "queue"], "left")
    next_, log_end, hint = F.col("next"), F.coalesce(F.col("end"), F.lit(0)), F.col("segment")
    beyond, garbled = F.filter("leases", _is_beyond), F.filter("leases", _is_garbled)
    is_shared = (F.col("consumer") == "") == (F.col("mode") == "broadcast")

    def said(text: str, *values: Column) -> Column:
        return F.concat(named(), F.format_string(text, *values))

    return findings(
        known,
        finding(
            "next_beyond_end",
            next_ > log_end,
            next_,
            said(" stands here; the log ends at %d", log_end),
            proved(moment.has_seen(_stood_since())),
        ),
        finding("cursor_hint", (next_ < 0) | (hint > next_), next_, said(" stands here, and reads from %d", hint)),
        finding("lease_beyond_next", F.size(beyond) > 0, next_, said(" has leases beyond this: %s", _tokens(beyond))),
        finding("lease_marks", F.size(garbled) > 0, next_, said(" has leases with wrong marks: %s", _tokens(garbled))),
        finding("cursor_mode", is_shared, next_, said(" is of mode %s", F.col("mode"))),
    )


def _is_beyond(lease: Column) -> Column:
    return (lease["start"] < 0) | (lease["count"] < 1) | (lease["start"] + lease["count"] > F.col("next"))


def named() -> Column:
    """The group of the finding, and in a broadcast group the consumer."""
    consumer = F.when(F.col("consumer") == "", "").otherwise(F.concat(F.lit(", consumer "), F.col("consumer")))
    return F.concat(F.lit("group "), F.col("group"), consumer)


def _tokens(leases: Column) -> Column:
    return F.array_join(F.transform(leases, lambda lease: lease["token"]), ", ")


def _stood_since() -> Column:
    """When the cursor reached its position at the latest; null: unknown. A claim sets `segment` and `at_ms`, and a
    reset removes `segment`. A cursor without a claim is at its group's start, for which the group read the ends of the
    logs."""
    claimed = F.col("segment").isNotNull() | (F.col("epoch") == 0)
    by = F.coalesce(F.col("at_ms"), F.col("created_at_ms"))
    return F.when(claimed, by).when(F.col("at_ms").isNull(), F.col("created_at_ms"))


def of_groups(items: Items, moment: Moment) -> DataFrame:
    """`start_beyond_end`: no group begins beyond the end of a log."""
    groups = items["group"].select(
        "topic_id", "group.name", "group.created_at_ms", F.posexplode("group.starts").alias("queue", "start")
    )
    known = groups.join(F.broadcast(ends(items)), ["topic_id", "queue"], "left")
    start, log_end = F.col("start"), F.coalesce(F.col("end"), F.lit(0))
    said = F.format_string("group %s starts here; the log ends at %d", F.col("name"), log_end)
    severity = proved(moment.has_seen(F.col("created_at_ms")))
    return findings(known, finding("start_beyond_end", start > log_end, start, said, severity))


def of_left_queues(items: Items, moment: Moment) -> DataFrame:
    """`left_unsettled`: a queue leaves its topic when every group has taken its messages, or they have expired. (If a
    redrive brings messages back later, the topic reads the queue again.)"""
    settings = topics(items).select("topic_id", "readers", "retention_ms", "past_retentions")
    standing = cursors(items).where("mode != 'broadcast'").drop("created_at_ms")
    left = standing.join(F.broadcast(settings), "topic_id").where("queue >= readers")
    known = left.join(F.broadcast(ends(items)), ["topic_id", "queue"])
    next_, log_end = F.col("next"), F.col("end")
    is_unsettled = (next_ < log_end) & ~is_past(F.col("last_at_ms"), moment.now_ms)
    said = F.concat(named(), F.format_string(" stands here; the log ends at %d, and the queue has left", log_end))
    severity = proved(moment.is_still(F.coalesce("at_ms", F.lit(0))))
    return findings(known, finding("left_unsettled", is_unsettled, next_, said, severity))
