"""Items to packed messages, many at once: the entries of segments with their offsets, and payload items, as record
batches of `schemas.PACKED`: flat and narrow, for there are very many."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_schema

from spark import schemas

SCHEMA = to_arrow_schema(schemas.PACKED)

_OF_ITEM = ("topic_id", "file", "line")


def packed(items: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Input: the columns `topic_id`, `file`, `line`, `segment` and `payload` of `schemas.ITEMS`."""
    yield entries(items)
    yield _payloads(items)


def entries(items: pa.RecordBatch) -> pa.RecordBatch:
    """The entries of the segments among items."""
    items = items.select([*_OF_ITEM, "segment"]).filter(items["segment"].is_valid())
    segment = items["segment"]
    lists = pc.struct_field(segment, "entries")
    listed, parents = lists.flatten(), pc.list_parent_indices(lists)
    counts = pc.struct_field(listed, "count").to_numpy().astype(np.int64)
    before = np.concatenate([[0], np.cumsum(counts)])
    first = before[pc.subtract(lists.offsets, lists.offsets[0]).to_numpy()]
    places = parents.to_numpy()
    offsets = pc.struct_field(segment, "base").to_numpy()[places] + before[:-1] - first[places]
    given = {name: items[name].take(parents) for name in _OF_ITEM}
    given |= {"entry_id": pc.struct_field(listed, "id"), "offset": pa.array(offsets, pa.int64())}
    given |= {name: pc.struct_field(listed, name) for name in ("count", "stored_at_ms", "codec", "pieces", "data")}
    given["queue"] = pc.struct_field(segment, "queue").take(parents)
    return _batch(given, len(listed))


def _payloads(items: pa.RecordBatch) -> pa.RecordBatch:
    items = items.select([*_OF_ITEM, "payload"]).filter(items["payload"].is_valid())
    given = {name: items[name] for name in _OF_ITEM}
    given |= {name: pc.struct_field(items["payload"], name) for name in ("entry_id", "piece", "data")}
    return _batch(given, len(items))


def _batch(given: dict[str, pa.Array], count: int) -> pa.RecordBatch:
    arrays = [given[field.name] if field.name in given else pa.nulls(count, field.type) for field in SCHEMA]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)
