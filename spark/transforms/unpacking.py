"""Unpacks messages: Arrow batches of entries of a log in, batches of messages out.

Packed messages are lines of JSON, one object a message, compressed or not (see docs/table.md). A whole batch is parsed
at once; only when that fails each entry is looked at alone, and one that cannot be unpacked becomes a row that says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import zstandard

from spark.transforms.packed_lines import PackedLines

ReadBlob = Callable[[str, bytes], bytes | None]
"""Topic id and entry id of a body in S3 -> the packed messages; None: it is not there."""

_BLOCK_BYTES_MAX = 4 << 20
"""Packed messages that are parsed at once."""
_ZSTD_BYTES_MAX = 64 << 20
"""No entry unpacks to more: a body has 4 MiB at most, and a call 100 messages."""

_MESSAGE = pa.schema(
    [
        ("topic_id", pa.string()),
        ("queue", pa.int32()),
        ("offset", pa.int64()),
        ("entry_id", pa.binary()),
        ("stored_at_ms", pa.int64()),
        ("delayed_id", pa.string()),
        ("key", pa.string()),
        ("tag", pa.string()),
        ("properties", pa.map_(pa.string(), pa.string())),
        ("body", pa.binary()),
        ("is_text", pa.bool_()),
        ("file", pa.string()),
        ("line", pa.int64()),
        ("reason", pa.string()),
    ]
)
COLUMNS = (
    "topic_id string, queue int, offset bigint, entry_id binary, stored_at_ms bigint, delayed_id string, key string,"
    " tag string, properties map<string, string>, body binary, is_text boolean, file string, line bigint, reason string"
)
"""What comes out. `reason`: why an entry could not be unpacked; then the row stands for all of it."""

_OF_ENTRY = ("topic_id", "queue", "entry_id", "stored_at_ms", "file", "line")
_lines = PackedLines()
_FAILURES = (ValueError, TypeError, AttributeError, KeyError, pa.ArrowException, zstandard.ZstdError)


def inline_entries(segments: pa.RecordBatch) -> pa.RecordBatch:
    """The entries that hold their messages. In: `topic_id`, `segment`, `file`, `line`. Out: what `unpack` takes."""
    segment = segments["segment"]
    lists = pc.struct_field(segment, "entries")
    entries = lists.flatten()
    parents = pc.list_parent_indices(lists)
    counts = pc.struct_field(entries, "count").to_numpy(zero_copy_only=False).astype(np.int64)
    before = np.concatenate([[0], np.cumsum(counts)])
    first = before[(pc.subtract(lists.offsets, lists.offsets[0])).to_numpy()]
    places = parents.to_numpy()
    offsets = pc.struct_field(segment, "base").to_numpy(zero_copy_only=False)[places] + before[:-1] - first[places]
    columns = {name: segments[name].take(parents) for name in ("topic_id", "file", "line")}
    columns |= {"queue": pc.struct_field(segment, "queue").take(parents), "offset": pa.array(offsets, pa.int64())}
    columns |= {name: pc.struct_field(entries, name) for name in ("count", "stored_at_ms", "codec", "data")}
    columns["entry_id"] = pc.struct_field(entries, "id")
    found = pa.RecordBatch.from_pydict(columns)
    return found.filter(found["data"].is_valid())


def unpack(entries: pa.RecordBatch, read_blob: ReadBlob | None = None) -> Iterator[pa.RecordBatch]:
    """In: `topic_id`, `queue`, `offset` (of the first message), `entry_id`, `count`, `stored_at_ms`, `codec`, `data`,
    `file`, `line`; where there are `pieces`, and these are 0, the data are to be read by `read_blob`."""
    taken: list[int] = []
    blocks: list[bytes] = []
    failed: list[tuple[int, str]] = []
    total = 0
    for at, found in enumerate(_blocks(entries, read_blob)):
        if isinstance(found, str):
            failed.append((at, found))
            continue
        taken.append(at)
        blocks.append(found)
        total += len(found)
        if total >= _BLOCK_BYTES_MAX:
            yield from _messages(entries, taken, blocks, failed)
            taken, blocks, total = [], [], 0
    yield from _messages(entries, taken, blocks, failed)
    if failed:
        yield _failures(entries, failed)


def _blocks(entries: pa.RecordBatch, read_blob: ReadBlob | None) -> Iterator[bytes | str]:
    """The packed messages of each entry, or why there are none."""
    inflate = zstandard.ZstdDecompressor().decompress
    names = ("codec", "data", "count")
    for at, (codec, data, count) in enumerate(zip(*(entries[name].to_pylist() for name in names), strict=True)):
        packed = data
        try:
            if packed is None:
                packed = _fetched(entries, at, read_blob)
            plain = inflate(packed, max_output_size=_ZSTD_BYTES_MAX) if codec == "zstd" else packed
        except _FAILURES as error:
            yield str(error)
            continue
        lines = plain.count(b"\n") + 1
        yield plain if lines == count else f"the entry has {lines} messages, and says {count}"


def _fetched(entries: pa.RecordBatch, at: int, read_blob: ReadBlob | None) -> bytes:
    """Raises `ValueError` with the reason when there is nothing to be had."""
    pieces = entries["pieces"][at].as_py() if "pieces" in entries.schema.names else None
    if pieces != 0:
        raise ValueError(f"not all of the {pieces} payload items of the entry are in the export")
    if read_blob is None:
        raise ValueError("the messages are in S3: --blobs says where")
    blob = read_blob(entries["topic_id"][at].as_py(), entries["entry_id"][at].as_py())
    if blob is None:
        raise ValueError("the messages are in S3, and were not found there")
    return blob


def _messages(
    entries: pa.RecordBatch, taken: list[int], blocks: list[bytes], failed: list[tuple[int, str]]
) -> Iterator[pa.RecordBatch]:
    if not taken:
        return
    try:
        yield _batch(entries, taken, blocks)
    except _FAILURES as error:
        if len(taken) == 1:
            failed.append((taken[0], f"the packed messages cannot be read: {str(error).splitlines()[0]}"))
            return
        half = len(taken) // 2
        yield from _messages(entries, taken[:half], blocks[:half], failed)
        yield from _messages(entries, taken[half:], blocks[half:], failed)


def _batch(entries: pa.RecordBatch, taken: list[int], blocks: list[bytes]) -> pa.RecordBatch:
    given = _lines.columns(blocks)
    counts = entries["count"].to_numpy()[taken].astype(np.int64)
    total = int(counts.sum())
    within = np.arange(total) - np.repeat(np.cumsum(counts) - counts, counts)
    places = np.repeat(np.array(taken), counts)
    given |= {name: entries[name].take(pa.array(places)) for name in _OF_ENTRY}
    given["offset"] = pa.array(entries["offset"].to_numpy()[places] + within)
    nothing = pa.nulls(total, pa.string())
    return pa.RecordBatch.from_arrays([given.get(field.name, nothing) for field in _MESSAGE], schema=_MESSAGE)


def _failures(entries: pa.RecordBatch, failed: Iterable[tuple[int, str]]) -> pa.RecordBatch:
    places = [at for at, _ in failed]
    given = {name: entries[name].take(pa.array(places)) for name in (*_OF_ENTRY, "offset")}
    given["reason"] = pa.array([reason for _, reason in failed], pa.string())
    arrays = [given[field.name] if field.name in given else pa.nulls(len(places), field.type) for field in _MESSAGE]
    return pa.RecordBatch.from_arrays(arrays, schema=_MESSAGE)
