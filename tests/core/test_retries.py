"""Retry pages: a message is in its cursor or in one page, and a caller knows the cursor after its own write."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from chalicelib.core.base.limits import LEASES_MAX
from chalicelib.core.cursors import cursor_writes
from chalicelib.core.cursors.cursor import Cursor, RetryPage
from chalicelib.core.cursors.lease import ACKED, Lease, mark
from chalicelib.core.cursors.retries import (
    RETRY_PAGE_LEASES,
    RETRY_PAGES_MAX,
    RETRY_SOON_MS,
    after_bringing_back,
    after_putting_away,
    bring_back,
    due_page,
    put_away,
    retries_of,
    surplus,
)
from chalicelib.core.table import keys
from chalicelib.core.table.writes import Item, Set, Write
from local.memory.evaluate import after, holds

NOW = 1_000_000
SOON = NOW + RETRY_SOON_MS
COUNT = 2
KINDS = st.tuples(
    st.sampled_from(["", "~"]),
    st.sampled_from([NOW, NOW + 1, SOON, SOON + 1, SOON + 2, SOON + 60_000]),
    st.sampled_from([(), (), (mark(ACKED, [0]),), (mark(ACKED, [0, 1]),)]),
)


def cursor(leases: list[Lease]) -> tuple[Item, Cursor]:
    key = keys.cursor("t", "g", "gid", 0, "")
    item = after(None, cursor_writes.create(Cursor.fresh(key, COUNT * len(leases))))
    stored = after(item, Write(key, (), (Set(("leases",), {lease.token: lease.listed() for lease in leases}),))) or {}
    return stored, Cursor.of(stored)


def leases_of(kinds: list[tuple[str, int, tuple[bytes, ...]]]) -> list[Lease]:
    return [Lease(f"{kind}{n}", COUNT * n, COUNT, ends, 1, marks) for n, (kind, ends, marks) in enumerate(kinds)]


def waiting(count: int, deadline: int = SOON + 1) -> list[Lease]:
    return leases_of([("~", deadline, ())] * count)


def written(item: Item, write: Write) -> Item:
    assert all(holds(guard, item) for guard in write.guards)
    return after(item, write) or {}


def told(seen: Cursor) -> object:
    return dict(seen.leases), seen.pages, seen.has_pages


def test_a_page_is_due_with_its_first_message() -> None:
    leases = [Lease("~a", 7, 2, NOW + 1, 1), Lease("~b", 4, 3, NOW, 1), Lease("~c", 9, 1, NOW + 2, 1)]
    page = RetryPage.holding("p", leases)
    assert page == RetryPage("p", NOW, 6, 4) == RetryPage.of("p", page.noted())


@given(st.lists(KINDS, max_size=8), st.integers(0, 4))
@example([("~", SOON, ()), ("~", SOON + 2, (mark(ACKED, [0]),)), ("~", SOON + 2, ()), ("~", SOON + 1, ())], 0)
def test_of_retries_with_a_long_wait_the_last_due_move_into_a_page(
    kinds: list[tuple[str, int, tuple[bytes, ...]]], most: int
) -> None:
    leases = leases_of(kinds)
    long = [lease for lease in leases if lease.parked and not lease.marks and lease.deadline > SOON]
    moved = surplus(cursor(leases)[1], NOW, most)
    assert moved == (sorted(long, key=lambda lease: (lease.deadline, lease.start)) if len(long) > most else [])


@pytest.mark.parametrize(
    ("count", "pages", "moved"),
    [(RETRY_PAGE_LEASES + 1, RETRY_PAGES_MAX - 1, RETRY_PAGE_LEASES), (RETRY_PAGE_LEASES, RETRY_PAGES_MAX, 0)],
)
def test_pages_and_what_is_in_one_are_limited(count: int, pages: int, moved: int) -> None:
    _, seen = cursor(waiting(count))
    many = {str(number): RetryPage(str(number), SOON, 1, 0) for number in range(pages)}
    assert len(surplus(replace(seen, pages=many), NOW, 1)) == moved


@given(st.lists(KINDS, min_size=1, max_size=8), st.booleans())
def test_what_moves_into_a_page_and_back_is_owed_all_the_while(
    kinds: list[tuple[str, int, tuple[bytes, ...]]], again: bool
) -> None:
    item, seen = cursor([*leases_of(kinds), Lease("~z", 100, COUNT, SOON + 1, 1)])
    if again:  # the cursor has had pages before
        item = written(item, Write(seen.key, (), (Set(("pages",), {"q": [SOON, 1, 90]}),)))
        seen = Cursor.of(item)
    moved = surplus(seen, NOW, 0)
    page = RetryPage.holding("p", moved)
    on_cursor, on_page = put_away(seen, page, moved)
    item, stored = written(item, on_cursor), after(None, on_page) or {}
    away = Cursor.of(item)
    assert told(away) == told(after_putting_away(seen, page, moved))
    assert retries_of(stored) == [replace(lease, token="~") for lease in moved]
    back = [replace(lease, token=f"~b{lease.start}") for lease in retries_of(stored)]
    back_on_cursor, _ = bring_back(away, page, back)
    item = written(item, back_on_cursor)
    assert told(Cursor.of(item)) == told(after_bringing_back(away, page, back))
    owed = [[offset for lease in each.owing for offset in lease.owed_offsets] for each in (seen, Cursor.of(item))]
    assert owed[0] == owed[1]
    assert not all(holds(guard, item) for guard in back_on_cursor.guards)


def test_a_retry_that_was_settled_since_does_not_move() -> None:
    item, seen = cursor(waiting(2))
    moved = surplus(seen, NOW, 0)
    on_cursor, _ = put_away(seen, RetryPage.holding("p", moved), moved)
    item = written(item, cursor_writes.write(seen, cursor_writes.ack(moved[0], [0])))
    assert not all(holds(guard, item) for guard in on_cursor.guards)


def test_of_two_who_make_the_first_page_the_second_is_refused() -> None:
    item, seen = cursor(waiting(2))
    first, second = (put_away(seen, RetryPage.holding(lease.token, [lease]), [lease])[0] for lease in seen.owing)
    assert not all(holds(guard, written(item, first)) for guard in second.guards)


def test_the_page_that_is_due_first_comes_back_first() -> None:
    noted = {"a": (NOW - 1, 9), "b": (NOW - 1, 8), "c": (NOW, 1), "d": (NOW + 1, 0)}
    pages = {name: RetryPage(name, due, 1, low) for name, (due, low) in noted.items()}
    assert due_page(replace(cursor([])[1], pages=pages), NOW, 1) == pages["b"]


@pytest.mark.parametrize(
    ("due", "want", "leases", "comes"),
    [
        (NOW, 2 * COUNT + 1, waiting(2, NOW), True),
        (NOW + 1, 2 * COUNT + 1, waiting(2, NOW), False),
        (NOW, 2 * COUNT, waiting(2, NOW), False),
        (NOW, 1, waiting(LEASES_MAX - 1), True),
        (NOW, 1, waiting(LEASES_MAX), False),
    ],
)
def test_a_page_comes_back_when_it_is_due_and_wanted_and_has_room(
    due: int, want: int, leases: list[Lease], comes: bool
) -> None:
    item, seen = cursor(leases)
    page = RetryPage("p", due, 1, 0)
    assert due_page(replace(seen, pages={"p": page}), NOW, want) == (page if comes else None)
    with_page = written(item, Write(seen.key, (), (Set(("pages",), {"p": page.noted()}),)))
    is_written = all(holds(guard, with_page) for guard in bring_back(seen, page, [])[0].guards)
    assert is_written is (len(leases) < LEASES_MAX)
