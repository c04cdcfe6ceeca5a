"""Checks the invariants of the table on one export.

An export is not a snapshot: its items were read at different moments, up to `slack_ms` from its time. A
contradiction within one item always counts. A contradiction between two items is a violation only if the items prove
that it lasted longer than that; otherwise it is a doubt. The audit skips messages beyond the end of a log that the
export shows, and expects no items that may have expired.

A reset, a purge and a redrive leave no timestamp. If a queue had no pop for longer than the slack, and one of the three
happened within it, the audit can report a false violation of `letters` or `page_missing`. The audit of the next export
does not repeat it.
"""

from __future__ import annotations

from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark.transforms.audit.cursors import of_cursors, of_groups, of_left_queues
from spark.transforms.audit.decisions import of_decisions, of_waiting
from spark.transforms.audit.entry_ids import of_entries
from spark.transforms.audit.findings import COST, DOUBT, VIOLATION, Moment, finding, findings
from spark.transforms.audit.log import of_logs, topics
from spark.transforms.audit.owed_messages import of_letters, of_offsets, of_pages
from spark.transforms.audit.replies import of_replies
from spark.transforms.audit.segment_pointers import of_pointers
from spark.transforms.audit.transactions import of_transactions
from spark.transforms.items import Items

__all__ = ["COST", "DOUBT", "VIOLATION", "Moment", "violations"]

_CHECKS = (
    of_logs,
    of_entries,
    of_groups,
    of_cursors,
    of_left_queues,
    of_offsets,
    of_letters,
    of_pages,
    of_decisions,
    of_waiting,
    of_pointers,
    of_transactions,
    of_replies,
)


def violations(items: Items, moment: Moment, unreadable: DataFrame | None = None) -> DataFrame:
    """The violations in an export, for topics that exist: rows of `schemas.VIOLATIONS`. `unreadable`:
    `schemas.UNREADABLE`."""
    checked = [check(items, moment) for check in _CHECKS]
    checked += [] if unreadable is None else [of_unreadable(unreadable)]
    rows = reduce(DataFrame.union, checked)  # all have `findings.COLUMNS`
    named = rows.join(F.broadcast(topics(items).select("topic_id", "topic")), "topic_id")
    return named.select("invariant", "severity", "topic", "topic_id", "queue", "offset", "detail")


def of_unreadable(unreadable: DataFrame) -> DataFrame:
    """`unreadable`: the messages of each entry can be unpacked, and are as many as the entry states."""
    said = F.format_string("entry %s: %s", "entry_id", "reason")
    return findings(unreadable, finding("unreadable", F.lit(True), F.col("offset"), said))
