"""Checks the decisions about delayed messages: one chain per queue, and each message in at most one decision."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from spark.transforms.audit.findings import Moment, finding, findings, is_past, proved
from spark.transforms.audit.log import topics
from spark.transforms.items import Items


def decisions(items: Items) -> DataFrame:
    """Each decision: `topic_id`, `queue`, `number`, `at_ms`, `slots`, `delivers`, `entry_id` of the entry that it
    delivers; and from its neighbours `prior_number`, `prior_at_ms`, `next_at_ms` (null: it is the newest, and perhaps
    not carried out yet)."""
    order = Window.partitionBy("topic_id", "queue").orderBy("number")
    made = items["decision"].select(
        "topic_id",
        "decision.queue",
        "decision.number",
        "decision.at_ms",
        "decision.slots",
        F.col("decision.entry").isNotNull().alias("delivers"),
        F.col("decision.entry.id").alias("entry_id"),
    )
    return made.select(
        "*",
        F.lag("number").over(order).alias("prior_number"),
        F.lag("at_ms").over(order).alias("prior_at_ms"),
        F.lead("at_ms").over(order).alias("next_at_ms"),
    )


def of_decisions(items: Items, moment: Moment) -> DataFrame:
    """`decision_hole`: no number is missing, as long as none can have expired. `decision_time`: times never
    decrease."""
    chain = decisions(items).join(F.broadcast(topics(items)), "topic_id")
    number, at_ms, prior_at_ms = F.col("number"), F.col("at_ms"), F.col("prior_at_ms")
    prior = F.coalesce(F.col("prior_number"), F.lit(0))
    is_kept = ~is_past(F.coalesce(prior_at_ms, F.col("created_at_ms")), moment.now_ms)
    hole = F.format_string("decision %d follows %d", number, prior)
    time = F.format_string("decision %d was made at %d, the one before at %d", number, at_ms, prior_at_ms)
    return findings(
        chain,
        finding("decision_hole", (number > prior + 1) & is_kept, None, hole, proved(moment.has_seen(at_ms))),
        finding("decision_time", at_ms < prior_at_ms, None, time),
    )


def of_waiting(items: Items, moment: Moment) -> DataFrame:
    """`decided_twice`: no message is in two decisions. Once the next decision is made: `still_waiting`: a message that
    a decision delivers has no item any longer; `not_cancelled`: the item of a message that it cancels is marked."""
    next_at_ms, is_marked, delivers = F.col("next_at_ms"), F.col("is_marked"), F.col("delivers")
    is_left = is_marked.isNotNull() & next_at_ms.isNotNull()
    severity = proved(moment.has_seen(next_at_ms))
    name = F.format_string("message %s, due at %d, ", F.lower(F.hex("entry_id")), F.col("due_ms"))
    said = F.concat(name, F.format_string("is there, though decision %d is done", F.col("number")))
    twice = F.concat(name, F.format_string("is in %d decisions", F.col("decisions")))
    return findings(
        _side_by_side(items),
        finding("decided_twice", F.col("decisions") > 1, None, twice),
        finding("still_waiting", is_left & delivers, None, said, severity),
        finding("not_cancelled", is_left & ~delivers & ~is_marked, None, said, severity),
    )


def _side_by_side(items: Items) -> DataFrame:
    """A row for each message that waits or waited: the decisions that name it, and whether its item is marked as
    cancelled (null: it has no item)."""
    slots = (
        decisions(items)
        .select("topic_id", "queue", "number", "delivers", "next_at_ms", F.explode("slots").alias("slot"))
        .select("topic_id", "queue", "slot.due_ms", "slot.entry_id", "number", "delivers", "next_at_ms")
    )
    waiting = items["delayed"].select(
        "topic_id",
        "delayed.queue",
        "delayed.due_ms",
        F.col("delayed.entry.id").alias("entry_id"),
        F.coalesce(F.col("delayed.cancelled"), F.lit(False)).alias("is_marked"),
    )
    rows = slots.unionByName(waiting, allowMissingColumns=True)
    return rows.groupBy("topic_id", "queue", "due_ms", "entry_id").agg(
        F.count("number").alias("decisions"),
        F.max("number").alias("number"),
        F.max("delivers").alias("delivers"),
        F.max("next_at_ms").alias("next_at_ms"),
        F.bool_or("is_marked").alias("is_marked"),
    )
