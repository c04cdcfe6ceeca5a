"""Packed messages come out as they went in."""

from __future__ import annotations

from random import Random
from typing import Any

import orjson
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from chalicelib.core.base.cache import Caches
from chalicelib.core.base.limits import (
    INSTANT_MS_MAX,
    KIB,
    MESSAGE_OVERHEAD_BYTES,
    RESPONSE_BODY_BYTES_MAX,
    RESPONSE_JSON_BYTES_MAX,
    TTL_MS_MAX,
)
from chalicelib.core.base.message import LOST, Message, Space, Stored
from chalicelib.core.log.payloads import Payloads, payload_keys
from chalicelib.core.log.segment import PIECE_BYTES_MAX, PLAIN, ZSTD, Entry, pack, pieces_of, unpack
from local.memory.sizes import value_bytes
from local.memory.store import MemoryStore
from tests.support.late_store import LateStore

TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
OPTIONAL = st.none() | TEXTS.filter(bool)
PROPERTIES = st.dictionaries(TEXTS, TEXTS, max_size=4)
SENT = st.none() | st.integers(0, INSTANT_MS_MAX)
RARE = {"delayed_id": OPTIONAL, "ttl_ms": st.none() | st.integers(1, TTL_MS_MAX), "sent_at_ms": SENT}
TEXT_MESSAGES = st.builds(Message, TEXTS.filter(bool), st.none(), OPTIONAL, OPTIONAL, PROPERTIES, **RARE)
DATA_MESSAGES = st.builds(
    Message, st.none(), st.binary(min_size=1, max_size=200), OPTIONAL, OPTIONAL, PROPERTIES, **RARE
)
BATCHES = st.lists(TEXT_MESSAGES | DATA_MESSAGES, min_size=1, max_size=8)


@given(BATCHES)
def test_messages_come_out_as_they_went_in(messages: list[Message]) -> None:
    codec, data, _ = pack(messages)
    assert unpack(codec, data) == messages


@given(BATCHES, st.integers(1, 40))
def test_repeated_messages_are_compressed(messages: list[Message], times: int) -> None:
    codec, data, wire_bytes = pack(messages * times)
    assert unpack(codec, data) == messages * times
    assert len(data) <= wire_bytes
    assert codec in (PLAIN, ZSTD)


@given(BATCHES)
def test_a_pipeline_can_read_it_line_by_line(messages: list[Message]) -> None:
    codec, data, wire_bytes = pack(messages)
    lines = zstandard.decompress(data) if codec == ZSTD else data
    assert len(lines) + lines.count(b'"') + lines.count(b"\\") == wire_bytes
    parsed = [orjson.loads(line) for line in lines.split(b"\n")]
    assert [set(line) <= {"b", "B", "k", "t", "p", "i", "s", "l"} for line in parsed] == [True] * len(messages)
    assert [line["b"].encode() for line in parsed if "b" in line] == [
        each.body for each in messages if each.data is None
    ]


@given(st.binary(max_size=100), st.integers(0, 3))
def test_pieces_make_up_the_whole(data: bytes, megabytes: int) -> None:
    whole = data + bytes(megabytes * 1_000_000)
    pieces = pieces_of(whole)
    assert b"".join(pieces) == whole
    assert all(0 < len(piece) <= 256 * 1024 for piece in pieces)


@given(BATCHES, st.binary(min_size=8, max_size=8), st.integers(0, 10**13))
def test_an_entry_comes_back_from_its_item(messages: list[Message], entry_id: bytes, now: int) -> None:
    made = Entry.packed(entry_id, messages, now)
    assert Entry.of(made.as_value()) == made
    pointing = made.pointing(2)
    assert Entry.of(pointing.as_value()) == pointing
    bounded = [(made, made.size), (made, made.size - 1), (pointing, 0)]
    assert Payloads(MemoryStore(), Caches()).spill("topic", bounded, ttl=0) == [made, made.pointing(1), pointing]


@given(
    BATCHES,
    st.binary(min_size=8, max_size=8),
    st.integers(10**12, 10**13).filter(lambda now: now % 10),
    st.integers(1, 16),
)
def test_an_entry_fills_a_segment_by_its_size_and_a_pointer_by_less(
    messages: list[Message], entry_id: bytes, now: int, pieces: int
) -> None:
    made = Entry.packed(entry_id, messages, now)
    for entry, less in ((made, 0), (made.pointing(pieces), 4)):
        assert entry.size == 1 + value_bytes(entry.as_value()) - less


