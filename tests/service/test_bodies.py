"""Bodies come out byte for byte as they went in, on every store."""

from __future__ import annotations

import base64
from collections.abc import Callable
from random import Random

import pytest

from chalicelib.api import Api
from chalicelib.core.base.limits import BODY_BYTES_MAX
from tests.store.conftest import moto_store, store

__all__ = ["moto_store", "store"]

Instance = Callable[[], Api]

BODIES = {
    "every byte value": bytes(range(256)),
    "one zero byte": b"\0",
    "4 MiB that nothing can compress": Random(4).randbytes(BODY_BYTES_MAX),
    "4 MiB that compress well": b"decant " * (BODY_BYTES_MAX // 7),
    "more than one piece, just so": Random(5).randbytes(256 * 1024 * 3 // 4 + 1),
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES.keys())
def test_bytes_come_back_unchanged(instance: Instance, topic: str, body: bytes) -> None:
    api = instance()
    api.put_topic(topic, {})
    api.put_group(topic, "g", {})
    api.produce(topic, {"messages": [{"body_base64": base64.b64encode(body).decode()}]})
    (message,) = instance().pop(topic, "g", {})["messages"]
    assert base64.b64decode(message["body_base64"]) == body
    assert "body" not in message


def test_text_comes_back_as_the_same_text(instance: Instance, topic: str) -> None:
    text = "".join(map(chr, range(1, 0x3000))) + "\U0001f377" * 1_000
    api = instance()
    api.put_topic(topic, {})
    api.put_group(topic, "g", {})
    api.produce(topic, {"messages": [{"body": text, "key": text[:80], "properties": {text[:50]: text[50:90]}}]})
    (message,) = instance().pop(topic, "g", {})["messages"]
    assert (message["body"], message["key"], message["properties"]) == (text, text[:80], {text[:50]: text[50:90]})
