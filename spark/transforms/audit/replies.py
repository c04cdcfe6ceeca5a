"""Checks the replies to requests."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark.transforms.audit.findings import Moment, finding, findings
from spark.transforms.items import Items


def of_replies(items: Items, _: Moment) -> DataFrame:
    """`reply_late`: a reply was stored before the deadline of its request."""
    replies = items["reply"].where("reply.entry is not null").select("topic_id", "reply.*")
    at_ms, reply_by_ms = F.col("at_ms"), F.col("reply_by_ms")
    said = F.format_string("reply %s came at %d, after its deadline %d", F.lower(F.hex("nonce")), at_ms, reply_by_ms)
    return findings(replies, finding("reply_late", at_ms >= reply_by_ms, None, said))
