"""The entries of logs, each with its place in its queue."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark.schemas import ENTRY

_FIELDS = ENTRY.fieldNames()


def entries(items: DataFrame) -> DataFrame:
    """Each entry of each segment: `topic_id`, `queue`, `base` of the segment, its `file` and `line`, `offset` of the
    entry's first message, and the fields of `schemas.ENTRY`."""
    listed = F.col("segment.entries")

    def placed(entry: Column, index: Column) -> Column:
        offset = F.col("segment.base") + _count_before(listed, index)
        return F.struct(offset.alias("offset"), *(entry[name].alias(name) for name in _FIELDS))

    segments = items.where("kind = 'segment'")
    place = ("topic_id", "segment.queue", "segment.base", "file", "line")
    return segments.select(*place, F.inline(F.transform(listed, placed)))


def _count_before(listed: Column, index: Column) -> Column:
    """Messages of the entries before this one."""
    before = F.slice(listed, F.lit(1), index)
    return F.aggregate(before, F.lit(0).cast("long"), lambda total, entry: total + entry["count"])
