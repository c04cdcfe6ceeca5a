"""What entries hold: messages that can be unpacked, as many as the entry says."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark.transforms.audit.findings import finding, findings
from spark.transforms.messages import elsewhere, inline, packed
from spark.unpacking.unpack import COLUMNS, unpack


def of_contents(items: DataFrame) -> DataFrame:
    """`unreadable`: the messages of an entry can be unpacked. Of segments and payloads, whole: not `light`. Where the
    payload is missing, or in S3, there is nothing to unpack."""
    found = items.transform(packed)
    entries = found.transform(inline).unionByName(found.transform(elsewhere), allowMissingColumns=True)
    failed = entries.where("data is not null").mapInArrow(_failed, COLUMNS)
    said = F.format_string("entry %s: %s", "entry_id", "failure.reason")
    return findings(failed, finding("unreadable", F.col("failure").isNotNull(), F.col("offset"), said))


def _failed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for unpacked in unpack(batch):
            yield unpacked.filter(unpacked["failure"].is_valid())
