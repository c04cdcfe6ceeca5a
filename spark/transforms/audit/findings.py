"""The time of an export, and the columns of a finding in it."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

VIOLATION = "violation"
"""Proved: the table must never look like this."""
DOUBT = "doubt"
"""It looks wrong, but the two items may have been read at different moments, or a third may have expired."""
COST = "cost"
"""Harmless but billed: left behind by a crashed caller."""

SLACK_MS = 60_000
"""AWS documents that an export is accurate to a minute."""

COLUMNS = ("invariant", "severity", "topic_id", "queue", "offset", "detail")


@dataclass(frozen=True, slots=True)
class Moment:
    """`now_ms`: the export's time. No two of its items were read more than `slack_ms` from it."""

    now_ms: int
    slack_ms: int = SLACK_MS

    @property
    def before_ms(self) -> int:
        """Items written before this instant existed whenever an item was read."""
        return self.now_ms - self.slack_ms

    @property
    def after_ms(self) -> int:
        """No item was read after this instant."""
        return self.now_ms + self.slack_ms

    def has_seen(self, at_ms: Column) -> Column:
        """Whether every item was read after this instant; false where it is not known."""
        return F.coalesce(at_ms < self.before_ms, F.lit(False))

    def is_still(self, at_ms: Column) -> Column:
        """Like `has_seen`, for items that may be removed at any time: false unless nothing changed while the items were
        read."""
        return self.has_seen(at_ms) & F.lit(self.slack_ms == 0)

    def has_expired(self, stored_at_ms: Column, ttl: Column) -> Column:
        """Whether an entry stored then may be gone: past the retention of the row's topic, or past the time when
        DynamoDB may remove it."""
        has_past = F.coalesce(is_past(stored_at_ms, self.now_ms), F.lit(False))
        return has_past | F.coalesce(ttl * 1000 <= self.now_ms, F.lit(False))


def is_past(stored_at_ms: Column, now_ms: int) -> Column:
    """Whether an entry stored then has expired, by `retention_ms` and `past_retentions` of the row's topic."""
    past = F.transform("past_retentions", lambda past: F.least(now_ms - past["retention_ms"], past["until_ms"]))
    return stored_at_ms <= F.greatest(now_ms - F.col("retention_ms"), F.array_max(past))


def proved(is_proved: Column) -> Column:
    """The severity of a finding: certain where `is_proved`, otherwise possible."""
    return F.when(is_proved, F.lit(VIOLATION)).otherwise(F.lit(DOUBT))


def finding(
    invariant: str, wrong: Column, offset: Column | None, detail: Column, severity: Column | str = VIOLATION
) -> Column:
    """The finding for a row that violates the invariant; null for any other row."""
    return F.when(
        wrong,
        F.struct(
            F.lit(invariant).alias("invariant"),
            (F.lit(severity) if isinstance(severity, str) else severity).alias("severity"),
            (F.lit(None) if offset is None else offset).cast("long").alias("offset"),
            detail.alias("detail"),
        ),
    )


def findings(rows: DataFrame, *checks: Column) -> DataFrame:
    """The findings for rows that have `topic_id` and `queue`: `COLUMNS`. One pass checks any number of invariants."""
    said = F.explode(F.array_compact(F.array(*checks))).alias("said")
    named = rows.select("topic_id", F.col("queue").cast("int").alias("queue"), said)
    return named.select("topic_id", "queue", "said.*").select(*COLUMNS)
