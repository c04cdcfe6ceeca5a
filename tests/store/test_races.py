"""Many callers at once: the store alone decides, and each decision holds. The tests use threads, and wait for no
luck."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import TypeVar

import pytest

from chalicelib.core.cursors import cursor_writes
from chalicelib.core.cursors.cursor import Cursor
from chalicelib.core.cursors.lease import Lease
from chalicelib.core.log import segment
from chalicelib.core.log.segment import Entry, Segment
from chalicelib.core.store import Store
from chalicelib.core.table.writes import Absent, Add, Equals, Key, Refused, RemoveItem, Set
from tests.store.shelf import change, everything, found, guarded, is_applied

T = TypeVar("T")

THREADS = 8
NOW = 1_700_000_000_000


def at_once(act: Callable[[int], T], threads: int = THREADS) -> list[T]:
    """Runs `act` in as many threads, which all start at the same moment."""
    ready = threading.Barrier(threads)

    def run(number: int) -> T:
        ready.wait()
        return act(number)

    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(run, range(threads)))


def standing(store: Store, key: Key, *leases: Lease, start: int = 0) -> Cursor:
    """A cursor with these leases."""
    made = store.write(cursor_writes.create(Cursor.fresh(key, start)))
    if leases:
        made = store.write(change(key, *(Set(lease.path, lease.listed()) for lease in leases)))
    return Cursor.of(made)


# -- numbers ----------------------------------------------------------------------------------------------------------


def test_no_addition_is_lost(store: Store, key: Key) -> None:
    def add(_: int) -> list[int]:
        return [store.write(change(key, Add(("n",), 1)))["n"] for _ in range(25)]

    seen = [number for numbers in at_once(add) for number in numbers]
    assert sorted(seen) == list(range(1, THREADS * 25 + 1))


def test_an_item_is_made_once(store: Store, key: Key) -> None:
    for round_number in range(10):
        place = Key(key.pk, str(round_number))

        def make(number: int, place: Key = place) -> bool:
            return is_applied(store, guarded(place, Absent(("by",)), Set(("by",), number)))

        winners = [number for number, won in enumerate(at_once(make)) if won]
        item = found(store, place)
        assert item is not None
        assert winners == [item["by"]]


def test_an_item_is_removed_once(store: Store, key: Key) -> None:
    for _ in range(10):
        store.write(change(key, Set(("id",), "x")))
        assert at_once(lambda _: is_applied(store, guarded(key, Equals(("id",), "x"), RemoveItem()))).count(True) == 1


def test_one_of_several_transactions_on_an_item_wins_as_a_whole(store: Store, key: Key) -> None:
    def bury(number: int) -> bool:
        first, second = Key(key.pk, "cursor"), Key(key.pk, f"letter-{number}")
        try:
            store.write_together(
                [guarded(first, Absent(("by",)), Set(("by",), number)), change(second, Add(("n",), 1))]
            )
        except Refused:
            return False
        return True

    winners = [number for number, won in enumerate(at_once(bury)) if won]
    assert len(winners) == 1
    assert [item["sk"] for item in everything(store, key.pk)] == ["cursor", f"letter-{winners[0]}"]


# -- the log ----------------------------------------------------------------------------------------------------------


class Writer:
    """Appends as the log's docstring says: from full segment to full segment, until the entry stands."""

    def __init__(self, store: Store, name: str) -> None:
        self._store = store
        self._log = name
        self._base = 0

    def append(self, entry: Entry) -> int:
        while True:
            try:
                item = self._store.write(segment.append(self._log, self._base, entry, may_create=True))
            except Refused as refused:
                self._base = refused.before["end"]
                continue
            offset = Segment.of(item).offset_of(entry.id)
            assert offset is not None
            return offset


@pytest.mark.parametrize("sizes", [(10, 40), (10, 700), (300, 1100)], ids=["by count", "mixed", "by size"])
def test_offsets_are_dense_however_many_append(store: Store, key: Key, sizes: tuple[int, int]) -> None:
    def produce(number: int) -> list[tuple[int, Entry]]:
        chance = random.Random(number)
        made = [
            Entry(chance.randbytes(8), chance.randrange(1, 5), NOW, "json", 9, chance.randbytes(chance.randint(*sizes)))
            for _ in range(8)
        ]
        writer = Writer(store, key.pk)
        return [(writer.append(entry), entry) for entry in made]

    told = sorted(((offset, entry) for pairs in at_once(produce) for offset, entry in pairs), key=lambda pair: pair[0])
    segments = [Segment.of(item) for item in everything(store, key.pk)]
    assert [placed for segment in segments for placed in segment.placed] == told
    assert [segment.base for segment in segments] == [0, *(segment.end for segment in segments[:-1])]
    end = 0
    for offset, entry in told:
        assert offset == end
        end += entry.count
    assert segments[-1].end == end
    assert len(segments) > 2
    assert all(segment.is_sealed for segment in segments[:-1])


