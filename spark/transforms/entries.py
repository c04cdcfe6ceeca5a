"""The entries of logs."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def entries(items: DataFrame) -> DataFrame:
    """Each entry of each segment: `topic_id`, `queue`, and the fields of `item_schemas.SEGMENT_ENTRY`."""
    segments = items.where("kind = 'segment'")
    return segments.select("topic_id", "segment.queue", F.inline("segment.entries"))
