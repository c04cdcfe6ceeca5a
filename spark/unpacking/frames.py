"""Packed messages of many entries, inflated at once, on Arrow's own buffers.

The service compresses messages to zstd frames of one form: a header with the size, and one block. This module finds the
size and the end of such frames without a call for each. All other frames are `ALONE`."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import zstandard

Numbers = npt.NDArray[Any]

ALONE = -1
"""In place of a size: these data must be inflated and checked alone."""

_MAGIC = 0xFD2FB528
_HEADERS = {_MAGIC | descriptor << 32: size_bytes for descriptor, size_bytes in ((0x20, 1), (0x60, 2), (0xA0, 4))}
"""The prefixes of headers that have only the size, and the bytes that it takes."""
_HEADER_BYTES = 5
_SIZE_BASE = 256
"""The base of a size of two bytes."""
_BLOCK_BYTES_MAX = 128 << 10
"""The most that one block inflates to."""
_BLOCK_HEADER_BYTES = 3
_ONLY_BLOCK = 0b101
"""The last one, and compressed: the lower bits of a block's header; the others are its size."""


def sizes(packed: pa.BinaryArray, is_zstd: npt.NDArray[np.bool_]) -> Numbers:
    """The bytes that each of the packed messages inflates to, or `ALONE`."""
    starts, lengths, data = _bounds(packed)
    words = np.ndarray(max(len(data) - 7, 1), "<i8", data if len(data) > 7 else bytes(8), strides=(1,))

    def word(at: int | Numbers) -> Numbers:
        """The eight bytes there of each frame, as a number; arbitrary if the data end before."""
        return words[np.minimum(starts + at, len(words) - 1)]

    header, width = word(0) & 0xFF_FFFF_FFFF, np.zeros_like(starts)
    for usual, size_bytes in _HEADERS.items():
        width[header == usual] = size_bytes
    size = (word(_HEADER_BYTES) & (1 << 8 * width) - 1) + np.where(width == 2, _SIZE_BASE, 0)
    block = word(_HEADER_BYTES + width) & 0xFF_FFFF
    is_usual = (width > 0) & (size <= _BLOCK_BYTES_MAX) & (block & 7 == _ONLY_BLOCK)
    is_usual &= lengths == _HEADER_BYTES + width + _BLOCK_HEADER_BYTES + (block >> 3)
    is_there = packed.is_valid().to_numpy(zero_copy_only=False)
    return np.where(is_there & (is_usual | ~is_zstd), np.where(is_zstd, size, lengths), ALONE)


def inflated(packed: pa.BinaryArray, which: Numbers) -> list[Any]:
    """Inflates the frames in these rows to buffers of bytes. None of them is to be inflated `ALONE`. Raises
    `ZstdError`."""
    if not len(which):
        return []
    starts, lengths, _ = _bounds(packed)
    segments = np.stack([starts[which], lengths[which]], axis=1).astype("<u8").tobytes()
    frames = zstandard.BufferWithSegments(packed.buffers()[2], segments)
    buffers = zstandard.ZstdDecompressor().multi_decompress_to_buffer(frames)
    return [buffers[at] for at in range(len(which))]


def _bounds(blobs: pa.BinaryArray) -> tuple[Numbers, Numbers, Numbers]:
    """Where each of the blobs begins in the data, its length, and the data."""
    offsets = np.frombuffer(blobs.buffers()[1], np.int32, len(blobs) + 1, blobs.offset * 4).astype(np.int64)
    return offsets[:-1], np.diff(offsets), np.frombuffer(blobs.buffers()[2] or b"\0", np.uint8)
