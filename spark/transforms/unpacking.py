"""Unpacks messages: Arrow batches of entries of a log in, batches of messages out.

Packed messages are lines of JSON, one object a message, compressed or not (see docs/table.md). A whole batch is parsed
at once; only when that fails each entry is looked at alone, and one that cannot be unpacked becomes a row that says so.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
import zstandard

ReadBlob = Callable[[str, bytes], bytes | None]
"""Topic id and entry id of a body in S3 -> the packed messages; None: it is not there."""

_LINES_MAX = 20_000
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
    lines: list[list[bytes]] = []
    failed: list[tuple[int, str]] = []
    total = 0
    for at, found in enumerate(_lines_of_each(entries, read_blob)):
        if isinstance(found, str):
            failed.append((at, found))
            continue
        taken.append(at)
        lines.append(found)
        total += len(found)
        if total >= _LINES_MAX:
            yield from _messages(entries, taken, lines, failed)
            taken, lines, total = [], [], 0
    yield from _messages(entries, taken, lines, failed)
    if failed:
        yield _failures(entries, failed)


def _lines_of_each(entries: pa.RecordBatch, read_blob: ReadBlob | None) -> Iterator[list[bytes] | str]:
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
        lines = plain.split(b"\n")
        yield lines if len(lines) == count else f"the entry has {len(lines)} messages, and says {count}"


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
    entries: pa.RecordBatch, taken: list[int], lines: list[list[bytes]], failed: list[tuple[int, str]]
) -> Iterator[pa.RecordBatch]:
    if not taken:
        return
    try:
        yield _batch(entries, taken, lines)
    except _FAILURES as error:
        if len(taken) == 1:
            failed.append((taken[0], f"the packed messages cannot be read: {str(error).splitlines()[0]}"))
            return
        half = len(taken) // 2
        yield from _messages(entries, taken[:half], lines[:half], failed)
        yield from _messages(entries, taken[half:], lines[half:], failed)


def _batch(entries: pa.RecordBatch, taken: list[int], lines: list[list[bytes]]) -> pa.RecordBatch:
    parsed = orjson.loads(b"[" + b",".join(chain.from_iterable(lines)) + b"]")
    counts = np.fromiter(map(len, lines), np.int64, len(lines))
    if len(parsed) != counts.sum():
        raise ValueError("a line is not one object")
    within = np.arange(len(parsed)) - np.repeat(np.cumsum(counts) - counts, counts)
    places = np.repeat(np.array(taken), counts)
    given = {name: entries[name].take(pa.array(places)) for name in _OF_ENTRY}
    given["offset"] = pa.array(entries["offset"].to_numpy()[places] + within)
    given |= _contents(parsed)
    nothing = pa.nulls(len(parsed), pa.string())
    return pa.RecordBatch.from_arrays([given.get(field.name, nothing) for field in _MESSAGE], schema=_MESSAGE)


def _contents(parsed: list[dict[str, Any]]) -> dict[str, pa.Array]:
    texts = [message.get("b") for message in parsed]
    bodies = pa.array(texts, pa.string()).cast(pa.binary())
    is_text = bodies.is_valid()
    if bodies.null_count:
        blobs = [None if "b" in message else base64.b64decode(message["B"], validate=True) for message in parsed]
        bodies = pc.coalesce(bodies, pa.array(blobs, pa.binary()))
    texts_of = {"delayed_id": "i", "key": "k", "tag": "t"}
    named = {
        name: pa.array([message.get(short) for message in parsed], pa.string()) for name, short in texts_of.items()
    }
    return {
        **named,
        "properties": _maps([message.get("p") or {} for message in parsed]),
        "body": bodies,
        "is_text": is_text,
    }


def _maps(properties: list[dict[str, str]]) -> pa.MapArray:
    offsets = np.zeros(len(properties) + 1, np.int32)
    np.cumsum(np.fromiter(map(len, properties), np.int32, len(properties)), out=offsets[1:])
    names = pa.array(list(chain.from_iterable(properties)), pa.string())
    values = pa.array(list(chain.from_iterable(each.values() for each in properties)), pa.string())
    return pa.MapArray.from_arrays(pa.array(offsets), names, values)


def _failures(entries: pa.RecordBatch, failed: Iterable[tuple[int, str]]) -> pa.RecordBatch:
    places = [at for at, _ in failed]
    given = {name: entries[name].take(pa.array(places)) for name in (*_OF_ENTRY, "offset")}
    given["reason"] = pa.array([reason for _, reason in failed], pa.string())
    arrays = [given[field.name] if field.name in given else pa.nulls(len(places), field.type) for field in _MESSAGE]
    return pa.RecordBatch.from_arrays(arrays, schema=_MESSAGE)
