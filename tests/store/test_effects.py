"""Each effect of a write does what its docstring says, reads the item as it was, and shares nothing."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from chalicelib.core.store import Store
from chalicelib.core.table.writes import Add, Append, Effect, Key, Remove, RemoveItem, Set, Write
from tests.store.shelf import change, found, put

VALUES: list[Any] = [
    "",
    "text",
    '\x00 \x7f \u2028 \ufffd é 漢 \U0001f600 "quoted" \\',
    0,
    -1,
    10,
    100_000,
    10**15,
    10**15 - 1,
    -(10**15),
    True,
    False,
    b"",
    bytes(range(256)),
    b"\xff" * 1000,
    [],
    {},
    [""],
    ["", b"", 0, False, [], {}],
    [[[["deep"]]]],
    {"~t": [1, 2, 3, b"m\x01\x80", ""], "-_": {}, "a.b": 2, "#": 3},
    [{"i": b"\x00\x01", "n": 10**15, "d": b"", "list": [{"x": [1]}]}],
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: repr(value)[:40])
def test_values_that_are_set_come_back_the_same(store: Store, key: Key, value: Any) -> None:
    after = store.write(change(key, Set(("value",), value)))
    assert after == {"pk": key.pk, "sk": key.sk, "value": value}
    assert type(after["value"]) is type(value)
    assert found(store, key) == after


@pytest.mark.parametrize("value", VALUES, ids=lambda value: repr(value)[:40])
def test_items_that_are_put_come_back_the_same(store: Store, key: Key, value: Any) -> None:
    item = put(store, key, value=value)
    assert found(store, key) == item


def test_setting_touches_nothing_else(store: Store, key: Key) -> None:
    item = put(store, key, n=1, map={"a": [1], "b": 2}, list=[{"x": 1}, 2, 3])
    after = store.write(
        change(key, Set(("map", "a"), "new"), Set(("map", "c"), []), Set(("list", 0, "y"), 4), Set(("list", 2), {}))
    )
    assert after == {**item, "map": {"a": "new", "b": 2, "c": []}, "list": [{"x": 1, "y": 4}, 2, {}]}


def test_setting_replaces_a_value_of_another_type(store: Store, key: Key) -> None:
    put(store, key, value={"a": 1})
    assert store.write(change(key, Set(("value",), [1])))["value"] == [1]
    assert store.write(change(key, Set(("value",), "")))["value"] == ""


def test_adding_counts_from_the_start_when_nothing_is_there(store: Store, key: Key) -> None:
    assert store.write(change(key, Add(("end",), 3, start=32), Add(("bytes",), 7)))["end"] == 35
    after = store.write(change(key, Add(("end",), 3, start=32), Add(("bytes",), 7)))
    assert (after["end"], after["bytes"]) == (38, 14)


def test_adding_reaches_into_lists_and_maps_and_below_zero(store: Store, key: Key) -> None:
    put(store, key, next=[5, 6], map={"n": 1}, big=10**15 - 1)
    after = store.write(change(key, Add(("next", 0), -7), Add(("map", "n"), 1), Add(("map", "m"), 2), Add(("big",), 1)))
    assert (after["next"], after["map"], after["big"]) == ([-2, 6], {"n": 2, "m": 2}, 10**15)


def test_appending_makes_a_list_where_none_is(store: Store, key: Key) -> None:
    assert store.write(change(key, Append(("list",), [""])))["list"] == [""]
    assert store.write(change(key, Append(("list",), [{"d": b"\x00"}, []])))["list"] == ["", {"d": b"\x00"}, []]


def test_appending_reaches_into_maps(store: Store, key: Key) -> None:
    put(store, key, leases={"t": [1]})
    after = store.write(change(key, Append(("leases", "t"), [b"a\x01"]), Append(("leases", "~u"), [2])))
    assert after["leases"] == {"t": [1, b"a\x01"], "~u": [2]}


def test_a_list_can_be_made_from_another_while_that_moves_on(store: Store, key: Key) -> None:
    put(store, key, next=[40], leases={})
    claim = change(key, Append(("leases", "t"), [10, 99, 1], onto=("next",)), Add(("next", 0), 10))
    after = store.write(claim)
    assert (after["leases"], after["next"]) == ({"t": [40, 10, 99, 1]}, [50])


def test_the_order_of_effects_does_not_matter(store: Store, key: Key) -> None:
    effects: tuple[Effect, ...] = (
        Add(("next", 0), 10),
        Append(("leases", "t"), [10], onto=("next",)),
        Set(("hint",), 1),
        Remove(("old",)),
    )
    for number, ordered in enumerate((effects, effects[::-1])):
        place = Key(key.pk, str(number))
        put(store, place, next=[40], leases={}, old=1)
        after = store.write(change(place, *ordered))
        assert (after["leases"], after["next"], after["hint"], "old" in after) == ({"t": [40, 10]}, [50], 1, False)


def test_every_effect_reads_the_item_as_it_was_before(store: Store, key: Key) -> None:
    put(store, key, a=["a"], b=["b"])
    after = store.write(change(key, Append(("a",), ["+"], onto=("b",)), Append(("b",), ["+"], onto=("a",))))
    assert (after["a"], after["b"]) == (["b", "+"], ["a", "+"])


def test_a_list_can_be_replaced_while_another_is_made_from_it(store: Store, key: Key) -> None:
    put(store, key, next=[1], leases={"t": [0]})
    after = store.write(
        change(key, Set(("next",), [9]), Append(("leases", "u"), [2], onto=("next",)), Remove(("leases", "t")))
    )
    assert (after["next"], after["leases"]) == ([9], {"u": [1, 2]})


def test_removing_leaves_the_rest(store: Store, key: Key) -> None:
    put(store, key, n=1, m=2, leases={"t": [1], "u": [2]})
    after = store.write(change(key, Remove(("n",)), Remove(("leases", "t"))))
    assert after == {"pk": key.pk, "sk": key.sk, "m": 2, "leases": {"u": [2]}}


def test_removing_what_is_not_there_changes_nothing(store: Store, key: Key) -> None:
    item = put(store, key, leases={"t": [1]})
    assert store.write(change(key, Remove(("leases", "u")), Remove(("other",)))) == item


def test_a_map_whose_last_key_is_removed_stays(store: Store, key: Key) -> None:
    put(store, key, leases={"t": [1], "u": [2]})
    assert store.write(change(key, Remove(("leases", "t")), Remove(("leases", "u"))))["leases"] == {}


def test_a_removed_item_is_gone(store: Store, key: Key) -> None:
    put(store, key, n=1)
    assert store.write(change(key, RemoveItem())) == {}
    assert found(store, key) is None
    assert store.write(change(key, RemoveItem())) == {}


def test_an_item_made_again_remembers_nothing(store: Store, key: Key) -> None:
    put(store, key, n=1, list=[1])
    store.write(change(key, RemoveItem()))
    assert store.write(change(key, Add(("n",), 1), Append(("list",), [2]))) == {
        "pk": key.pk,
        "sk": key.sk,
        "n": 1,
        "list": [2],
    }


def test_many_effects_fit_one_write(store: Store, key: Key) -> None:
    leases = {f"token-{number:04d}": [number, 1, 10**13, 1, b"a\x01"] for number in range(64)}
    put(store, key, next=[0], leases=leases)
    moved = tuple(Append(("leases", token), [b"m\x01"]) for token in list(leases)[:32])
    gone = tuple(Remove(("leases", token)) for token in list(leases)[32:48])
    made = tuple(Set(("leases", f"new-{number}"), [number, 1, 10**13, 2]) for number in range(32))
    after = store.write(Write(key, (), (*moved, *gone, *made, Add(("next", 0), 10))))
    assert len(after["leases"]) == 64 - 16 + 32
    assert after["leases"]["token-0031"] == [31, 1, 10**13, 1, b"a\x01", b"m\x01"]


def test_an_item_that_was_read_never_changes(store: Store, key: Key) -> None:
    put(store, key, n=1, next=[1], map={"list": [1], "map": {"n": 1}})
    given = found(store, key)
    was = copy.deepcopy(given)
    after = store.write(
        change(
            key,
            Add(("next", 0), 1),
            Append(("map", "list"), [2]),
            Add(("map", "map", "n"), 1),
            Append(("copy",), [3], onto=("next",)),
        )
    )
    then = copy.deepcopy(after)
    store.write(change(key, Add(("next", 0), 1), Append(("copy",), [4]), Remove(("map", "list"))))
    store.write(change(key, RemoveItem()))
    assert (given, after) == (was, then)


def test_one_write_can_be_applied_twice_and_is_not_changed_by_it(store: Store, key: Key) -> None:
    write = change(key, Append(("list",), [{"n": 1}]), Add(("n",), 1))
    store.write(write)
    assert store.write(write) == {"pk": key.pk, "sk": key.sk, "list": [{"n": 1}, {"n": 1}], "n": 2}
    assert write == change(key, Append(("list",), [{"n": 1}]), Add(("n",), 1))
