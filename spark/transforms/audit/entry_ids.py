"""Checks entries and payloads: by entry id, the log against all other items that name the entry."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark.transforms.audit.decisions import decisions
from spark.transforms.audit.findings import COST, Moment, finding, findings, proved
from spark.transforms.audit.log import topics


def of_entries(items: DataFrame, moment: Moment) -> DataFrame:
    """`entry_twice`: no entry is in a topic's logs twice. `payload_missing`, `delayed_payload_missing`: all pieces of
    an entry's payload exist. `orphan_payload`: each payload has an item that points to it. `undelivered`: an entry that
    a decision delivers is in the log once the next decision is made."""
    in_log, offset = F.col("in_log"), F.col("offset")
    seen = _side_by_side(items).join(F.broadcast(topics(items)), "topic_id")
    is_gone = moment.has_expired(F.col("at_ms"), F.col("ttl"))
    was_gone = moment.has_expired(F.col("decided_at_ms"), F.lit(None).cast("long"))
    is_partial = (in_log > 0) & ~is_gone & _is_partial("wanted")
    is_kept = F.coalesce(F.col("payload_ttl") * 1000 > moment.now_ms, F.lit(True))
    is_orphan = (F.col("pointers") == 0) & (F.size("pieces") > 0) & is_kept
    waits = (F.col("due_ms") > moment.after_ms) & _is_partial("delayed_wanted")
    is_lost = (in_log == 0) & F.col("next_at_ms").isNotNull() & ~was_gone
    twice = _said("entry %s is in the log %d times", in_log)
    orphan = _said("nothing points to the payload of entry %s, of %d pieces", F.size("pieces"))
    lost = _said("entry %s of decision %d is not in the log", F.col("number"))
    severity, severity_of_delayed, severity_of_lost = (
        proved(moment.has_seen(F.col(at_ms))) for at_ms in ("at_ms", "waits_since_ms", "next_at_ms")
    )
    return findings(
        seen,
        finding("entry_twice", in_log > 1, offset, twice),
        finding("payload_missing", is_partial, offset, _missing("wanted"), severity),
        finding("delayed_payload_missing", waits, None, _missing("delayed_wanted"), severity_of_delayed),
        finding("orphan_payload", is_orphan, None, orphan, COST),
        finding("undelivered", is_lost, None, lost, severity_of_lost),
    )


def _said(text: str, number: Column) -> Column:
    return F.format_string(text, F.lower(F.hex("entry_id")), number)


def _missing(wanted: str) -> Column:
    pieces = F.array_join(_absent(wanted).cast("array<string>"), ", ")
    return F.format_string("entry %s has %d pieces; missing: %s", F.lower(F.hex("entry_id")), F.col(wanted), pieces)


def _absent(wanted: str) -> Column:
    return F.array_except(F.sequence(F.lit(0), F.col(wanted) - 1), F.col("pieces"))


def _is_partial(wanted: str) -> Column:
    return F.when(F.col(wanted) > 0, F.size(_absent(wanted)) > 0).otherwise(F.lit(False))


def _side_by_side(items: DataFrame) -> DataFrame:
    """A row for each entry id: its place in the log, the pieces of its payload, and the other items that name it."""
    rows = _logged(items)
    for others in (_payloads(items), _waiting(items), _deciding(items), _deduplicating(items)):
        rows = rows.unionByName(others, allowMissingColumns=True)
    role = F.col("role")
    return rows.groupBy("topic_id", "entry_id").agg(
        F.count_if(role == "log").alias("in_log"),
        F.count_if(role != "payload").alias("pointers"),
        F.min("queue").alias("queue"),
        F.min("offset").alias("offset"),
        F.collect_set("piece").alias("pieces"),
        *(
            F.max(name).alias(name)
            for name in (
                "at_ms",
                "ttl",
                "payload_ttl",
                "wanted",
                "due_ms",
                "waits_since_ms",
                "delayed_wanted",
                "decided_at_ms",
                "next_at_ms",
                "number",
            )
        ),
    )


def _wanted(entry: Column) -> Column:
    """The number of payload items that an entry needs; null: its messages lie in the entry, 0: they are in S3."""
    return F.when(entry["data"].isNull(), entry["pieces"])


def _logged(items: DataFrame) -> DataFrame:
    listed = items.where("kind = 'segment'").select(
        "topic_id", "ttl", "segment.queue", "segment.base", F.explode("segment.entries").alias("entry")
    )
    return listed.select(
        "topic_id",
        F.col("entry.id").alias("entry_id"),
        F.lit("log").alias("role"),
        "queue",
        F.col("base").alias("offset"),
        F.col("entry.stored_at_ms").alias("at_ms"),
        "ttl",
        _wanted(F.col("entry")).alias("wanted"),
    )


def _payloads(items: DataFrame) -> DataFrame:
    held = items.where("kind = 'payload'")
    return held.select(
        "topic_id",
        "payload.entry_id",
        F.lit("payload").alias("role"),
        "payload.piece",
        F.col("ttl").alias("payload_ttl"),
    )


def _waiting(items: DataFrame) -> DataFrame:
    is_wanted = ~F.coalesce(F.col("delayed.cancelled"), F.lit(False))
    return items.where("kind = 'delayed'").select(
        "topic_id",
        F.col("delayed.entry.id").alias("entry_id"),
        F.lit("delayed").alias("role"),
        "delayed.queue",
        F.when(is_wanted, F.col("delayed.due_ms")).alias("due_ms"),
        F.col("delayed.entry.stored_at_ms").alias("waits_since_ms"),
        _wanted(F.col("delayed.entry")).alias("delayed_wanted"),
    )


def _deciding(items: DataFrame) -> DataFrame:
    return (
        decisions(items)
        .where("delivers")
        .select(
            "topic_id",
            "entry_id",
            F.lit("decision").alias("role"),
            "queue",
            "number",
            F.col("at_ms").alias("decided_at_ms"),
            "next_at_ms",
        )
    )


def _deduplicating(items: DataFrame) -> DataFrame:
    return items.where("kind = 'dedup'").select(
        "topic_id", F.col("dedup.entry.id").alias("entry_id"), F.lit("dedup").alias("role"), "dedup.queue"
    )
