"""Entries as Arrow batches in, messages out; what cannot be unpacked is a row that says why, and nothing beside it."""

from __future__ import annotations

import gzip
from random import Random
from typing import Any
from unittest.mock import Mock

import numpy as np
import orjson
import pyarrow as pa
import pytest
import zstandard

from spark.unpacking import frames, message_lines
from spark.unpacking.entries import SCHEMA
from spark.unpacking.message_lines import PackedLines
from spark.unpacking.unpack import unpack

AT_MS = 1_767_225_600_000
GOOD = {"codec": "json", "data": b'{"b":"good"}'}


def unpacked(*entries: dict[str, Any]) -> list[dict[str, Any]]:
    about = {"topic_id": "t", "entry_id": b"\x01" * 8, "queue": 3, "count": 1, "stored_at_ms": AT_MS, "file": "f"}
    rows = [{**about, "offset": at * 100, "line": at + 1, **entry} for at, entry in enumerate(entries)]
    batches = unpack(pa.RecordBatch.from_pylist(rows, schema=SCHEMA))
    return [row for batch in batches for row in batch.to_pylist()]


def zstd(plain: bytes, states_size: bool = True) -> dict[str, Any]:
    return {"codec": "zstd", "data": zstandard.ZstdCompressor(write_content_size=states_size).compress(plain)}


@pytest.mark.parametrize("queue", [0, 3, 15, 16, 127, 255, 300])
def test_a_message_has_the_id_of_its_entry_queue_and_offset(queue: int) -> None:
    (row,) = unpacked({**GOOD, "queue": queue, "offset": 4_095})
    assert row["message_id"] == f"{'01' * 8}{queue:02x}fff"
    assert (row["entry_id"], row["body"], row["is_text"], row["due_ms"]) == ("01" * 8, b"good", True, None)


def test_a_message_that_waited_keeps_its_id_which_says_when_it_was_due() -> None:
    waited, other = unpacked(
        {"codec": "json", "count": 2, "data": b'{"b":"a","i":"0123456789abcdef02tff","s":200}\n{"b":"b"}'}
    )
    assert (waited["message_id"], waited["due_ms"], waited["sent_at_ms"]) == ("0123456789abcdef02tff", 255, 200)
    assert (other["message_id"], other["due_ms"], other["sent_at_ms"]) == ("01" * 8 + "031", None, None)
    assert other["offset"] == 1


def test_delivery_ends_with_the_time_to_live_or_the_deadline() -> None:
    lines: list[dict[str, Any]] = [
        {"l": 5000},
        {"q": "id", "u": AT_MS + 700},
        {"q": "id", "u": AT_MS + 700, "l": 100},
        {},
    ]
    data = b"\n".join(orjson.dumps({"b": "x", **line}) for line in lines)
    rows = unpacked({"codec": "json", "count": 4, "data": data})
    assert [row["expires_at_ms"] for row in rows] == [AT_MS + 5000, AT_MS + 700, AT_MS + 100, None]
    assert [row["ttl_ms"] for row in rows] == [5000, None, 100, None]
    assert [row["correlation_id"] for row in rows] == [None, "id", "id", None]


@pytest.mark.parametrize("states_size", [True, False])
def test_what_is_compressed_is_inflated(states_size: bool) -> None:
    assert [row["body"] for row in unpacked(GOOD, zstd(b'{"b":"x"}', states_size))] == [b"good", b"x"]


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (zstd(b'{"b":"x"}') | {"count": 2}, "has 1 messages, and says 2"),
        ({"codec": "zstd", "data": zstd(b'{"b":"x"}')["data"] + b"junk"}, "unused"),
        ({"codec": "zstd", "data": zstd(b'{"b":"x"}')["data"][:-1]}, ""),
        ({"codec": "zstd", "data": gzip.compress(b'{"b":"x"}')}, ""),
        ({"codec": "zstd", "data": b"\x28\xb5\x2f\xfd\xe0" + (1 << 45).to_bytes(8, "little")}, "35184372088832 bytes"),
        ({"codec": "json", "data": b'{"b":"x"'}, "cannot be read"),
        ({"codec": "json", "data": b'{"b":"x","B":"eA=="}'}, "one body"),
        ({"codec": "json", "data": b'{"b":null}'}, "one body"),
        ({"codec": "json", "data": b'{"B":"eA"}'}, "cannot be read"),
        ({"codec": "json", "data": b'{"b":7}'}, "cannot be read"),
        ({"codec": "json", "data": b'{"b":"x","i":""}'}, "cannot be read"),
        ({"codec": "json", "data": b'{"b":"x","i":"0123456789abcdef02t' + b"f" * 20 + b'"}'}, "cannot be read"),
        ({**GOOD, "stored_at_ms": 371_086_902_374_400_000}, "out of range"),
        ({**GOOD, "stored_at_ms": -1}, "out of range"),
    ],
)
def test_an_entry_that_cannot_be_unpacked_says_why_and_spoils_no_other(bad: dict[str, Any], reason: str) -> None:
    rows = unpacked(GOOD, bad, GOOD)
    assert [row["offset"] for row in rows if row["failure"] is None] == [0, 200]
    (failed,) = [row for row in rows if row["failure"]]
    assert (failed["offset"], failed["failure"]["file"], failed["failure"]["line"]) == (100, "f", 2)
    assert reason in failed["failure"]["reason"]


