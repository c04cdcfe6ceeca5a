"""The packed messages of an export as record batches: `schemas.PACKED`, flat and narrow, for there are very many."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_schema

from spark import schemas
from spark.reading.data_file import FileReader
from spark.reading.manifest import DataFile

SCHEMA = to_arrow_schema(schemas.PACKED)

_OF_ITEM = ("topic_id", "file", "line")
_DATA, _PIECES = b'"d"', b'"p"'
"""Attributes of an entry: its messages, or in how many payload items these are."""


def inline(file: DataFile) -> Iterator[pa.RecordBatch]:
    """The entries of a file that hold their messages."""
    for batch in FileReader(file, False, frozenset({"segment"}), _DATA):
        entries = _entries(batch)
        yield entries.filter(entries["data"].is_valid())


def elsewhere(file: DataFile) -> Iterator[pa.RecordBatch]:
    """The entries of a file whose messages are in payload items or in S3, and the payload items."""
    for batch in FileReader(file, False, frozenset({"segment", "payload"}), _PIECES):
        entries = _entries(batch)
        yield entries.filter(entries["pieces"].is_valid())
        yield _payloads(batch)


def _entries(items: pa.RecordBatch) -> pa.RecordBatch:
    """Of the segments among items."""
    items = items.select([*_OF_ITEM, "segment"]).filter(items["segment"].is_valid())
    segment = items["segment"]
    lists = pc.struct_field(segment, "entries")
    entries, parents = lists.flatten(), pc.list_parent_indices(lists)
    counts = pc.struct_field(entries, "count").to_numpy().astype(np.int64)
    before = np.concatenate([[0], np.cumsum(counts)])
    first = before[pc.subtract(lists.offsets, lists.offsets[0]).to_numpy()]
    places = parents.to_numpy()
    offsets = pc.struct_field(segment, "base").to_numpy()[places] + before[:-1] - first[places]
    given = {name: items[name].take(parents) for name in _OF_ITEM}
    given |= {"entry_id": pc.struct_field(entries, "id"), "offset": pa.array(offsets, pa.int64())}
    given |= {name: pc.struct_field(entries, name) for name in ("count", "stored_at_ms", "codec", "pieces", "data")}
    given["queue"] = pc.struct_field(segment, "queue").take(parents)
    return _batch(given, len(entries))


def _payloads(items: pa.RecordBatch) -> pa.RecordBatch:
    items = items.select([*_OF_ITEM, "payload"]).filter(items["payload"].is_valid())
    given = {name: items[name] for name in _OF_ITEM}
    given |= {name: pc.struct_field(items["payload"], name) for name in ("entry_id", "piece", "data")}
    return _batch(given, len(items))


def _batch(given: dict[str, pa.Array], count: int) -> pa.RecordBatch:
    arrays = [given[field.name] if field.name in given else pa.nulls(count, field.type) for field in SCHEMA]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)
