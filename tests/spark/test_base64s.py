"""Base64 of a column, as Python's own decodes each text of it."""

from __future__ import annotations

import base64

import pyarrow as pa
import pytest

from spark.unpacking.base64s import decoded

BLOBS = [b"", None, b"a", b"ab", b"abc", b"\xff" * 4, None, b"=" * 5, bytes(range(256))]
TEXTS = pa.array([None if blob is None else base64.b64encode(blob).decode() for blob in BLOBS])


@pytest.mark.parametrize("first", range(len(BLOBS) + 1))
def test_every_text_becomes_its_bytes_and_null_stays_null(first: int) -> None:
    assert decoded(TEXTS[first:]).to_pylist() == BLOBS[first:]
    assert decoded(TEXTS[:first]).to_pylist() == BLOBS[:first]


@pytest.mark.parametrize("text", ["YQ", "YQ=", "Y=Q=", "====", "YQ==YQ==", "Y Q=", "Y\nQ=", "é=="])
def test_what_is_no_base64_is_refused_wherever_it_stands(text: str) -> None:
    for texts in ([text], ["YQ==", text], [text, "YWI="], [None, text, ""]):
        with pytest.raises(ValueError, match="base64"):
            decoded(pa.array(texts, pa.string()))
