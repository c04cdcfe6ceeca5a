"""Checks the items that point into a log: the index of keys, dedup records, decisions."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark.transforms.audit.findings import Moment, finding, findings, proved
from spark.transforms.audit.log import ends
from spark.transforms.items import Items


def of_pointers(items: Items, moment: Moment) -> DataFrame:
    """`pointer`: each points to a segment, to the end of the log (where the next one begins), or to a segment that may
    have been removed."""
    bases = items["segment"].select("topic_id", "segment.queue", "segment.base", F.lit(1).alias("held"))
    dangling = (
        _pointers(items)
        .unionByName(bases, allowMissingColumns=True)
        .groupBy("topic_id", "queue", "base")
        .agg(F.max("held").alias("held"), F.max("by").alias("by"), F.min("at_ms").alias("at_ms"))
        .where(F.col("by").isNotNull() & F.col("held").isNull())
        .join(F.broadcast(ends(items)), ["topic_id", "queue"], "left")
    )
    base, log_end = F.col("base"), F.coalesce(F.col("end"), F.lit(0))
    is_inside = F.coalesce(F.col("is_dense") & (base > F.col("first")) & (base < log_end), F.lit(False))
    detail = F.format_string("%s points here, where no segment begins; the log ends at %d", F.col("by"), log_end)
    severity = proved(moment.has_seen(F.col("at_ms")))
    return findings(dangling, finding("pointer", (base > log_end) | is_inside, base, detail, severity))


def _pointers(items: Items) -> DataFrame:
    index = items["index"].select(
        "topic_id",
        "index.queue",
        "index.base",
        F.lit("the index of keys").alias("by"),
        F.col("index.stored_at_ms").alias("at_ms"),
    )
    dedup = (
        items["dedup"]
        .where("dedup.due_ms = 0")
        .select("topic_id", "dedup.queue", "dedup.base", F.lit("a dedup record").alias("by"), "dedup.at_ms")
    )
    decided = (
        items["decision"]
        .where("decision.entry IS NOT NULL")
        .select("topic_id", "decision.queue", "decision.base", F.lit("a decision").alias("by"), "decision.at_ms")
    )
    return index.unionByName(dedup).unionByName(decided)
