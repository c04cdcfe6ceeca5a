"""Unpacks messages: Arrow batches of entries of a log in, batches of messages out.

Packed messages are lines of JSON, one object a message, compressed or not (see docs/table.md). A whole batch is parsed
at once. Only if that fails, each entry is parsed alone, and an entry that cannot be unpacked becomes a failure row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import zstandard
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import LongType, StringType, StructField, StructType

from spark import schemas
from spark.item_schemas import struct
from spark.unpacking import frames
from spark.unpacking.message_lines import Columns, PackedLines

ReadBlob = Callable[[str, bytes], bytes | None]
"""Topic id and entry id of a body in S3 -> the packed messages; None: it is missing."""

_BLOCK_BYTES_MAX = 4 << 20
"""Packed messages that are parsed at once."""
_ZSTD_BYTES_MAX = 64 << 20
"""An entry cannot unpack to more: a body has 4 MiB at most, and a call 100 messages."""

COLUMNS = StructType(
    [
        *(field for field in schemas.MESSAGES if field.name != "topic"),
        StructField("failure", struct(file=StringType(), line=LongType(), reason=StringType())),
    ]
)
"""The columns of the output: `schemas.MESSAGES` without the topic's name. `failure`: the place of an entry that could
not be unpacked, and the reason; such a row stands for the whole entry and has only its place."""
_SCHEMA = to_arrow_schema(COLUMNS)

_lines = PackedLines()
_FAILURES = (ValueError, TypeError, AttributeError, KeyError, OverflowError, pa.ArrowException, zstandard.ZstdError)
_DAY_MS = 24 * 60 * 60 * 1000
_LAST_DAY = 2_932_896
"""The end of the year 9999, the last that Spark and Python can show."""
_ID_BEFORE_DUE = 19
"""The letters that precede the due time in the id of a message that waited: the entry's id, the queue, `t`."""
_HEX = np.frombuffer(b"0123456789abcdef", np.uint8)
_POWERS_OF_16 = 16 ** np.arange(1, 16, dtype=np.int64)


def unpack(entries: pa.RecordBatch, read_blob: ReadBlob | None = None) -> Iterator[pa.RecordBatch]:
    """Input: entries, `item_schemas.PACKED` without `piece`. For entries without data and with 0 pieces, `read_blob`
    returns the data."""
    is_zstd = pc.equal(entries["codec"], "zstd").to_numpy(zero_copy_only=False)
    sizes = frames.sizes(entries["data"], is_zstd)
    blocks = np.cumsum(sizes.clip(0)) // _BLOCK_BYTES_MAX
    for start, end in pairwise([0, *np.flatnonzero(np.diff(blocks)) + 1, len(entries)]):
        part = entries.slice(start, end - start)
        if (sizes[start:end] == frames.ALONE).any():
            yield from _one_by_one(part, read_blob)
        else:
            yield from _at_once(part, is_zstd[start:end])


def _at_once(entries: pa.RecordBatch, is_zstd: npt.NDArray[np.bool_]) -> Iterator[pa.RecordBatch]:
    packed, small, plain = entries["data"], np.flatnonzero(is_zstd), np.flatnonzero(~is_zstd)
    try:
        blocks = [*frames.inflated(packed, small), *packed.take(pa.array(plain)).to_pylist()]
    except zstandard.ZstdError:
        yield from _one_by_one(entries)
    else:
        yield from _messages(entries.drop_columns(["data"]).take(pa.array(np.append(small, plain))), blocks)


def _one_by_one(entries: pa.RecordBatch, read_blob: ReadBlob | None = None) -> Iterator[pa.RecordBatch]:
    zstd = zstandard.ZstdDecompressor()
    about = entries.drop_columns(["data"])
    taken: list[int] = []
    blocks: list[bytes] = []
    failed: list[tuple[int, str]] = []
    total = 0
    for at, (codec, packed) in enumerate(zip(*(entries[name].to_pylist() for name in ("codec", "data")), strict=True)):
        try:
            plain = _fetched(entries, at, read_blob) if packed is None else packed
            blocks.append(_inflated(zstd, plain) if codec == "zstd" else plain)
        except (ValueError, zstandard.ZstdError) as error:
            failed.append((at, str(error)))
            continue
        taken.append(at)
        total += len(blocks[-1])
        if total >= _BLOCK_BYTES_MAX:
            yield from _messages(about.take(pa.array(taken)), blocks)
            taken, blocks, total = [], [], 0
    yield from _messages(about.take(pa.array(taken, pa.int64())), blocks)
    if failed:
        places, reasons = zip(*failed, strict=True)
        yield _failures(about.take(pa.array(places)), reasons)


def _inflated(zstd: zstandard.ZstdDecompressor, packed: bytes) -> bytes:
    if (size := zstandard.frame_content_size(packed)) > _ZSTD_BYTES_MAX:
        raise ValueError(f"the packed messages are {size} bytes, more than {_ZSTD_BYTES_MAX}")
    return zstd.decompress(packed, _ZSTD_BYTES_MAX, False, False)  # one frame, and nothing behind it


def _fetched(entries: pa.RecordBatch, at: int, read_blob: ReadBlob | None) -> bytes:
    """Fetches the entry's data. Raises `ValueError` with the reason if they are missing."""
    pieces = entries["pieces"][at].as_py()
    if pieces != 0:
        raise ValueError(f"not all of the {pieces} payload items of the entry are in the export")
    if read_blob is None:
        raise ValueError("the messages are in S3: --blobs says where")
    blob = read_blob(entries["topic_id"][at].as_py(), entries["entry_id"][at].as_py())
    if blob is None:
        raise ValueError("the messages are in S3, and were not found there")
    return blob


