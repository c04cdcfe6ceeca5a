"""Writes are refused or applied: side by side, together, and in bulk."""

from __future__ import annotations

from functools import partial

import pytest

from chalicelib.core.store import Store
from chalicelib.core.table.writes import (
    Absent,
    Add,
    Append,
    Equals,
    Exists,
    Item,
    Key,
    Lacks,
    Refused,
    RemoveItem,
    Set,
    Write,
)
from tests.store.shelf import change, everything, found, guarded, is_applied, put


def sees(name: str, value: object, before: Item) -> bool:
    return before.get(name) == value


# -- one write --------------------------------------------------------------------------------------------------------


def test_a_write_returns_the_whole_item_after_it(store: Store, key: Key) -> None:
    put(store, key, a=1, list=[1, {"x": ""}], data=b"\xff")
    after = store.write(change(key, Set(("b",), 2)))
    assert after == {"pk": key.pk, "sk": key.sk, "a": 1, "b": 2, "list": [1, {"x": ""}], "data": b"\xff"}
    assert found(store, key) == after


def test_a_refused_write_shows_the_whole_item_it_found(store: Store, key: Key) -> None:
    item = put(store, key, a=1, list=[1, {"x": ""}], data=b"\xff", map={"b": b"\x00"})
    with pytest.raises(Refused) as refused:
        store.write(guarded(key, Absent(("a",)), Set(("a",), 2)))
    assert refused.value.before == item


def test_a_refused_write_changes_nothing(store: Store, key: Key) -> None:
    item = put(store, key, a=1)
    assert not is_applied(store, guarded(key, Equals(("a",), 2), Set(("b",), 1), Add(("a",), 1)))
    assert not is_applied(store, guarded(key, Equals(("a",), 2), RemoveItem()))
    assert found(store, key) == item


def test_a_refused_removal_shows_the_item_it_found(store: Store, key: Key) -> None:
    item = put(store, key, id="new")
    with pytest.raises(Refused) as refused:
        store.write(guarded(key, Equals(("id",), "old"), RemoveItem()))
    assert refused.value.before == item


def test_a_write_that_had_landed_before_succeeds_and_shows_the_item(store: Store, key: Key) -> None:
    making = Write(key, (Absent(("id",)),), (Set(("id",), "mine"),), landed=partial(sees, "id", "mine"))
    made = store.write(making)
    store.write(change(key, Set(("more",), 1)))
    assert store.write(making) == {**made, "more": 1}


def test_a_write_that_someone_else_forestalled_is_refused(store: Store, key: Key) -> None:
    item = put(store, key, id="theirs")
    making = Write(key, (Absent(("id",)),), (Set(("id",), "mine"),), landed=partial(sees, "id", "mine"))
    with pytest.raises(Refused) as refused:
        store.write(making)
    assert refused.value.before == item


def test_a_removal_that_had_landed_before_succeeds(store: Store, key: Key) -> None:
    put(store, key, id="mine")
    removal = Write(key, (Equals(("id",), "mine"),), (RemoveItem(),), landed=lambda before: not before)
    assert store.write(removal) == {}
    assert store.write(removal) == {}
    put(store, key, id="theirs")
    with pytest.raises(Refused):
        store.write(removal)


def test_whether_it_landed_is_asked_only_of_a_refused_write(store: Store, key: Key) -> None:
    put(store, key, id="mine", n=1)
    write = Write(key, (Exists(("id",)),), (Add(("n",), 1),), landed=partial(sees, "id", "mine"))
    assert store.write(write)["n"] == 2
    assert store.write(write)["n"] == 3


def test_an_append_that_lacks_itself_lands_once(store: Store, key: Key) -> None:
    entry = {"i": b"\x01\xff", "n": 2, "d": b""}
    write = Write(
        key,
        (Lacks(("entries",), entry),),
        (Append(("entries",), [entry]), Add(("end",), 2)),
        landed=lambda before: entry in before["entries"],
    )
    for _ in range(3):
        after = store.write(write)
        assert (after["entries"], after["end"]) == ([entry], 2)


# -- side by side -----------------------------------------------------------------------------------------------------


def test_writes_side_by_side_each_have_their_own_outcome(store: Store, key: Key) -> None:
    here, there, nowhere, gone = (Key(key.pk, name) for name in ("here", "there", "nowhere", "gone"))
    old = put(store, here, n=1)
    put(store, there, n=1)
    put(store, gone, n=1)
    outcomes = store.write_each(
        [
            guarded(here, Absent(("n",)), Set(("n",), 2)),
            guarded(there, Exists(("n",)), Add(("n",), 1)),
            guarded(nowhere, Exists(("n",)), Set(("n",), 2)),
            guarded(gone, Exists(("n",)), RemoveItem()),
            change(key, Set(("n",), 5)),
        ]
    )
    refused, added, absent, removed, made = outcomes
    assert isinstance(refused, Refused)
    assert refused.before == old
    assert isinstance(absent, Refused)
    assert absent.before == {}
    assert added == {"pk": key.pk, "sk": "there", "n": 2}
    assert removed == {}
    assert made == {"pk": key.pk, "sk": "a", "n": 5}
    assert [item["sk"] for item in everything(store, key.pk)] == ["a", "here", "there"]


