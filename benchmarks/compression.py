"""Measures how small and how fast each codec packs entries; `chalicelib.core.log.segment` bases its choice on this."""

from __future__ import annotations

import statistics
import time
import zlib
from collections.abc import Callable

import zstandard

from benchmarks.progress import shown
from benchmarks.report import Cell, size_name, table
from benchmarks.workload import Workload
from chalicelib.core.base.message import Message
from chalicelib.core.log.segment import PLAIN, pack

SIZES = (200, 1_000)
BATCHES = (1, 10, 100)

Codec = Callable[[bytes], bytes]


def _zstd(level: int) -> Codec:
    return lambda data: zstandard.ZstdCompressor(level=level).compress(data)


_CODECS: dict[str, Codec] = {
    "zstd 3": _zstd(3),
    "zstd 9": _zstd(9),
    "zstd 9, compressor kept": zstandard.ZstdCompressor(level=9).compress,
    "zstd 19": _zstd(19),
    "zlib 6": lambda data: zlib.compress(data, 6),
}


def compression(entries: int) -> str:
    rows: list[list[Cell]] = []
    cases = [(size, batch) for size in SIZES for batch in BATCHES]
    for size, batch in shown(cases, len(cases), "compression levels"):
        packed = _entries(size, batch, entries)
        plain_bytes = statistics.fmean(map(len, packed)) / batch
        rows.append([size_name(size), batch, *(_cell(codec, packed, batch, plain_bytes) for codec in _CODECS.values())])
    headers = ["message", "batch", *_CODECS]
    return table("(d) Compression: bytes per message, CPU µs per entry", headers, rows)


def _cell(codec: Codec, entries: list[bytes], batch: int, plain_bytes: float) -> str:
    sizes, cpu = zip(*(_compressed(codec, entry) for entry in entries), strict=True)
    each_bytes = statistics.fmean(sizes) / batch
    return f"{each_bytes:.0f} B ({each_bytes / plain_bytes:.0%}), {1_000_000 * statistics.median(cpu):.0f} µs"


def _compressed(codec: Codec, entry: bytes) -> tuple[int, float]:
    began = time.process_time()
    compressed = codec(entry)
    return len(compressed), time.process_time() - began


def _entries(size: int, batch: int, count: int) -> list[bytes]:
    """The bytes that the service would compress."""
    workload = Workload(size)
    return [_lines(workload.take(batch)) for _ in range(count)]


def _lines(bodies: list[str]) -> bytes:
    codec, data, _ = pack([Message(body, None, None, None, {}) for body in bodies])
    return data if codec == PLAIN else zstandard.ZstdDecompressor().decompress(data)
