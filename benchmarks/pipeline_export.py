"""Exports for the benchmark of the pipeline: messages in entries of so many, as the service packs them."""

from __future__ import annotations

import base64
import gzip
import hashlib
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any, BinaryIO

import orjson
import zstandard

INLINE_BYTES_MAX, SEGMENT_FULL_BYTES = 1_000, 700
TOPIC_ID = "abcdefgh"
AT_MS = 1_767_225_600_000
FILES = 8


def export(folder: Path, total: int, per_entry: int) -> Path:
    """An export of one topic of eight queues, one data file a queue: written while it is made."""
    (folder / "data").mkdir(parents=True)
    listed = [_data_file(folder, queue, total // FILES, per_entry) for queue in range(FILES)]
    _manifest(folder / "manifest-files.json", b"".join(orjson.dumps(listing) + b"\n" for listing in listed))
    items = sum(listing["itemCount"] for listing in listed)
    summary = {"exportTime": "2026-01-02T00:00:00Z", "itemCount": items, "outputFormat": "DYNAMODB_JSON"}
    _manifest(folder / "manifest-summary.json", orjson.dumps(summary))
    return folder


def _data_file(folder: Path, queue: int, total: int, per_entry: int) -> dict[str, Any]:
    path = folder / "data" / f"{queue}.json.gz"
    count = 0
    with path.open("wb") as raw, gzip.GzipFile(fileobj=raw, mode="wb", compresslevel=6) as file:
        for item in _items(queue, total, per_entry):
            _write(file, item)
            count += 1
    return {
        "itemCount": count,
        "md5Checksum": _md5(path),
        "etag": "0-1",
        "dataFileS3Key": f"AWSDynamoDB/{folder.name}/data/{path.name}",
    }


def _write(file: gzip.GzipFile | BinaryIO, item: dict[str, Any]) -> None:
    file.write(orjson.dumps({"Item": item}) + b"\n")


def _items(queue: int, total: int, per_entry: int) -> Iterator[dict[str, Any]]:
    chance, compress = Random(queue), zstandard.ZstdCompressor(level=3).compress
    if queue == 0:
        settings = {"queues": FILES, "retention_ms": 1, "created_at_ms": 1, "version": 0}
        numbers = {name: _n(value) for name, value in settings.items()}
        yield {"pk": _s("topics"), "sk": _s("orders"), "id": _s(TOPIC_ID), "index_keys": {"BOOL": False}, **numbers}
    base, filled = 0, 0
    entries: list[dict[str, Any]] = []
    for first in range(0, total, per_entry):
        lines = b"\n".join(_line(first + at, chance) for at in range(per_entry))
        small = compress(lines)
        codec, data = ("zstd", small) if len(small) < len(lines) else ("json", lines)
        entry_id = chance.randbytes(8)
        if is_pointer := len(data) > INLINE_BYTES_MAX:
            yield {"pk": _s(f"payload#{TOPIC_ID}#{entry_id.hex()}"), "sk": _s("00"), "data": _b(data)}
            entries.append(_b(_pointer(entry_id, per_entry, AT_MS + first, len(lines), codec)))
        else:
            head = {"i": _b(entry_id), "n": _n(per_entry), "at": _n(AT_MS + first), "c": _s(codec), "w": _n(len(lines))}
            entries.append({"M": {**head, "d": _b(data)}})
        filled += 19 if is_pointer else 60 + len(data)
        if filled >= SEGMENT_FULL_BYTES or first + per_entry >= total:
            end = base + per_entry * len(entries)
            key = {"pk": _s(f"log#{TOPIC_ID}#{queue}"), "sk": _s(f"{base:015d}")}
            yield {**key, "end": _n(end), "bytes": _n(filled), "entries": {"L": entries}}
            base, filled, entries = end, 0, []


def _pointer(entry_id: bytes, count: int, at_ms: int, wire_bytes: int, codec: str) -> bytes:
    numbers = (count, 2), (at_ms, 6), (wire_bytes, 4), (1, 1), (codec == "zstd", 1)
    return entry_id + b"".join(number.to_bytes(size) for number, size in numbers)


def _line(number: int, chance: Random) -> bytes:
    customer = f"c-{chance.randrange(1_000_000):06d}"
    body = (
        f'{{"order":{number},"total":{chance.randrange(99999)},"customer":"{customer}","note":"leave it at the door"}}'
    )
    return orjson.dumps(
        {"b": body, "k": customer, "t": chance.choice(("new", "paid")), "p": {"region": f"eu-{number % 5}"}}
    )


def _s(text: str) -> dict[str, str]:
    return {"S": text}


def _n(number: int) -> dict[str, str]:
    return {"N": str(number)}


def _b(data: bytes) -> dict[str, str]:
    return {"B": base64.b64encode(data).decode()}


def _manifest(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    path.with_suffix(".md5").write_text(_md5(path))


def _md5(path: Path) -> str:
    with path.open("rb") as file:
        return base64.b64encode(hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).digest()).decode()
