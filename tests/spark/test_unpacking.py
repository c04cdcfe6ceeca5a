"""Entries as Arrow batches in, messages out; what cannot be unpacked is a row that says why, and nothing beside it."""

from __future__ import annotations

import gzip
from typing import Any

import orjson
import pyarrow as pa
import pytest
import zstandard

from spark.unpacking.entries import SCHEMA
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
    waited, other = unpacked({"codec": "json", "count": 2, "data": b'{"b":"a","i":"0123456789abcdef02tff"}\n{"b":"b"}'})
    assert (waited["message_id"], waited["due_ms"]) == ("0123456789abcdef02tff", 255)
    assert (other["message_id"], other["due_ms"], other["offset"]) == ("01" * 8 + "031", None, 1)


def test_delivery_ends_with_the_time_to_live_or_the_deadline() -> None:
    lines = [{"l": 5000}, {"q": "id", "u": AT_MS + 700}, {"q": "id", "u": AT_MS + 700, "l": 100}, {}]
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
