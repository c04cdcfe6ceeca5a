"""Writers and readers agree on where a segment ends."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chalicelib.core.base.limits import KIB, OFFSET_MAX
from chalicelib.core.log.segment import (
    HAS_ROOM,
    SEGMENT_FULL_BYTES,
    Entry,
    Segment,
    append,
    close,
    close_left,
    empty,
    leave,
    reopen,
)
from chalicelib.core.log.writer import CROWDED_BYTES_MAX
from chalicelib.core.table import keys
from chalicelib.core.table.writes import Item, Write
from local.memory.evaluate import after, holds
from local.memory.sizes import item_bytes

ENTRIES = st.builds(
    Entry,
    st.binary(min_size=8, max_size=8),
    st.integers(1, 256),
    st.just(1_700_000_000_000),
    st.sampled_from(["json", "zstd"]),
    st.integers(1, 10**6),
    st.none() | st.binary(max_size=400),
)


def filled(base: int, entries: list[Entry]) -> tuple[Item | None, list[Entry]]:
    """A segment after these appends, and those that it did not take."""
    item: Item | None = None
    refused = []
    for entry in entries:
        write = append("log", base, entry, may_create=item is None)
        if all(holds(guard, item) for guard in write.guards):
            assert not write.landed(item or {})
            item = after(item, write)
            assert write.landed(item or {})
        else:
            refused.append(entry)
    return item, refused


@given(st.integers(0, 10**6), st.lists(ENTRIES, min_size=1, max_size=40, unique_by=lambda entry: entry.id))
def test_writers_find_a_segment_full_when_readers_find_it_sealed(base: int, entries: list[Entry]) -> None:
    item, refused = filled(base, entries)
    assert item is not None
    segment = Segment.of(item)
    assert list(segment.entries) == entries[: len(entries) - len(refused)]
    assert segment.is_sealed or not refused
    late = append("log", base, Entry(b"late" * 2, 1, 0, "json", 1, b""), may_create=False)
    assert all(holds(guard, item) for guard in late.guards) == (not segment.is_sealed)
    assert len(segment.entries) <= 37


@given(st.integers(0, 10**6), st.lists(ENTRIES, min_size=1, max_size=40, unique_by=lambda entry: entry.id))
def test_offsets_in_a_segment_are_dense(base: int, entries: list[Entry]) -> None:
    item, _ = filled(base, entries)
    segment = Segment.of(item or {})
    expected = base
    for offset, entry in segment.placed:
        assert offset == expected == segment.offset_of(entry.id)
        expected += entry.count
    assert segment.end == expected
    assert segment.offset_of(b"nobody's") is None


@given(st.lists(ENTRIES, min_size=1, max_size=40, unique_by=lambda entry: entry.id))
def test_the_bytes_of_a_segment_are_those_of_its_entries(entries: list[Entry]) -> None:
    item, _ = filled(0, entries)
    segment = Segment.of(item or {})
    assert segment.filled_bytes == sum(entry.size for entry in segment.entries)
    pointers = sum(entry.data is None for entry in segment.entries)
    overhead = item_bytes(item or {}) - segment.filled_bytes - 4 * pointers
    assert overhead < 100
    before_last = segment.filled_bytes - segment.entries[-1].size
    assert before_last < SEGMENT_FULL_BYTES


def test_pointers_of_37_writers_fit_one_write_unit() -> None:
    pointers = [Entry(number.to_bytes(8), 256, 1_700_000_000_123, "zstd", 10**6, None, 16) for number in range(40)]
    item, refused = filled(10**12, pointers)
    segment = Segment.of({**keys.segment("log#0123456789abcdef#127", 10**12)._asdict(), **(item or {})})
    assert (segment.is_sealed, list(segment.entries), refused) == (True, pointers[:37], pointers[37:])
    assert item_bytes(item or {}) <= KIB


@given(st.lists(ENTRIES.filter(lambda entry: entry.size <= CROWDED_BYTES_MAX), min_size=1, max_size=40))
def test_a_segment_in_which_writers_meet_is_written_by_the_unit(entries: list[Entry]) -> None:
    item, _ = filled(10**12, entries)
    assert item_bytes(item or {}) <= KIB


@pytest.mark.parametrize("is_closed", [False, True])
@pytest.mark.parametrize("size", range(SEGMENT_FULL_BYTES - 3, SEGMENT_FULL_BYTES + 4))
def test_a_segment_has_room_until_it_is_sealed(size: int, is_closed: bool) -> None:
    closed = {"closed": True} if is_closed else {}
    segment = Segment.of(item := {**keys.segment("log", 5)._asdict(), "end": 9, "bytes": size, "entries": [], **closed})
    assert segment.is_sealed == (size >= SEGMENT_FULL_BYTES and not is_closed)
    assert holds(HAS_ROOM, item) == (size < SEGMENT_FULL_BYTES)


@given(ENTRIES)
def test_an_entry_that_stands_is_not_appended_again(entry: Entry) -> None:
    item, refused = filled(0, [entry, entry])
    assert refused == [entry]
    assert append("log", 0, entry, may_create=True).landed(item or {})


@given(ENTRIES)
def test_only_an_allowed_writer_makes_a_segment(entry: Entry) -> None:
    assert not all(holds(guard, None) for guard in append("log", 5, entry, may_create=False).guards)
    assert all(holds(guard, None) for guard in append("log", 5, entry, may_create=True).guards)
    assert not append("log", 5, entry, may_create=False).landed({})


@given(st.integers(0, OFFSET_MAX), st.integers(0, OFFSET_MAX))
def test_keys_of_segments_are_in_the_order_of_offsets(one: int, other: int) -> None:
    first, second = keys.segment("log", one), keys.segment("log", other)
    assert (first.sk < second.sk) == (one < other)
    assert keys.number_of(first.sk) == one
    assert keys.FIRST <= first.sk <= keys.LAST


def left(seen: Item | None, by: int) -> Item:
    return after(seen, leave("log", Segment.of(seen) if seen else None, by)) or {}


def states() -> dict[str, Item | None]:
    """The states of the first segment of a log. A queue leaves, returns, and leaves again."""
    entries = [Entry(b"an entry", size, 1, "json", 1, b"x" * size) for size in (9, SEGMENT_FULL_BYTES)]
    new, full = (after(None, append("log", 0, entry, may_create=True)) for entry in entries)
    gone, gone_empty = left(new, 5), left(None, 5)
    back, back_empty = (after(item, reopen(Segment.of(item))) for item in (gone, gone_empty))
    known = {"missing": None, "new": new, "full": full, "gone": gone, "gone empty": gone_empty, "back": back}
    known |= {"back empty": back_empty, "gone again": left(back, 9)}
    return known | {"closed": after(new, close("log", 0, 1)), "ended": after(gone, close_left(Segment.of(gone), 1))}


def writes(states: dict[str, Item | None]) -> dict[str, tuple[Write, set[str]]]:
    """Writes that may be on their way to a segment, and the states in which they may land."""
    entry, gone, new = Entry(b"another.", 1, 1, "json", 1, b"x"), Segment.of(states["gone"] or {}), states["new"] or {}
    is_open = {"new", "back empty"}
    return {
        "an append that may create": (append("log", 0, entry, may_create=True), {"missing", *is_open}),
        "an append": (append("log", 0, entry, may_create=False), is_open),
        "a closing": (close("log", 0, 1), {"missing", *is_open}),
        "a leaving of what is empty": (leave("log", None, 7), {"missing", "back empty"}),
        "a leaving": (leave("log", Segment.of(new), 7), {"missing", "new", "back"}),
        "a leaving of what has left": (leave("log", gone, 7), {"gone", "gone empty"}),
        "an opening": (reopen(gone), {"gone", "gone empty"}),
        "the end of what has left": (close_left(gone, 1), {"gone", "gone empty"}),
        "an emptying": (empty(gone, 1), states.keys() - {"missing"}),
    }


def test_a_late_write_lands_in_no_other_state_of_a_segment() -> None:
    known = states()
    for name, (write, expected) in writes(known).items():
        landing = {state for state, item in known.items() if all(holds(guard, item) for guard in write.guards)}
        assert landing == expected, name


def test_segments_of_logs_that_end_or_stop_for_a_while() -> None:
    known = states()
    segments = {name: Segment.of(item) for name, item in known.items() if item}
    assert {name for name, segment in segments.items() if segment.is_closed} == {
        *("gone", "gone empty", "gone again", "closed", "ended")
    }
    assert {name: segment.left for name, segment in segments.items() if segment.left is not None} == {
        "gone": 5,
        "gone empty": 5,
        "gone again": 9,
    }
    assert {name for name, segment in segments.items() if segment.is_sealed} == {"full", "back"}
    assert {name for name, item in known.items() if close("log", 0, 1).landed(item or {})} == {
        name for name, segment in segments.items() if segment.is_closed
    }
    assert leave("log", segments["full"], 7).key == keys.segment("log", segments["full"].end)
    assert leave("log", segments["new"], 7).key == keys.segment("log", 0)
