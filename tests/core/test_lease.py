"""A lease says the same in whatever order its marks arrived, and every message of it has one fate."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chalicelib.core.base.limits import INSTANT_MS_MAX
from chalicelib.core.cursors.lease import (
    ACKED,
    MOVED,
    SPLIT_CHARS,
    TOKEN_CHARS,
    Lease,
    delivery,
    mark,
    parked,
    runs,
    set_aside,
)
from tests.support.clock import Clock

COUNT = 20
INDEXES = st.sets(st.integers(0, COUNT - 1), min_size=1)
LETTERS = st.sampled_from([ACKED, MOVED])
MARKS = st.lists(st.builds(mark, LETTERS, INDEXES), max_size=8)


def lease(*marks: bytes, token: str = "token") -> Lease:
    return Lease(token, 100, COUNT, 1_000, 1, marks)


@given(LETTERS, st.sets(st.integers(0, 255), min_size=1))
def test_a_mark_names_just_its_indexes(letter: bytes, indexes: set[int]) -> None:
    marked = Lease("token", 0, 256, 1_000, 1, (mark(letter, indexes),))
    assert (marked.acked if letter == ACKED else marked.moved) == indexes
    assert set(marked.owed) == set(range(256)) - indexes


@given(MARKS)
def test_every_message_is_owed_or_acked_or_moved(marks: list[bytes]) -> None:
    marked = lease(*marks)
    fates = [set(marked.owed), marked.acked, marked.moved]
    assert sum(map(len, fates)) == COUNT
    assert set().union(*fates) == set(range(COUNT))


@given(MARKS, st.randoms(use_true_random=False))
def test_owed_offsets_do_not_depend_on_the_order_of_marks(marks: list[bytes], chance: Random) -> None:
    shuffled = chance.sample(marks, len(marks))
    assert lease(*shuffled).owed == lease(*marks).owed


@given(LETTERS, st.lists(INDEXES, max_size=8), st.randoms(use_true_random=False))
def test_marks_of_one_kind_commute(letter: bytes, sets: list[set[int]], chance: Random) -> None:
    marks = [mark(letter, indexes) for indexes in sets]
    one, other = lease(*marks), lease(*chance.sample(marks, len(marks)))
    assert (one.acked, one.moved) == (other.acked, other.moved)


@given(st.lists(st.tuples(LETTERS, INDEXES), max_size=8))
def test_the_first_mark_that_names_a_message_decides(marks: list[tuple[bytes, set[int]]]) -> None:
    marked = lease(*(mark(letter, indexes) for letter, indexes in marks))
    for index in range(COUNT):
        first = next((letter for letter, indexes in marks if index in indexes), None)
        assert (index in marked.acked, index in marked.moved) == (first == ACKED, first == MOVED)


@given(MARKS, LETTERS, INDEXES)
def test_a_later_mark_never_changes_a_fate(marks: list[bytes], letter: bytes, indexes: set[int]) -> None:
    before, after = lease(*marks), lease(*marks, mark(letter, indexes))
    assert before.acked <= after.acked
    assert before.moved <= after.moved
    assert set(before.owed) - set(after.owed) == set(before.owed) & indexes


@given(MARKS, st.sampled_from(["token", "~token"]), st.none() | st.integers(0, 2_000))
def test_a_lease_comes_back_from_its_list(marks: list[bytes], token: str, first_at_ms: int | None) -> None:
    made = replace(lease(*marks, token=token), first_at_ms=first_at_ms)
    assert Lease.of(token, *made.listed()) == made
    assert made.size == len(made.listed())
    assert made.parked == token.startswith("~")


def test_a_lease_tells_what_it_covers_and_what_it_is_for() -> None:
    made = lease()
    assert (made.offsets, made.is_aside, made.is_confirmed) == (range(100, 120), False, False)
    assert replace(made, deadline=INSTANT_MS_MAX).is_aside
    assert [lease(mark(ACKED, own)).is_confirmed for own in ([0], [])] == [False, True]
    assert delivery("0123456789", 3) == ("01234567", 3)


def test_its_paths_lead_to_what_it_lists() -> None:
    made = replace(lease(), first_at_ms=400)
    assert made.path == ("leases", "token")
    assert made.deadline_path == (*made.path, made.listed().index(1_000))
    assert made.age_path == (*made.path, made.listed().index(600))


@pytest.mark.parametrize(("attempt", "noted_ms"), [(0, None), (1, 400)])
def test_a_retry_keeps_when_it_was_first_delivered(attempt: int, noted_ms: int | None) -> None:
    assert parked(Clock().runtime(0), range(100, 103), 1_000, attempt, 400).first_at_ms == noted_ms


@pytest.mark.parametrize(
    ("offsets", "count", "marks"), [([7], 1, ()), ([7, 8, 9], 3, ()), ([7, 9, 12], 6, (mark(MOVED, [1, 3, 4]),))]
)
def test_what_is_set_aside_is_one_lease(offsets: list[int], count: int, marks: tuple[bytes, ...]) -> None:
    made = set_aside(Clock().runtime(0), offsets)
    assert made == Lease(made.token, 7, count, INSTANT_MS_MAX, 0, marks)
    assert (made.owed_offsets, made.token[0], len(made.token)) == (offsets, "~", TOKEN_CHARS + SPLIT_CHARS)


@given(MARKS, INDEXES)
def test_its_size_grows_with_every_mark(marks: list[bytes], indexes: set[int]) -> None:
    marked = Lease.of("token", *lease(*marks).listed(), mark(ACKED, indexes))
    assert marked.size == lease(*marks).size + 1


@given(st.lists(st.builds(mark, LETTERS, INDEXES), min_size=2, max_size=40))
def test_tidied_it_says_the_same_at_the_same_length_in_fewer_bytes(marks: list[bytes]) -> None:
    marked, compacted = lease(*marks), lease(*marks).compacted()
    assert (compacted.acked, compacted.moved, compacted.owed) == (marked.acked, marked.moved, marked.owed)
    assert compacted.size == marked.size
    assert not compacted.has_many_marks
    assert sum(map(len, compacted.marks)) <= sum(map(len, marked.marks)) + 2


@given(st.sets(st.integers(0, 60)))
def test_runs_are_the_fewest_unbroken_ranges(indexes: set[int]) -> None:
    found = runs(indexes)
    assert [index for run in found for index in run] == sorted(indexes)
    assert all(len(run) > 0 for run in found)
    assert all(left.stop < right.start for left, right in zip(found, found[1:], strict=False))


@given(MARKS, st.integers(990, 1_010))
def test_a_lease_is_due_at_its_deadline_while_it_owes(marks: list[bytes], now: int) -> None:
    marked = lease(*marks)
    assert marked.is_due(now) == (now >= 1_000 and bool(marked.owed))


@given(MARKS, st.integers(90, 130))
def test_a_lease_owes_offsets(marks: list[bytes], offset: int) -> None:
    marked = lease(*marks)
    assert marked.owes(offset) == (offset in marked.owed_offsets)
    assert marked.owed_offsets == [100 + index for index in marked.owed]
