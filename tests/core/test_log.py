"""Writers and readers agree on where a segment ends."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from chalicelib.base.limits import OFFSET_MAX
from chalicelib.log.segment import SEGMENT_ENTRIES_MAX, SEGMENT_FULL_BYTES, Entry, Segment, append
from chalicelib.table import keys
from chalicelib.table.writes import Item
from local.memory.evaluate import after, holds
from local.memory.sizes import item_bytes

ENTRIES = st.builds(
    Entry,
    st.binary(min_size=8, max_size=8),
    st.integers(1, 256),
    st.just(1_700_000_000_000),
    st.sampled_from(["json", "zstd"]),
    st.integers(1, 10**6),
    st.binary(max_size=400),
)


def filled(base: int, entries: list[Entry]) -> tuple[Item | None, list[Entry]]:
    """A segment after these appends, and those that it did not take."""
    item: Item | None = None
    refused = []
    for entry in entries:
        write = append("log", base, entry, may_create=item is None)
        if all(holds(guard, item) for guard in write.guards):
            assert not write.landed(item)
            item = after(item, write)
            assert write.landed(item)
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
    assert len(segment.entries) <= SEGMENT_ENTRIES_MAX


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
    overhead = item_bytes(item or {}) - segment.filled_bytes
    assert overhead < 100
    before_last = segment.filled_bytes - segment.entries[-1].size
    assert before_last < SEGMENT_FULL_BYTES


@given(ENTRIES)
def test_an_entry_that_stands_is_not_appended_again(entry: Entry) -> None:
    item, refused = filled(0, [entry, entry])
    assert refused == [entry]
    assert append("log", 0, entry, may_create=True).landed(item)


@given(ENTRIES)
def test_only_an_allowed_writer_makes_a_segment(entry: Entry) -> None:
    assert not all(holds(guard, None) for guard in append("log", 5, entry, may_create=False).guards)
    assert all(holds(guard, None) for guard in append("log", 5, entry, may_create=True).guards)
    assert not append("log", 5, entry, may_create=False).landed(None)


@given(st.integers(0, OFFSET_MAX), st.integers(0, OFFSET_MAX))
def test_keys_of_segments_are_in_the_order_of_offsets(one: int, other: int) -> None:
    first, second = keys.segment("log", one), keys.segment("log", other)
    assert (first.sk < second.sk) == (one < other)
    assert keys.number_of(first.sk) == one
    assert keys.FIRST <= first.sk <= keys.LAST
