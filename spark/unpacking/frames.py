"""Packed messages of many entries, inflated at once, on Arrow's own buffers.

The service compresses messages to frames of zstd that all look alike: a header that tells the size, and one block.
Of such frames the size and the end can be told without a call for each. All others are `ALONE`."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import zstandard

Numbers = npt.NDArray[Any]

ALONE = -1
"""In the place of a size: these data must be inflated, and checked, by themselves."""

_MAGIC = 0xFD2FB528
_SIZE_BYTES = {0x20: 1, 0x60: 2, 0xA0: 4}
"""Descriptors of a header with nothing but the size, and the bytes that it has."""
_BLOCK_BYTES_MAX = 128 << 10
"""The most that one block inflates to."""
_ONLY_BLOCK = 0b101
"""The last one, and compressed: the lower bits of a block's header; the others are its size."""


def sizes(packed: pa.BinaryArray, is_zstd: npt.NDArray[np.bool_]) -> Numbers:
    """The bytes that each of the packed messages inflates to, or `ALONE`."""
    starts, lengths, data = _bounds(packed)
    last = len(data) - 1

    def number(at: int | Numbers, size: int) -> Numbers:
        """The number at these bytes of each frame; arbitrary if the frame is shorter."""
        parts = [data[np.minimum(starts + at + byte, last)].astype(np.int64) << 8 * byte for byte in range(size)]
        return np.asarray(sum(parts))

    descriptor, size, width = number(4, 1), number(5, 4), np.zeros_like(starts)
    for kind, given in _SIZE_BYTES.items():
        width[descriptor == kind] = given
    size = (size & (1 << 8 * width) - 1) + np.where(descriptor == 0x60, 256, 0)
    block = number(5 + width, 3)
    is_usual = (number(0, 4) == _MAGIC) & (width > 0) & (size <= _BLOCK_BYTES_MAX)
    is_usual &= (block & 7 == _ONLY_BLOCK) & (lengths == 8 + width + (block >> 3))
    is_there = packed.is_valid().to_numpy(zero_copy_only=False)
    return np.where(is_there, np.where(is_zstd, np.where(is_usual, size, ALONE), lengths), ALONE)


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
