"""Messages, packed into the entries of a log as the service packs them (see docs/table.md)."""

from __future__ import annotations

import base64
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import orjson
import zstandard

_LEVEL = 3
"""The service compresses at a higher level, because it pays for storage."""
INLINE_BYTES_MAX = 1_000
PIECE_BYTES = 256 * 1024
_TAGS = (None, None, "created", "paid", "paid", "paid", "shipped", "cancelled")
_KEYS = 500
_LARGE_EVERY, _BINARY_EVERY, _PROPERTIES_EVERY = 499, 97, 13
_NOTES = 256


@dataclass(frozen=True, slots=True)
class Entry:
    """`data`: the packed messages. `pieces` 0: they lie in the entry itself."""

    id: bytes
    count: int
    stored_at_ms: int
    codec: str
    wire_bytes: int
    data: bytes
    pieces: int = 0

    def as_value(self) -> dict[str, Any] | bytes:
        if self.pieces:
            numbers = (self.count, 2), (self.stored_at_ms, 6), (self.wire_bytes, 4), (self.pieces, 1)
            return self.id + b"".join(number.to_bytes(size) for number, size in numbers) + bytes([self.codec == "zstd"])
        head = {"i": self.id, "n": self.count, "at": self.stored_at_ms, "c": self.codec, "w": self.wire_bytes}
        return {**head, "d": self.data}

    @property
    def size(self) -> int:
        """How much the entry fills a segment."""
        if self.pieces:
            return 19
        numbers = _number_bytes(self.count) + _number_bytes(self.stored_at_ms) + _number_bytes(self.wire_bytes)
        return 1 + 3 + 13 + len(self.id) + numbers + len(self.codec) + len(self.data)

    def placed(self, inline_max: int = INLINE_BYTES_MAX) -> Entry:
        """The same entry; if it is too large for a segment, its messages lie in payload items."""
        return self if self.size <= inline_max else replace(self, pieces=-(-len(self.data) // PIECE_BYTES))

    def payloads(self) -> list[bytes]:
        return [self.data[at * PIECE_BYTES : (at + 1) * PIECE_BYTES] for at in range(self.pieces)]


def _number_bytes(value: int) -> int:
    digits = str(value).rstrip("0")
    return 1 + (len(digits) + 1) // 2


class Messages:
    """Makes the messages of a queue, and counts them. Each is made of the bits of one random number."""

    def __init__(self, chance: random.Random, queue: int, queues: int) -> None:
        self._chance, self._queue, self._queues = chance, queue, queues
        self._notes = [_words(chance) for _ in range(_NOTES)]
        self._compressor = zstandard.ZstdCompressor(level=_LEVEL)
        self.tags: Counter[str] = Counter()
        self.body_bytes = 0

    def entry(self, first: int, ids: Sequence[str | None], stored_at_ms: int) -> Entry:
        """Makes an entry of as many messages as there are ids. A message that waited has an id of its own. `first`: the
        offset of the entry."""
        lines = [self._line(first + at, message_id) for at, message_id in enumerate(ids)]
        text = b"\n".join(lines)
        small = self._compressor.compress(text)
        codec, data = ("zstd", small) if len(small) < len(text) else ("json", text)
        wire_bytes = len(text) + text.count(b'"') + text.count(b"\\")
        return Entry(self.entry_id(), len(ids), stored_at_ms, codec, wire_bytes, data)

    def entry_id(self) -> bytes:
        return self._chance.getrandbits(64).to_bytes(8, "big")

    def _line(self, offset: int, message_id: str | None) -> bytes:
        bits = self._chance.getrandbits(60)
        line = self._body(offset, bits)
        if (bits >> 8) & 7:
            line["k"] = self.key(bits)
        tag = _TAGS[(bits >> 11) & 7]
        if tag:
            line["t"] = tag
            self.tags[tag] += 1
        if offset % _PROPERTIES_EVERY == 0:
            line["p"] = {"trace": f"{bits:x}", "source": "synthetic"}
        if message_id:
            line["i"] = message_id
        return orjson.dumps(line)

    def _body(self, offset: int, bits: int) -> dict[str, Any]:
        if offset % _BINARY_EVERY == 1:
            self.body_bytes += 48
            return {"B": base64.b64encode(bits.to_bytes(8, "big") * 6).decode()}
        note = self._notes[bits & 255]
        if offset % _LARGE_EVERY == 2:
            note = f"{self._chance.getrandbits(16_000):x}"
        body = f'{{"order":{offset},"cents":{(bits >> 14) % 100_000},"note":"{note}"}}'
        self.body_bytes += len(body)
        return {"b": body}

    def key(self, bits: int) -> str:
        """A few keys have many messages. Each key is in one queue only."""
        share = ((bits >> 32) & 0xFFFF) / 0x10000
        return f"customer-{int(share * share * share * _KEYS) * self._queues + self._queue}"


def _words(chance: random.Random) -> str:
    words = ("gift", "express", "fragile", "north", "south", "weekend", "door", "office", "return", "invoice")
    return " ".join(f"{chance.choice(words)} {chance.randrange(1_000)}" for _ in range(chance.randrange(3, 14)))