def _messages(entries: pa.RecordBatch, blocks: Sequence[bytes]) -> Iterator[pa.RecordBatch]:
    """The messages of these blocks of lines, one for each entry. If reading them together fails, it reads half the
    topics at a time, and in the end each entry alone."""
    if not blocks:
        return
    try:
        yield _batch(entries, blocks)
    except _FAILURES as error:
        if len(blocks) == 1:
            yield _failures(entries, [f"the packed messages cannot be read: {str(error).splitlines()[0]}"])
            return
        for half in np.array_split(pc.sort_indices(entries["topic_id"]).to_numpy(), 2):
            yield from _messages(entries.take(pa.array(half)), [blocks[at] for at in half])


def _batch(entries: pa.RecordBatch, blocks: Sequence[bytes]) -> pa.RecordBatch:
    counts = entries["count"].to_numpy().astype(np.int64)
    given = _lines.columns(blocks, counts, entries["topic_id"])
    delayed = given.pop("delayed_id")
    places = np.repeat(np.arange(len(counts)), counts)
    within = np.arange(len(places)) - np.repeat(np.cumsum(counts) - counts, counts)
    offsets = entries["offset"].to_numpy()[places] + within
    given |= _columns(_of_entries(entries).take(pa.array(places)))
    if given["date"].null_count:
        raise ValueError("the time of its storing is out of range")
    given["offset"] = pa.array(offsets)
    spent = pc.add_checked(given["stored_at_ms"], given["ttl_ms"])
    given["expires_at_ms"] = pc.min_element_wise(spent, given["reply_by_ms"])
    own_id = pc.binary_join_element_wise(given.pop("id_head"), _hex(offsets), "")
    given["message_id"] = own_id if delayed.null_count == len(delayed) else pc.coalesce(delayed, own_id)
    given["due_ms"] = _due_ms(delayed)
    return _made(given, len(places))


def _of_entries(entries: pa.RecordBatch) -> pa.RecordBatch:
    """The columns that all messages of an entry share. `id_head`: the beginning of their ids, except of messages that
    waited. `date`: null if the time is out of range."""
    stored = entries["stored_at_ms"]
    ids = _hex_of_bytes(entries["entry_id"])
    queues = pc.utf8_lpad(_hex(entries["queue"].to_numpy().astype(np.int64)), 2, "0")
    heads = pc.binary_join_element_wise(ids, queues, "")
    given = {name: entries[name] for name in ("topic_id", "queue", "stored_at_ms")}
    days = stored.to_numpy() // _DAY_MS
    dates = pa.array(days.clip(0, _LAST_DAY).astype(np.int32), mask=(days < 0) | (days > _LAST_DAY)).cast(pa.date32())
    return pa.RecordBatch.from_pydict({**given, "entry_id": ids, "id_head": heads, "date": dates})


def _due_ms(delayed_ids: pa.StringArray) -> pa.Array:
    """When the messages with these ids were due; null for null."""
    has_waited = delayed_ids.is_valid().to_numpy(zero_copy_only=False)
    due = np.zeros(len(has_waited), np.int64)
    due[has_waited] = [int(text[_ID_BEFORE_DUE:], 16) for text in delayed_ids.drop_null().to_pylist()]
    return pa.array(due, mask=~has_waited)


def _hex(numbers: npt.NDArray[np.int64]) -> pa.StringArray:
    """The hexadecimal text of each number, from 0 on, in small letters and without leading zeros."""
    lengths = 1 + np.searchsorted(_POWERS_OF_16, numbers, side="right")
    places = np.arange(int(lengths.max(initial=1)))[::-1]
    letters = _HEX[(numbers[:, None] >> (4 * places)) & 15]
    text = letters[places < lengths[:, None]].tobytes()
    ends = np.zeros(len(numbers) + 1, np.int32)
    np.cumsum(lengths, out=ends[1:])
    return pa.Array.from_buffers(pa.string(), len(numbers), [None, pa.py_buffer(ends), pa.py_buffer(text)])


def _hex_of_bytes(blobs: pa.BinaryArray) -> pa.StringArray:
    """Two letters a byte."""
    offsets = np.frombuffer(blobs.buffers()[1], np.int32, len(blobs) + 1, blobs.offset * 4)
    data = np.frombuffer(blobs.buffers()[2] or b"", np.uint8)[offsets[0] : offsets[-1]]
    text = _HEX[np.stack([data >> 4, data & 15], axis=1)].tobytes()
    ends = (offsets - offsets[0]) * 2
    return pa.Array.from_buffers(pa.string(), len(blobs), [None, pa.py_buffer(ends), pa.py_buffer(text)])


def _failures(entries: pa.RecordBatch, reasons: Sequence[str]) -> pa.RecordBatch:
    given = {**_columns(_of_entries(entries)), "offset": entries["offset"]}
    parts = [entries["file"], entries["line"], pa.array(reasons, pa.string())]
    given["failure"] = pa.StructArray.from_arrays(parts, fields=list(_SCHEMA.field("failure").type))
    return _made(given, len(entries))


def _columns(batch: pa.RecordBatch) -> Columns:
    return dict(zip(batch.schema.names, batch.columns, strict=True))


def _made(given: Columns, count: int) -> pa.RecordBatch:
    arrays = [given[field.name] if field.name in given else pa.nulls(count, field.type) for field in _SCHEMA]
    return pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA)
