"""Items to packed messages, many at once: the entries of segments, and payload items, as record
batches of `item_schemas.PACKED`: flat and narrow, for there are very many."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_schema

from spark import item_schemas

SCHEMA = to_arrow_schema(item_schemas.PACKED)

_OF_ITEM = ("topic_id", "file", "line")
_OF_ENTRY = ("offset", "count", "stored_at_ms", "codec", "pieces", "data")


def packed(items: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Input: the columns `topic_id`, `file`, `line`, `segment` and `payload` of `item_schemas.ITEMS`."""
    yield entries(items)
    yield _payloads(items)


def entries(items: pa.RecordBatch) -> pa.RecordBatch:
    """The entries of the segments among items."""
    items = items.select([*_OF_ITEM, "segment"]).filter(items["segment"].is_valid())
    lists = pc.struct_field(items["segment"], "entries")
    listed, parents = lists.flatten(), pc.list_parent_indices(lists)
    given = {name: items[name].take(parents) for name in _OF_ITEM}
    given |= {name: pc.struct_field(listed, name) for name in _OF_ENTRY}
    given["entry_id"] = pc.struct_field(listed, "id")
    given["queue"] = pc.struct_field(items["segment"], "queue").take(parents)
    return _batch(given, len(listed))


def _payloads(items: pa.RecordBatch) -> pa.RecordBatch:
    items = items.select([*_OF_ITEM, "payload"]).filter(items["payload"].is_valid())
    given = {name: items[name] for name in _OF_ITEM}
    given |= {name: pc.struct_field(items["payload"], name) for name in ("entry_id", "piece", "data")}
    return _batch(given, len(items))


def _batch(given: dict[str, pa.Array], count: int) -> pa.RecordBatch:
    arrays = [given[field.name] if field.name in given else pa.nulls(count, field.type) for field in SCHEMA]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)
