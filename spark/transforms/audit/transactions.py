"""Checks transactions: each is undecided or decided, and committed messages are delivered once."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark.transforms.audit.decisions import decisions
from spark.transforms.audit.findings import Moment, finding, findings, is_past, proved
from spark.transforms.audit.log import topics
from spark.transforms.items import Items


def of_transactions(items: Items, moment: Moment) -> DataFrame:
    """`half_and_decided`: a decided transaction is no longer undecided. `commit_lost`: each message of a commit waits,
    or a decision about delayed messages names it, which is checked like any other."""
    return _of_halves(items, moment).unionByName(_of_commits(items, moment))


def _of_halves(items: Items, moment: Moment) -> DataFrame:
    """One write removes the item of a transaction and records the decision."""
    halves = items["transaction"].select("topic_id", F.col("transaction.entry.id").alias("entry_id"))
    decided = items["decided_transaction"].select("topic_id", "decided_transaction.*")
    both = halves.join(decided, ["topic_id", "entry_id"]).withColumn("queue", F.lit(None))
    said = F.format_string("transaction %s was %s at %d, and waits for it", _id(), F.col("state"), F.col("at_ms"))
    severity = proved(moment.has_seen(F.col("at_ms")))
    return findings(both, finding("half_and_decided", F.lit(True), None, said, severity))


def _of_commits(items: Items, moment: Moment) -> DataFrame:
    place = ["topic_id", "queue", "due_ms", "message"]
    committed = items["decided_transaction"].select(
        "topic_id",
        "decided_transaction.entry_id",
        F.col("decided_transaction.at_ms").alias("due_ms"),
        F.inline("decided_transaction.places").alias("queue", "message"),
    )
    waiting = items["delayed"].select(
        "topic_id", "delayed.queue", "delayed.due_ms", F.col("delayed.entry.id").alias("message")
    )
    named = decisions(items).select("topic_id", "queue", F.inline("slots").alias("due_ms", "message"))
    lost = committed.join(waiting.unionByName(named), place, "left_anti").join(F.broadcast(topics(items)), "topic_id")
    is_kept = ~is_past(F.col("due_ms"), moment.now_ms)
    message = F.lower(F.hex("message"))
    said = F.format_string("message %s of transaction %s, committed at %d, is nowhere", message, _id(), F.col("due_ms"))
    return findings(lost, finding("commit_lost", is_kept, None, said, proved(moment.is_still(F.col("due_ms")))))


def _id() -> Column:
    return F.lower(F.hex("entry_id"))