def test_an_entry_that_is_sent_by_many_stands_once(store: Store, key: Key) -> None:
    """As when a client library repeats a request that is still under way."""
    entries = [Entry(bytes([number] * 8), 2, NOW, "json", 9, b"x" * 50) for number in range(6)]
    answers = [at_once(lambda _, entry=entry: Writer(store, key.pk).append(entry)) for entry in entries]  # type: ignore[misc]
    assert answers == [[2 * number] * THREADS for number in range(6)]


# -- the cursor -------------------------------------------------------------------------------------------------------


def test_no_two_claims_overlap_and_none_passes_the_end(store: Store, key: Key) -> None:
    end = 200
    start = standing(store, key, start=7)

    def consume(number: int) -> list[Lease]:
        got: list[Lease] = []
        while True:
            token = f"t{number}-{len(got)}"
            count = 1 + (number + len(got)) % 4
            taking = cursor_writes.write(
                start, cursor_writes.claim(token, count, None, NOW) + cursor_writes.not_beyond(end - count)
            )
            try:
                got.append(Cursor.of(store.write(taking)).leases[token])
            except Refused as refused:
                if refused.before["next"][0] + count > end:
                    return got

    leases = sorted((lease for got in at_once(consume) for lease in got), key=lambda lease: lease.start)
    taken = [offset for lease in leases for offset in lease.owed_offsets]
    assert taken == list(range(7, 7 + len(taken)))
    assert end - 4 < 7 + len(taken) <= end
    after = found(store, key)
    assert after is not None
    assert Cursor.of(after).owing == leases


def is_taken_over(store: Store, place: Cursor, old: Lease, number: int) -> bool:
    """Whether this caller is the one that moves all of the lease into its own."""
    new = Lease(f"new-{number}", 0, old.count, NOW + 1, 2)
    return is_applied(store, cursor_writes.write(place, cursor_writes.move(old, old.owed, [new])))


def test_one_of_many_takes_over_a_lease(store: Store, key: Key) -> None:
    for round_number in range(6):
        old = Lease("old", 0, 3, NOW, 1)
        place = standing(store, Key(key.pk, str(round_number)), old, start=3)

        won = at_once(partial(is_taken_over, store, place, old))
        winners = [number for number, has_won in enumerate(won) if has_won]
        item = found(store, place.key)
        assert item is not None
        assert len(winners) == 1
        assert [lease.token for lease in Cursor.of(item).owing] == [f"new-{winners[0]}"]


def test_one_of_many_takes_over_a_parked_lease(store: Store, key: Key) -> None:
    old = Lease("~old", 0, 3, NOW, 1)
    place = standing(store, key, old, start=3)
    assert at_once(partial(is_taken_over, store, place, old)).count(True) == 1
    item = found(store, key)
    assert item is not None
    assert "~old" not in item["leases"]


def test_acks_of_one_lease_do_not_hinder_each_other(store: Store, key: Key) -> None:
    lease = Lease("t", 0, THREADS, NOW, 1)
    place = standing(store, key, lease, start=THREADS)
    assert all(
        at_once(lambda number: is_applied(store, cursor_writes.write(place, cursor_writes.ack(lease, [number]))))
    )
    item = found(store, key)
    assert item is not None
    assert Cursor.of(item).leases["t"].acked == set(range(THREADS))
    assert Cursor.of(item).committed(ordered=False) == THREADS


def test_an_ack_and_a_takeover_never_both_win_a_message(store: Store, key: Key) -> None:
    for round_number in range(10):
        lease = Lease("t", 0, 4, NOW, 1)
        place = standing(store, Key(key.pk, str(round_number)), lease, start=4)

        def act(number: int, place: Cursor = place, lease: Lease = lease) -> bool:
            if number % 2:
                return is_applied(store, cursor_writes.write(place, cursor_writes.ack(lease, lease.owed)))
            return is_taken_over(store, place, lease, number)

        assert at_once(act).count(True) == 1


def test_one_of_many_prolongs_a_lease_and_nobody_takes_it_over_after_that(store: Store, key: Key) -> None:
    for round_number in range(10):
        lease = Lease("t", 0, 1, NOW, 1)
        place = standing(store, Key(key.pk, str(round_number)), lease, start=1)

        def act(number: int, place: Cursor = place, lease: Lease = lease) -> bool:
            if number % 2:
                longer = cursor_writes.prolong(lease, NOW + 1 + number)
                return is_applied(store, cursor_writes.write(place, longer))
            new = Lease(f"new-{number}", 0, 1, NOW + 1, 2)
            taken = cursor_writes.move(lease, [0], [new]) + cursor_writes.lasts_as_seen(lease)
            return is_applied(store, cursor_writes.write(place, taken))

        assert at_once(act).count(True) == 1


def test_a_prolonged_lease_recognises_its_own_repeat_and_no_late_one(store: Store, key: Key) -> None:
    lease = Lease("t", 7, 1, NOW, 1)
    place = standing(store, key, lease, start=8)
    first = cursor_writes.write(place, cursor_writes.prolong(lease, NOW + 1))
    second = cursor_writes.write(place, cursor_writes.prolong(replace(lease, deadline=NOW + 1), NOW + 9))
    assert [is_applied(store, write) for write in (first, first, second, second, first)] == [True] * 4 + [False]
    assert store.write(second)["leases"] == {"t": [7, 1, NOW + 9, 1]}