def test_a_write_side_by_side_recognises_that_it_had_landed(store: Store, key: Key) -> None:
    item = put(store, key, id="mine")
    other = Key(key.pk, "b")
    making = Write(key, (Absent(("id",)),), (Set(("id",), "mine"),), landed=partial(sees, "id", "mine"))
    assert store.write_each([making, change(other, Set(("n",), 1))]) == [item, {"pk": key.pk, "sk": "b", "n": 1}]


def test_many_writes_side_by_side_are_answered_in_order(store: Store, key: Key) -> None:
    places = [Key(key.pk, f"{number:03d}") for number in range(128)]
    outcomes = store.write_each([change(place, Set(("n",), number)) for number, place in enumerate(places)])
    assert [isinstance(outcome, dict) and outcome["n"] for outcome in outcomes] == list(range(128))


def test_no_writes_have_no_outcomes(store: Store) -> None:
    assert store.write_each([]) == []


# -- together ---------------------------------------------------------------------------------------------------------


def test_writes_together_are_all_applied(store: Store, key: Key) -> None:
    cursor, old = Key(key.pk, "cursor"), Key(key.pk, "old")
    put(store, cursor, leases={"t": [1, b"a\x01"]}, dead=0)
    put(store, old, n=1)
    letters = [change(Key(key.pk, f"letter-{number:02d}"), Set(("reason",), "")) for number in range(50)]
    burying = guarded(cursor, Exists(("leases", "t")), Append(("leases", "t"), [b"m\x02"]), Add(("dead",), 50))
    store.write_together([burying, *letters, guarded(old, Equals(("n",), 1), RemoveItem())])
    assert found(store, cursor) == {**cursor._asdict(), "leases": {"t": [1, b"a\x01", b"m\x02"]}, "dead": 50}
    assert found(store, old) is None
    assert len(everything(store, key.pk)) == 51


@pytest.mark.parametrize("place", [0, 1, 2])
def test_writes_together_are_none_applied_when_one_is_refused(store: Store, key: Key, place: int) -> None:
    names = ["a", "b", "c"]
    items = [put(store, Key(key.pk, name), n=number) for number, name in enumerate(names)]
    writes = [guarded(Key(key.pk, name), Exists(("n",)), Add(("n",), 5)) for name in names]
    writes[place] = guarded(Key(key.pk, names[place]), Exists(("other",)), RemoveItem())
    with pytest.raises(Refused) as refused:
        store.write_together(writes)
    assert refused.value.before == items[place]
    assert everything(store, key.pk) == items


def test_writes_together_show_the_item_of_the_first_that_is_refused(store: Store, key: Key) -> None:
    first, second = (put(store, Key(key.pk, name), data=name.encode()) for name in "bc")
    writes = [
        change(Key(key.pk, "a"), Set(("n",), 1)),
        guarded(Key(key.pk, "b"), Absent(("data",)), Set(("n",), 1)),
        guarded(Key(key.pk, "c"), Absent(("data",)), Set(("n",), 1)),
    ]
    with pytest.raises(Refused) as refused:
        store.write_together(writes)
    assert refused.value.before == first
    assert everything(store, key.pk) == [first, second]


def test_writes_together_that_miss_an_item_show_none(store: Store, key: Key) -> None:
    with pytest.raises(Refused) as refused:
        store.write_together([change(Key(key.pk, "b"), Set(("n",), 1)), guarded(key, Exists(("n",)), RemoveItem())])
    assert refused.value.before == {}
    assert everything(store, key.pk) == []


def test_the_same_writes_together_can_come_again(store: Store, key: Key) -> None:
    for total in (1, 2):
        store.write_together([change(key, Add(("n",), 1)), change(Key(key.pk, "b"), Set(("n",), total))])
        assert [item["n"] for item in everything(store, key.pk)] == [total, total]


# -- in bulk ----------------------------------------------------------------------------------------------------------


def test_more_items_are_put_than_one_request_takes(store: Store, key: Key) -> None:
    items = [{"pk": key.pk, "sk": f"{number:02d}", "data": bytes([number])} for number in range(60)]
    store.put_all(items)
    assert everything(store, key.pk) == items


def test_big_items_are_put(store: Store, key: Key) -> None:
    items = [{"pk": key.pk, "sk": f"{number:02d}", "data": bytes([number]) * 256 * 1024} for number in range(16)]
    store.put_all(items)
    assert everything(store, key.pk) == items


def test_putting_replaces_the_whole_item(store: Store, key: Key) -> None:
    put(store, key, a=1)
    item = put(store, key, b=2)
    assert found(store, key) == item


def test_removals_span_several_requests_and_allow_absent_items(store: Store, key: Key) -> None:
    store.put_all([{"pk": key.pk, "sk": f"{number:02d}"} for number in range(0, 60, 2)])
    kept = put(store, Key(key.pk, "99"), n=1)
    store.remove_all([Key(key.pk, f"{number:02d}") for number in range(60)])
    assert everything(store, key.pk) == [kept]


def test_nothing_is_put_or_removed(store: Store, key: Key) -> None:
    store.put_all([])
    store.remove_all([])
    store.remove_all([key])
    assert everything(store, key.pk) == []
