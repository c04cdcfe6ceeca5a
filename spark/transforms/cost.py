"""The cost of items: their storage, and the units that they have used, if an export shows them. docs/pipeline.md has
the rules and their limits."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark import schemas
from spark.transforms.audit.log import topics
from spark.transforms.items import Items

WRITE_BYTES, READ_BYTES = 1024, 4096
"""The bytes of one item that one unit writes, or reads."""
ITEM_OVERHEAD_BYTES = 100
"""The bytes that DynamoDB adds to each item where it bills storage."""
GB = 1_000_000_000
POP_WRITES = 2
"""A claim and an ack. (An ack in the next pop costs nothing, which halves this.)"""
POP_READS = 3
"""Cursors and segments, without payloads."""
IN_TRANSACTION = 2
"""A write in a transaction costs double."""
WAITED_WRITES = 2
"""The writes of a message that waited: its item is put, and removed."""

_SIZES = (1, 4, 16, 64, 400)
"""Upper bounds of the classes of size, in KB."""


@dataclass(frozen=True, slots=True)
class Prices:
    """USD, on demand, us-east-1: per million units, and per GB and month."""

    write: float = 0.625
    read: float = 0.125
    storage: float = 0.25


def cost(items: Items, prices: Prices, pop_size: int) -> DataFrame:
    """`schemas.COST`. `pop_size`: the assumed number of messages in a pop."""
    named = F.broadcast(topics(items).select("topic_id", "topic"))
    groups = items["group"].select("topic_id", "group.group_id", F.col("group.name").alias("named"), "group.starts")
    readers = groups.groupBy("topic_id").agg(F.count("*").alias("readers"))
    group_id = F.coalesce("cursor.group_id", "retry_page.group_id", "dead_letter.group_id")
    weighed = (
        items.every()
        .withColumn("group_id", group_id)
        .join(F.broadcast(groups), ["topic_id", "group_id"], "left")
        .select("topic_id", "kind", "bytes", *_of_items(pop_size))
        .join(named, "topic_id", "left")
        .join(F.broadcast(readers), "topic_id", "left")
        .withColumn("read_units", F.col("reads") + F.col("reads_by_group") * F.coalesce("readers", F.lit(0)))
    )
    summed = weighed.groupBy("topic", "topic_id", "group", "kind", _size().alias("size")).agg(
        F.count("*").alias("items"),
        F.sum("bytes").alias("bytes"),
        F.sum("write_units").cast("double").alias("write_units"),
        F.sum("read_units").cast("double").alias("read_units"),
    )
    return summed.transform(_with_money, prices).select(*schemas.COST.fieldNames())


def _with_money(summed: DataFrame, prices: Prices) -> DataFrame:
    stored = F.col("bytes") + F.col("items") * ITEM_OVERHEAD_BYTES
    basis = F.when(F.col("kind") == "cursor", "assumed").otherwise("derived")
    return summed.withColumns(
        {
            "write_usd": F.col("write_units") / 1e6 * prices.write,
            "read_usd": F.col("read_units") / 1e6 * prices.read,
            "usd_per_month": stored / GB * prices.storage,
            "basis": basis,
        }
    )


def _of_items(pop_size: int) -> list[Column]:
    """The columns of each item, beside the name and the starts of its group: `group`, the units to write it, and the
    units to read it, those used once and those used by each group of its topic."""
    none = F.lit(0.0)
    began = F.coalesce(F.get("starts", F.col("cursor.queue")), F.lit(0))
    pops = F.ceil(F.greatest(F.col("cursor.next") - began, F.lit(0)) / pop_size)
    is_cursor, is_payload = F.col("kind") == "cursor", F.col("kind") == "payload"
    name_in_key = F.when(F.col("pk").startswith("group#"), F.split("pk", "#")[2])
    return [
        F.coalesce("cursor.group", "group.name", name_in_key, "named").alias("group"),
        _writes(pops).alias("write_units"),
        F.when(is_cursor, pops * POP_READS).otherwise(none).alias("reads"),
        F.when(is_payload, F.ceil(F.col("bytes") / READ_BYTES) / 2).otherwise(none).alias("reads_by_group"),
    ]


def _writes(pops: Column) -> Column:
    """The write units that brought an item to its present state."""
    put = F.ceil(F.col("bytes") / WRITE_BYTES)
    appends = F.size("segment.entries")
    grown = F.aggregate(
        F.sequence(F.lit(1), F.greatest(appends, F.lit(1))),
        F.lit(0).cast("long"),
        lambda total, number: total + F.ceil(number * F.col("bytes") / (appends * WRITE_BYTES)),
    )
    with_cursor = IN_TRANSACTION * (put + 1)
    by_kind = {
        "segment": F.when(appends > 0, grown).otherwise(put),
        "cursor": POP_WRITES * pops * put,
        "dead_letter": with_cursor,
        "retry_page": with_cursor,
        "decision": put + WAITED_WRITES * F.coalesce(F.size("decision.slots"), F.lit(0)),
        "topic": put * (F.coalesce("topic.version", F.lit(0)) + 1),
        "group": put * (F.coalesce("group.version", F.lit(0)) + 1),
    }
    units = put
    for kind, of_kind in by_kind.items():
        units = F.when(F.col("kind") == kind, of_kind).otherwise(units)
    return units


def _size() -> Column:
    size = F.lit(f"over {_SIZES[-1]} KB")
    for bound in reversed(_SIZES):
        size = F.when(F.col("bytes") <= bound * 1024, f"up to {bound} KB").otherwise(size)
    return size