@given(BATCHES, st.integers(0, 3_000))
def test_messages_that_surely_fit_do_fit(messages: list[Message], room: int) -> None:
    """`Space.holds` looks at the packed length only, and must never promise too much."""
    stored = [Stored(message, 0, offset, bytes(8), 0) for offset, message in enumerate(messages)]
    body_bytes = room + MESSAGE_OVERHEAD_BYTES * len(messages)
    space = Space(body_bytes, body_bytes * RESPONSE_JSON_BYTES_MAX // RESPONSE_BODY_BYTES_MAX)
    if space.holds(Entry.packed(bytes(8), messages, 0).wire_bytes, len(messages)):
        assert space.fitting(stored) == len(messages)


@given(BATCHES, st.integers(0, 3_000), st.integers(0, 5_000))
def test_as_many_messages_from_the_first_fit_as_there_is_room_for(
    messages: list[Message], body: int, json: int
) -> None:
    stored = [Stored(message, 0, offset, bytes(8), 0) for offset, message in enumerate(messages)]
    space = Space(body, json)
    count = space.fitting(stored)
    rest = [space.after(stored[:length]) for length in range(len(stored) + 1)]
    assert all(min(each.body_bytes, each.json_bytes) >= 0 for each in rest[1 : count + 1])
    assert count == len(stored) or min(rest[count + 1].body_bytes, rest[count + 1].json_bytes) < 0


@given(TEXT_MESSAGES)
def test_the_first_message_of_a_response_always_fits(message: Message) -> None:
    big = Message("x" * (RESPONSE_BODY_BYTES_MAX + 1), None, message.key, message.tag, message.properties)
    stored = [Stored(each, 0, 0, bytes(8), 0) for each in (big, message)]
    assert Space().fitting(stored) == 1
    assert Space().after(stored[1:]).fitting(stored[:1]) == 0


def test_an_entry_tells_when_one_of_its_messages_may_be_over() -> None:
    def of(*members: dict[str, Any]) -> Entry:
        return Entry.packed(b"an entry", [Message("a", None, None, None, {}, **each) for each in members], 100)

    brief, plain = of({}, {"ttl_ms": 9}, {"ttl_ms": 5}), of({})
    assert [brief.may_have_expired(now) for now in (104, 105)] == [False, True]
    waited = of({}, {"sent_at_ms": 9}, {"sent_at_ms": 7})
    assert [waited.may_be_purged(at_ms) for at_ms in (None, 6, 7)] == [False, False, True]
    assert not plain.may_have_expired(10**15)
    assert not plain.may_be_purged(10**15)


@pytest.mark.parametrize("codec", [PLAIN, ZSTD])
@pytest.mark.parametrize("data", [b"", b"{", b"{}", b"[]", b"1", b'{"b":1}', b'{"B":1}'])
def test_what_are_no_packed_messages_is_refused(codec: str, data: bytes) -> None:
    with pytest.raises(ValueError, match=r"packed|JSON|Input|unexpected"):
        unpack(codec, data)


@pytest.mark.parametrize(
    ("pieces", "keeps_blobs", "in_items", "expected"),
    [(1, True, (), 1), (2, True, (), 0), (2, True, (True,), 2), (2, False, (), 2)],
)
def test_a_payload_of_several_pieces_goes_to_s3_where_it_may(
    pieces: int, keeps_blobs: bool, in_items: tuple[bool, ...], expected: int
) -> None:
    store, messages = (
        MemoryStore(keeps_blobs=keeps_blobs),
        [Message(None, Random(1).randbytes(size), None, None, {}) for size in (9, pieces * PIECE_BYTES_MAX - KIB)],
    )
    [spilled] = Payloads(store, Caches()).spill("topic", [(Entry.packed(b"an entry", messages, 0), 0)], 1, *in_items)
    assert spilled.pieces == expected
    assert all(item["ttl"] == 1 for items in store._items.values() for item in items.values())
    assert Payloads(store, Caches()).messages("topic", [spilled]) == {spilled.id: messages}
    Payloads(store, Caches()).remove("topic", [spilled])
    assert not store._blobs
    assert not any(store._items.values())


def test_a_payload_without_one_of_its_pieces_is_lost_until_it_has_expired() -> None:
    store, bodies = MemoryStore(), (Random(1).randbytes(size) for size in (9, 2 * PIECE_BYTES_MAX - KIB))
    made = Entry.packed(b"an entry", [Message(None, body, None, None, {}) for body in bodies], 5)
    [spilled] = Payloads(store, Caches()).spill("topic", [(made, 0)], 1)
    store.remove_all(payload_keys("topic", [spilled])[1:])
    for expired_ms, expected in ((4, {spilled.id: [LOST, LOST]}), (5, {})):
        assert Payloads(store, Caches()).messages("topic", [spilled], expired_ms) == expected


def test_all_messages_of_a_damaged_payload_are_lost() -> None:
    store, made = MemoryStore(), Entry.packed(b"an entry", [Message("a", None, None, None, {})] * 2, 0)
    [spilled] = Payloads(store, Caches()).spill("topic", [(made, 0)], 1)
    [key] = payload_keys("topic", [spilled])
    store.put_all([{**key._asdict(), "data": b"\0damaged"}])
    assert Payloads(store, Caches()).messages("topic", [spilled]) == {spilled.id: [LOST, LOST]}


def test_a_payload_that_a_replica_does_not_show_yet_is_not_lost() -> None:
    store, messages = LateStore(), [Message("a", None, None, None, {})]
    made = [(Entry.packed(entry_id, messages, 0), 0) for entry_id in (b"entry: 1", b"entry: 2")]
    spilled = Payloads(store, Caches()).spill("topic", made[:1], 1)
    store.fall_behind()
    spilled += Payloads(store, Caches()).spill("topic", made[1:], 1)
    assert Payloads(store, Caches()).messages("topic", spilled) == {each.id: messages for each in spilled}
