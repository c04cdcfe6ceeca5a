"""The log of a queue: a chain of segments, each a list of entries, each the messages of one append.

A segment's key is the offset of its first message, and a full segment's `end` is the key of the next one, so every
writer computes the same key and offsets are dense without a head item. `docs/table.md` lists the attributes.

The messages of an entry are newline-delimited JSON, one object a message, so that a pipeline can parse it in bulk: `b`
body as text, or `B` body in base64, then `k` key, `t` tag and `p` properties if given, `i` and `s`, the id of a delayed
message and when it was sent, `l`, the time to live, and `q` and `u`, the correlation id of a request and when it ends.
The lines are compressed with zstd if that makes them smaller; the codec is named beside the data. Storage is billed by
the kilobyte: level 9 costs 0.4 ms for 24 KB and saves a tenth over level 3 (see benchmarks/README.md).
"""

from __future__ import annotations

import base64
import threading
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from struct import Struct
from typing import Any

import orjson
import zstandard

from chalicelib.core.base.limits import KIB
from chalicelib.core.base.message import Message, carried_bytes
from chalicelib.core.base.records import record
from chalicelib.core.table import keys, writes
from chalicelib.core.table.writes import Item, Write

PLAIN = "json"
ZSTD = "zstd"
_LEVEL = 9


class _Zstd(threading.local):
    """A context serves one thread, and creating one takes longer than packing a message."""

    def __init__(self) -> None:
        self.compressor = zstandard.ZstdCompressor(level=_LEVEL)
        self.decompressor = zstandard.ZstdDecompressor()


_zstd = _Zstd()


def pack(messages: Sequence[Message]) -> tuple[str, bytes, int]:
    """Returns the codec, the data, and the most bytes that the messages take in a response."""
    lines = b"\n".join(orjson.dumps(_line(message)) for message in messages)
    small = _zstd.compressor.compress(lines)
    codec, data = (ZSTD, small) if len(small) < len(lines) else (PLAIN, lines)
    return codec, data, carried_bytes(lines)


def unpack(codec: str, data: bytes) -> list[Message]:
    """Raises ValueError if these are not packed messages."""
    try:
        lines = _zstd.decompressor.decompress(data) if codec == ZSTD else data
        return [_message(orjson.loads(line)) for line in lines.split(b"\n")]
    except (zstandard.ZstdError, LookupError, TypeError, AttributeError) as error:
        raise ValueError(f"these are not packed messages: {error}") from error


def _line(message: Message) -> dict[str, Any]:
    line: dict[str, Any] = {}
    if message.data is None:
        line["b"] = message.text
    else:
        line["B"] = base64.b64encode(message.data).decode()
    if message.key is not None:
        line["k"] = message.key
    if message.tag is not None:
        line["t"] = message.tag
    if message.properties:
        line["p"] = message.properties
    if message.delayed_id is not None:
        line["i"] = message.delayed_id
    if message.sent_at_ms is not None:
        line["s"] = message.sent_at_ms
    if message.ttl_ms is not None:
        line["l"] = message.ttl_ms
    if message.correlation_id is not None:
        line["q"], line["u"] = message.correlation_id, message.reply_by_ms
    return line


def _message(line: dict[str, Any]) -> Message:
    text = line.get("b")
    if text is not None and not isinstance(text, str):
        raise TypeError("a text body is not text")
    data = None if text is not None else base64.b64decode(line["B"])
    return Message(
        text,
        data,
        line.get("k"),
        line.get("t"),
        line.get("p", {}),
        delayed_id=line.get("i"),
        ttl_ms=line.get("l"),
        correlation_id=line.get("q"),
        reply_by_ms=line.get("u"),
        sent_at_ms=line.get("s"),
    )


SEGMENT_FULL_BYTES = 700
"""A segment with this many bytes of entries is full. With one more small entry and its keys it still fits the kilobyte
of one write unit. No segment has more than 37 entries: the smallest counts 19 bytes."""
PIECE_BYTES_MAX = 256 * KIB
"""The data of one payload item. DynamoDB accepts 400 KB; some emulators count base64, and accept about 300 KB of
data."""
_NAMES_BYTES = 17
"""The names of an entry's attributes, as DynamoDB counts them in a list of maps."""
_RARE_NAME_BYTES = 2
"""The same for each rare attribute."""
_UNCOUNTED_BYTES = 4
"""Bytes of a pointer that do not count. Thus 37 pointers, one for each of 37 writers, fill a segment, and it still fits
the kilobyte: when writers contend, all but tiny entries are pointers."""

_POINTER, _TIME_BYTES = Struct(">8sH6sIBB"), 6
"""Id, count, time, wire bytes, pieces, flags; then the rare times that the flags announce."""
_IS_ZSTD, _HAS_LEAST_TTL, _HAS_FIRST_SENT = 1, 2, 4
"""The flags of a pointer. Five are free."""


