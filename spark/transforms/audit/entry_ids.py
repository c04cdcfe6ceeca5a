"""Checks entries and payloads: by entry id, the log against all other items that name the entry."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark.transforms.audit.decisions import decisions
from spark.transforms.audit.findings import COST, Moment, finding, findings, proved
from spark.transforms.audit.log import topics
from spark.transforms.items import Items


def of_entries(items: Items, moment: Moment) -> DataFrame:
    """`entry_twice`: no entry is in a topic's logs twice. `undelivered`: an entry that a decision delivers is in the
    log once the next decision is made. `payload_missing`, also for delayed messages, transactions and replies: all
    pieces of an entry's payload exist. `orphan_payload`: each payload has an item that points to it."""
    in_log, offset = F.col("in_log"), F.col("offset")
    seen = _side_by_side(items).join(F.broadcast(topics(items)), "topic_id")
    was_gone = moment.has_expired(F.col("decided_at_ms"), F.lit(None).cast("long"))
    is_lost = (in_log == 0) & F.col("next_at_ms").isNotNull() & ~was_gone
    twice = _said("entry %s is in the log %d times", in_log)
    lost = _said("entry %s of decision %d is not in the log", F.col("number"))
    return findings(
        seen,
        finding("entry_twice", in_log > 1, offset, twice),
        finding("undelivered", is_lost, None, lost, proved(moment.has_seen(F.col("next_at_ms")))),
        *_of_payloads(moment),
    )


def _of_payloads(moment: Moment) -> list[Column]:
    is_kept = F.coalesce(F.col("payload_ttl") * 1000 > moment.now_ms, F.lit(True))
    is_orphan = (F.col("pointers") == 0) & (F.size("pieces") > 0) & is_kept
    orphan = _said("nothing points to the payload of entry %s, of %d pieces", F.size("pieces"))
    is_logged = (F.col("in_log") > 0) & ~moment.has_expired(F.col("at_ms"), F.col("ttl"))
    waits, is_undecided = (F.col(name) > moment.after_ms for name in ("due_ms", "until_ms"))
    is_replied = F.col("reply_ttl") * 1000 > moment.after_ms
    severity, of_delayed, of_reply = (
        proved(moment.has_seen(F.col(name))) for name in ("at_ms", "waits_since_ms", "replied_at_ms")
    )
    of_half = proved(moment.is_still(F.col("begun_at_ms")))

    def missing(invariant: str, is_needed: Column, wanted: str, offset: Column | None, severity: Column) -> Column:
        return finding(invariant, is_needed & _is_partial(wanted), offset, _missing(wanted), severity)

    return [
        missing("payload_missing", is_logged, "wanted", F.col("offset"), severity),
        missing("delayed_payload_missing", waits, "delayed_wanted", None, of_delayed),
        missing("transaction_payload_missing", is_undecided, "half_wanted", None, of_half),
        missing("reply_payload_missing", is_replied, "reply_wanted", None, of_reply),
        finding("orphan_payload", is_orphan, None, orphan, COST),
    ]


def _said(text: str, number: Column) -> Column:
    return F.format_string(text, F.lower(F.hex("entry_id")), number)


def _missing(wanted: str) -> Column:
    pieces = F.array_join(_absent(wanted).cast("array<string>"), ", ")
    return F.format_string("entry %s has %d pieces; missing: %s", F.lower(F.hex("entry_id")), F.col(wanted), pieces)


def _absent(wanted: str) -> Column:
    return F.array_except(F.sequence(F.lit(0), F.col(wanted) - 1), F.col("pieces"))


def _is_partial(wanted: str) -> Column:
    return F.when(F.col(wanted) > 0, F.size(_absent(wanted)) > 0).otherwise(F.lit(False))


def _side_by_side(items: Items) -> DataFrame:
    """A row for each entry id: its place in the log, the pieces of its payload, and the other items that name it."""
    rows = _logged(items)
    for others in (_payloads, _waiting, _deciding, _deduplicating, _undecided, _replying):
        rows = rows.unionByName(others(items), allowMissingColumns=True)
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
                "begun_at_ms",
                "until_ms",
                "half_wanted",
                "replied_at_ms",
                "reply_ttl",
                "reply_wanted",
            )
        ),
    )


def _wanted(entry: Column) -> Column:
    """The number of payload items that an entry needs; null: the entry has its messages, 0: they are in S3."""
    return F.when(entry["data"].isNull(), entry["pieces"])


def _logged(items: Items) -> DataFrame:
    listed = items["segment"].select(
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


def _payloads(items: Items) -> DataFrame:
    held = items["payload"]
    return held.select(
        "topic_id",
        "payload.entry_id",
        F.lit("payload").alias("role"),
        "payload.piece",
        F.col("ttl").alias("payload_ttl"),
    )


def _waiting(items: Items) -> DataFrame:
    is_wanted = ~F.coalesce(F.col("delayed.cancelled"), F.lit(False))
    return items["delayed"].select(
        "topic_id",
        F.col("delayed.entry.id").alias("entry_id"),
        F.lit("delayed").alias("role"),
        "delayed.queue",
        F.when(is_wanted, F.col("delayed.due_ms")).alias("due_ms"),
        F.col("delayed.entry.stored_at_ms").alias("waits_since_ms"),
        _wanted(F.col("delayed.entry")).alias("delayed_wanted"),
    )


def _deciding(items: Items) -> DataFrame:
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


def _deduplicating(items: Items) -> DataFrame:
    return items["dedup"].select(
        "topic_id", F.col("dedup.entry.id").alias("entry_id"), F.lit("dedup").alias("role"), "dedup.queue"
    )


def _undecided(items: Items) -> DataFrame:
    return items["transaction"].select(
        "topic_id",
        F.col("transaction.entry.id").alias("entry_id"),
        F.lit("transaction").alias("role"),
        F.col("transaction.entry.stored_at_ms").alias("begun_at_ms"),
        "transaction.until_ms",
        _wanted(F.col("transaction.entry")).alias("half_wanted"),
    )


def _replying(items: Items) -> DataFrame:
    return (
        items["reply"]
        .where("reply.entry is not null")
        .select(
            "topic_id",
            F.col("reply.entry.id").alias("entry_id"),
            F.lit("reply").alias("role"),
            F.col("reply.at_ms").alias("replied_at_ms"),
            F.col("ttl").alias("reply_ttl"),
            _wanted(F.col("reply.entry")).alias("reply_wanted"),
        )
    )
