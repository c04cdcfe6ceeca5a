"""Converts items to packed messages, many at once: the entries of segments, and payload items, as record batches of
`item_schemas.PACKED`, which are flat and narrow since there are very many."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_schema

from spark import item_schemas

Numbers = npt.NDArray[Any]

SCHEMA = to_arrow_schema(item_schemas.PACKED)

_OF_ITEM = ("topic_id", "file", "line")
_OF_ENTRY = ("offset", "count", "stored_at_ms", "codec", "pieces", "data")


def entries(items: pa.RecordBatch) -> pa.RecordBatch:
    """The entries of the segments among items: of `item_schemas.ITEMS` the columns `topic_id`, `file`, `line` and
    `segment`."""
    items = _only(items, "segment")
    lists = pc.struct_field(items["segment"], "entries")
    listed, parents = lists.flatten(), pc.list_parent_indices(lists)
    given = {name: items[name].take(parents) for name in _OF_ITEM}
    given |= {name: pc.struct_field(listed, name) for name in _OF_ENTRY}
    given["entry_id"] = pc.struct_field(listed, "id")
    given["queue"] = pc.struct_field(items["segment"], "queue").take(parents)
    return _batch(given, len(listed))


def payloads(items: pa.RecordBatch) -> pa.RecordBatch:
    """The payloads among items, each a piece of the packed messages of an entry."""
    items = _only(items, "payload")
    given = {name: items[name] for name in _OF_ITEM}
    given |= {name: pc.struct_field(items["payload"], name) for name in ("entry_id", "piece", "data")}
    return _batch(given, len(items))


def _only(items: pa.RecordBatch, kind: str) -> pa.RecordBatch:
    held = items.select([*_OF_ITEM, kind])
    return held.filter(items[kind].is_valid()) if items[kind].null_count else held


def assembled(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Entries with the `data` of their pieces, null if these are not all there: `PACKED` without `piece`.

    Input: `PACKED`, sorted by `topic_id`, `entry_id` and `piece`, null first, which may go on from batch to batch. An
    entry that stands in several places gets its data in each. Pieces without an entry are left out."""
    rest: list[pa.RecordBatch] = []
    for batch in filter(len, batches):
        rows = pa.concat_batches([*rest, batch])
        last = int(_starts(rows)[-1])  # it may go on in the next batch
        if last:
            yield _joined(rows.slice(0, last))
        rest = [rows.slice(last)]
    yield from map(_joined, rest)


def _joined(rows: pa.RecordBatch) -> pa.RecordBatch:
    """The entries of whole groups; a group is an entry in all its places, and then its pieces."""
    pieces = rows["piece"].fill_null(-1).to_numpy()
    is_piece, starts = pieces >= 0, _starts(rows)
    ends = np.append(starts[1:], len(rows))
    group = np.repeat(np.arange(len(starts)), ends - starts)
    counts = np.bincount(group, is_piece).astype(np.int64)
    is_wrong = is_piece & (pieces != np.arange(len(rows)) - (ends - counts)[group])
    is_whole = np.bincount(group, is_wrong) == 0
    entries, group = rows.drop_columns(["piece"]).filter(pa.array(~is_piece)), group[~is_piece]
    named = entries["pieces"].fill_null(0).to_numpy()
    has_all = (named > 0) & is_whole[group] & (counts[group] == named)
    whole = _between(rows["data"], ends - counts, ends).take(pa.array(group, mask=~has_all))
    at = entries.schema.get_field_index("data")
    return entries.set_column(at, "data", pc.coalesce(entries["data"], whole))


def _starts(rows: pa.RecordBatch) -> Numbers:
    """The row at which each entry id begins."""
    keys = [rows[name] for name in ("topic_id", "entry_id")]
    news = [pc.not_equal(key[1:], key[:-1]).to_numpy(zero_copy_only=False) for key in keys]
    return np.append(0, np.flatnonzero(news[0] | news[1]) + 1)


def _between(blobs: pa.BinaryArray, first: Numbers, end: Numbers) -> pa.BinaryArray:
    """The bytes of each run of rows, from `first` to before `end`, as one."""
    offsets = np.frombuffer(blobs.buffers()[1], np.int32, len(blobs) + 1, blobs.offset * 4)
    bounds = offsets[np.stack([first, end], axis=1).ravel()]
    both = pa.Array.from_buffers(pa.binary(), len(bounds) - 1, [None, pa.py_buffer(bounds), blobs.buffers()[2]])
    return both.take(pa.array(np.arange(0, len(bounds), 2)))


def _batch(given: dict[str, pa.Array], count: int) -> pa.RecordBatch:
    arrays = [given[field.name] if field.name in given else pa.nulls(count, field.type) for field in SCHEMA]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)
