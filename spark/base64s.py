"""Base64 of a whole column at once."""

from __future__ import annotations

import binascii
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Numbers = npt.NDArray[Any]

_PAD = ord("=")
_UNPAD = bytes.maketrans(b"=", b"A")


def decoded(texts: pa.StringArray) -> pa.BinaryArray:
    """The bytes of each text; null stays null. Raises `ValueError` when one is no base64.

    All texts are decoded as one: each is padded to a multiple of four letters, so none reaches into the next. What
    the padding stood for is cut out afterwards."""
    texts = texts if isinstance(texts, pa.Array) else texts.combine_chunks()
    offsets = np.frombuffer(texts.buffers()[1], np.int32, len(texts) + 1, texts.offset * 4)
    lengths = np.diff(offsets)
    if np.any(lengths % 4):
        raise ValueError("no base64: a length is no multiple of four")
    begin, end = int(offsets[0]), int(offsets[-1])
    letters = memoryview(texts.buffers()[2] or b"")[begin:end].tobytes()
    ends = offsets[1:][lengths > 0] - begin
    pads = _pads(np.frombuffer(letters, np.uint8), ends)
    plain = binascii.a2b_base64(letters.translate(_UNPAD), strict_mode=True) if letters else b""
    if len(plain) != len(letters) // 4 * 3 or letters.count(b"=") != int(pads.sum()):
        raise ValueError("no base64: there is another character")
    sizes = lengths // 4 * 3
    sizes[lengths > 0] -= pads
    return _array(_without_pads(plain, ends // 4 * 3, pads), sizes, texts)


def _pads(letters: Numbers, ends: Numbers) -> Numbers:
    """How many of the last letters of each text are padding."""
    last = letters[ends - 1] == _PAD
    pads: Numbers = last.astype(np.int32) + (last & (letters[ends - 2] == _PAD))
    return pads


def _without_pads(plain: bytes, ends: Numbers, pads: Numbers) -> bytes:
    kept = np.ones(len(plain), bool)
    kept[ends[pads > 0] - 1] = False
    kept[ends[pads > 1] - 2] = False
    return np.frombuffer(plain, np.uint8)[kept].tobytes()


def _array(data: bytes, sizes: Numbers, like: pa.Array) -> pa.BinaryArray:
    offsets = np.zeros(len(sizes) + 1, np.int32)
    np.cumsum(sizes, out=offsets[1:])
    valid = pa.py_buffer(np.packbits(like.is_valid().to_numpy(zero_copy_only=False), bitorder="little").tobytes())
    buffers = [valid if like.null_count else None, pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), len(sizes), buffers)
