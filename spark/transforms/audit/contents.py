"""What entries hold: messages that can be unpacked, as many as the entry says."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark.transforms.audit.verdict import finding, findings
from spark.transforms.messages import pointing_entries
from spark.transforms.unpacking import COLUMNS, inline_entries, unpack


def of_contents(items: DataFrame) -> DataFrame:
    """`unreadable`: the messages of an entry can be unpacked. Of segments and payloads, whole: not `light`. Where the
    payload is missing, or in S3, there is nothing to unpack."""
    segments = items.where("kind = 'segment' and segment is not null").select("topic_id", "segment", "file", "line")
    elsewhere = items.transform(pointing_entries).where("data is not null")
    failed = segments.mapInArrow(_failed_inline, COLUMNS).unionByName(elsewhere.mapInArrow(_failed, COLUMNS))
    said = F.format_string("entry %s: %s", F.lower(F.hex("entry_id")), F.col("reason"))
    return findings(failed, finding("unreadable", F.col("reason").isNotNull(), F.col("offset"), said))


def _failed_inline(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield from _only_failed(unpack(inline_entries(batch)))


def _failed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield from _only_failed(unpack(batch))


def _only_failed(unpacked: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in unpacked:
        yield batch.filter(pc.is_valid(batch.column("reason")))