@record
class Entry:
    """The messages that one append put into a queue: of a produce call, or of several that met. Either `data` holds
    them, or `pieces` payload items.

    `least_ttl_ms`: the shortest time to live of a message. None: no message has one. `first_sent_at_ms`: when the first
    of the messages that waited was sent. None: no message waited."""

    id: bytes
    count: int
    stored_at_ms: int
    codec: str
    wire_bytes: int
    data: bytes | None
    pieces: int = 0
    least_ttl_ms: int | None = None
    first_sent_at_ms: int | None = None

    @classmethod
    def packed(cls, entry_id: bytes, messages: Sequence[Message], now: int) -> Entry:
        codec, data, wire_bytes = pack(messages)
        lives = [ms for message in messages if (ms := message.lives_ms(now)) is not None]
        sent = [message.sent_at_ms for message in messages if message.sent_at_ms is not None]
        rare = min(lives, default=None), min(sent, default=None)
        return cls(entry_id, len(messages), now, codec, wire_bytes, data, 0, *rare)

    @classmethod
    def of(cls, value: Item | bytes) -> Entry:
        if isinstance(value, bytes):
            return _pointer(value)
        head = (value["i"], value["n"], value["at"], value["c"], value["w"], value["d"])
        return cls(*head, 0, value.get("l"), value.get("s"))

    def as_value(self) -> dict[str, Any] | bytes:
        """The entry as an attribute or a list element. Equal entries have equal values, so an append recognizes its own
        entry."""
        if self.data is None:
            return self._as_pointer()
        head = {"i": self.id, "n": self.count, "at": self.stored_at_ms, "c": self.codec, "w": self.wire_bytes}
        rare = {"l": self.least_ttl_ms, "s": self.first_sent_at_ms}
        return {**head, "d": self.data, **{name: value for name, value in rare.items() if value is not None}}

    def _as_pointer(self) -> bytes:
        rare = ((_HAS_LEAST_TTL, self.least_ttl_ms), (_HAS_FIRST_SENT, self.first_sent_at_ms))
        flags = sum(flag for flag, ms in rare if ms is not None) + (_IS_ZSTD if self.codec == ZSTD else 0)
        stored_at = self.stored_at_ms.to_bytes(_TIME_BYTES, "big")
        head = _POINTER.pack(self.id, self.count, stored_at, self.wire_bytes, self.pieces, flags)
        return head + b"".join(ms.to_bytes(_TIME_BYTES, "big") for _, ms in rare if ms is not None)

    def may_have_expired(self, now: int) -> bool:
        """Whether the time to live of one of its messages is over."""
        return self.least_ttl_ms is not None and self.stored_at_ms + self.least_ttl_ms <= now

    def may_be_purged(self, purged_at_ms: int | None) -> bool:
        """Whether one of its messages has waited, and was sent before a purge at this time."""
        sent_at_ms = self.first_sent_at_ms
        return sent_at_ms is not None and purged_at_ms is not None and sent_at_ms <= purged_at_ms

    @property
    def size(self) -> int:
        """Its bytes in a segment, as DynamoDB counts them; for a pointer, a few less."""
        rare = [number for number in (self.least_ttl_ms, self.first_sent_at_ms) if number is not None]
        if self.data is None:
            return 1 + _POINTER.size + len(rare) * _TIME_BYTES - _UNCOUNTED_BYTES
        numbers = [self.count, self.stored_at_ms, self.wire_bytes, *rare]
        content = len(self.id) + len(self.codec) + len(self.data)
        names = _NAMES_BYTES + len(rare) * _RARE_NAME_BYTES
        return names + content + _numbers_bytes(numbers)

    def pointing(self, pieces: int) -> Entry:
        """The same entry with its messages in a payload."""
        return replace(self, data=None, pieces=pieces)


def _pointer(packed: bytes) -> Entry:
    entry_id, count, stored_at, wire_bytes, pieces, flags = _POINTER.unpack_from(packed)
    starts = range(_POINTER.size, len(packed), _TIME_BYTES)
    times = [int.from_bytes(packed[start : start + _TIME_BYTES], "big") for start in starts]
    least_ttl_ms = times.pop(0) if flags & _HAS_LEAST_TTL else None
    first_sent_at_ms = times.pop(0) if flags & _HAS_FIRST_SENT else None
    codec, stored_at_ms = ZSTD if flags & _IS_ZSTD else PLAIN, int.from_bytes(stored_at, "big")
    return Entry(entry_id, count, stored_at_ms, codec, wire_bytes, None, pieces, least_ttl_ms, first_sent_at_ms)