def test_properties_with_any_names_are_kept_however_many_there_are() -> None:
    names = [{f"n{at}": str(at)} if at % 3 else {} for at in range(200)]
    entries = [
        {"codec": "json", "data": orjson.dumps({"b": "x", "p": properties} if properties else {"b": "x"})}
        for properties in names
    ]
    assert [dict(row["properties"]) for row in unpacked(*entries, *entries)] == names * 2


@pytest.mark.parametrize("seed", range(2))
def test_what_is_inflated_at_once_is_as_inflated_alone(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    random = Random(seed)
    entries = [_any_entry(random) for _ in range(200)]
    at_once = unpacked(*entries) + [row for entry in entries for row in unpacked(entry)]
    monkeypatch.setattr(frames, "sizes", lambda packed, _: np.full(len(packed), frames.ALONE))
    alone = unpacked(*entries) + [row for entry in entries for row in unpacked(entry)]
    assert sorted(at_once, key=repr) == sorted(alone, key=repr)
    assert {row["failure"] is None for row in alone} == {True, False}


def _any_entry(random: Random) -> dict[str, Any]:
    """An entry of any size, compressed in any way or not at all; sometimes with one byte changed, or with bytes missing
    or added."""
    lines = [{"b": random.randbytes(random.choice((0, 20, 300, 3000))).hex()} for _ in range(random.choice((1, 2, 90)))]
    plain = b"\n".join(map(orjson.dumps, lines))
    states_size, has_checksum = random.random() < 0.9, random.random() < 0.1
    packed = zstandard.ZstdCompressor(9, None, None, has_checksum, states_size).compress(plain)
    about = {"count": len(lines) + (random.random() < 0.05), "offset": 0, "line": 1}
    entry: dict[str, Any] = (
        {"codec": "zstd", "data": packed} if random.random() < 0.8 else {"codec": "json", "data": plain}
    )
    if random.random() < 0.2:
        at, other = random.randrange(len(entry["data"])), random.choice((b"", b"\0", b"\n", random.randbytes(1)))
        entry["data"] = entry["data"][:at] + other + entry["data"][at + random.choice((0, 1, 5000)) :]
    return {**about, **entry}


def test_only_what_is_as_the_service_packs_it_is_inflated_at_once() -> None:
    packed = [
        zstandard.ZstdCompressor(9, write_content_size=states_size).compress(b"a\n" * (size // 2))
        for size, states_size in [(100, True), (600, True), (70_000, True), (300_000, True), (600, False)]
    ]
    zstd = [*packed, packed[0] + b"x", packed[0][:-1], b"", None]
    expected = [100, 600, 70_000, *[frames.ALONE] * 6]
    assert frames.sizes(pa.array(zstd, pa.binary()), np.full(len(zstd), True)).tolist() == expected
    assert frames.sizes(pa.array([b"", None, b"abc"]), np.full(3, False)).tolist() == [0, frames.ALONE, 3]


def test_a_topic_with_many_names_does_not_slow_the_others_down(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spark.unpacking.unpack._lines", PackedLines())
    named = {str(topic): [f"{topic} {at}" for at in range(100 if topic == 7 else 3)] for topic in range(40)}
    entries = []
    for topic, names in named.items():
        lines = [orjson.dumps({"b": "x", "p": {name: "y"}}) for name in names * (300 // len(names))]
        entries.append({"codec": "json", "data": b"\n".join(lines), "count": 300, "topic_id": topic})
    first, by_line = unpacked(*entries), Mock(wraps=message_lines._parsed_by_line)
    monkeypatch.setattr(message_lines, "_parsed_by_line", by_line)
    again = unpacked(*entries)
    for rows in (first, again):
        found = {(row["topic_id"], *row["properties"][0]) for row in rows}
        assert found == {(topic, name, "y") for topic, names in named.items() for name in names}
        assert len(rows) == 300 * len(named)
    ((text, count),) = [call.args for call in by_line.call_args_list]
    assert entries[7]["data"] in text
    assert count < 1_000
