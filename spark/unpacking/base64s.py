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
    """The bytes of each text; null stays null. Raises `ValueError` if a text is not base64.

    All texts are decoded as one: each is padded to a multiple of four letters, so none reaches into the next. It drops
    the bytes of the padding afterwards."""
    texts = texts if isinstance(texts, pa.Array) else texts.combine_chunks()
    offsets = np.frombuffer(texts.buffers()[1], np.int32, len(texts) + 1, texts.offset * 4)
    if np.any(np.diff(offsets) % 4):
        raise ValueError("not base64: a length is not a multiple of four")
    letters = memoryview(texts.buffers()[2] or b"")[int(offsets[0]) : int(offsets[-1])].tobytes()
    offsets = offsets - offsets[0]
    pads = _pads(np.frombuffer(letters, np.uint8), offsets)
    plain = binascii.a2b_base64(letters.translate(_UNPAD), strict_mode=True) if letters else b""
    if len(plain) != len(letters) // 4 * 3 or letters.count(b"=") != int(pads.sum()):
        raise ValueError("not base64: there is another character")
    return _without_pads(plain, offsets // 4 * 3, pads, texts)


def _pads(letters: Numbers, offsets: Numbers) -> Numbers:
    """The number of padding letters at the end of each text."""
    pads = np.zeros(len(offsets) - 1, np.int32)
    some = np.diff(offsets) > 0
    ends = offsets[1:][some]
    last = letters[ends - 1] == _PAD
    pads[some] = last.astype(np.int32) + (last & (letters[ends - 2] == _PAD))
    return pads


def _without_pads(plain: bytes, offsets: Numbers, pads: Numbers, texts: pa.StringArray) -> pa.BinaryArray:
    """Returns the texts alone: texts and the bytes of their padding alternate."""
    count = len(pads)
    bounds = np.empty(2 * count + 1, np.int32)
    bounds[0::2] = offsets
    bounds[1::2] = offsets[1:] - pads
    both = pa.Array.from_buffers(pa.binary(), 2 * count, [None, pa.py_buffer(bounds), pa.py_buffer(plain)])
    is_null = texts.is_null().to_numpy(zero_copy_only=False)
    return both.take(pa.array(np.arange(0, 2 * count, 2), mask=is_null))