def _numbers_bytes(numbers: Sequence[int]) -> int:
    """One for each two significant digits, and one more for each number."""
    return sum([1 + (len(str(number).rstrip("0")) + 1) // 2 for number in numbers])


def pieces_of(data: bytes) -> list[bytes]:
    return [data[at : at + PIECE_BYTES_MAX] for at in range(0, len(data), PIECE_BYTES_MAX)]


@record
class Segment:
    log: str
    base: int
    end: int
    filled_bytes: int
    entries: tuple[Entry, ...]
    is_closed: bool = False
    left: int | None = None
    """Identifies the closing of a queue that has left its topic; None: the segment is open, or the topic deleted."""

    @classmethod
    def of(cls, item: Item) -> Segment:
        entries = tuple(map(Entry.of, item["entries"]))
        base = keys.number_of(item["sk"])
        return cls(item["pk"], base, item["end"], item["bytes"], entries, "closed" in item, item.get("left"))

    @property
    def key(self) -> writes.Key:
        return keys.segment(self.log, self.base)

    @property
    def is_sealed(self) -> bool:
        """Whether the log continues in the next segment."""
        return not self.is_closed and self.filled_bytes >= SEGMENT_FULL_BYTES

    @cached_property
    def placed(self) -> tuple[tuple[int, Entry], ...]:
        """The entries, each with the offset of its first message."""
        placed, offset = [], self.base
        for entry in self.entries:
            placed.append((offset, entry))
            offset += entry.count
        return tuple(placed)

    def offset_of(self, entry_id: bytes) -> int | None:
        """Searches from the end, where the caller of an append finds its own entry."""
        for offset, entry in reversed(self.placed):
            if entry.id == entry_id:
                return offset
        return None


HAS_ROOM = writes.Either(writes.Absent(("end",)), writes.AtMost(("bytes",), SEGMENT_FULL_BYTES - 1))
"""This guard depends only on the segment, not on the entry: a segment once seen full is full for every late request."""


def append(log: str, base: int, entry: Entry, may_create: bool) -> Write:
    """Appends to the open segment. The item after the write shows the offset.

    If the write is rejected, it returns a full segment, at whose `end` the log continues, or none if there had to be
    one. Only a writer that has just seen the previous segment full, or a queue without segments, may create one."""
    value = entry.as_value()
    is_known: tuple[writes.Guard, ...] = () if may_create else (writes.Exists(("end",)),)
    return Write(
        keys.segment(log, base),
        (*is_known, HAS_ROOM, writes.Lacks(("entries",), value)),
        (
            writes.Add(("end",), entry.count, start=base),
            writes.Append(("entries",), [value]),
            writes.Add(("bytes",), entry.size),
        ),
        landed=lambda before: value in before.get("entries", ()),
    )


def close(log: str, base: int, ttl: int) -> Write:
    """Ends the log of a deleted topic: this segment accepts no more entries, so no segment follows it. If the write is
    rejected, it returns a full segment, at whose `end` the log continues."""
    return Write(
        keys.segment(log, base),
        (HAS_ROOM,),
        (
            writes.Add(("end",), 0, start=base),
            writes.Append(("entries",), []),
            writes.Add(("bytes",), SEGMENT_FULL_BYTES),
            writes.Set(("closed",), True),
            writes.Set(("ttl",), ttl),
        ),
        landed=lambda before: "closed" in before,
    )


def leave(log: str, last: Segment | None, by: int) -> Write:
    """Closes the log of a queue that leaves its topic, if it still ends where this last segment says. The segment then
    counts as full for every late append. `by`: unique among the closings of this log."""
    base = 0 if last is None else last.end if last.is_sealed else last.base
    if last is not None and last.left is not None:  # no append came since the queue returned
        return Write(last.key, (writes.Equals(("left",), last.left),), (writes.Set(("left",), by),))
    is_at_end = writes.Equals(("end",), last.end if last else 0)
    return Write(
        keys.segment(log, base),
        (writes.Absent(("closed",)), writes.Either(writes.Absent(("end",)), is_at_end)),
        (
            writes.Add(("end",), 0, start=base),
            writes.Append(("entries",), []),
            writes.Add(("bytes",), SEGMENT_FULL_BYTES),
            writes.Set(("closed",), True),
            writes.Set(("left",), by),
        ),
    )


def reopen(closed: Segment) -> Write:
    """Continues the log of a queue that has returned: behind a segment with messages, which stays full, so that no
    append of before can land there; in a segment without any. Refused if the queue has left again."""
    is_empty = closed.end == closed.base
    return Write(
        closed.key,
        (writes.Equals(("left",), closed.left or 0),),
        (
            writes.Remove(("closed",)),
            writes.Remove(("left",)),
            *((writes.Set(("bytes",), 0),) if is_empty else ()),
        ),
    )


def close_left(closed: Segment, ttl: int) -> Write:
    """Ends the log of a queue that had left its topic for good, since the topic is deleted."""
    return Write(
        closed.key,
        (writes.Equals(("left",), closed.left or 0),),
        (writes.Remove(("left",)), writes.Set(("ttl",), ttl)),
    )


def empty(segment: Segment, ttl: int) -> Write:
    """Empties a segment of a closed log, but keeps where the log continues or that it ends."""
    return Write(
        segment.key,
        (writes.Exists(("end",)),),
        (writes.Set(("entries",), []), writes.Set(("bytes",), SEGMENT_FULL_BYTES), writes.Set(("ttl",), ttl)),
    )
