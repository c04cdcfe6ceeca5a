"""Each guard of a write holds exactly if its docstring says so, on every store."""

from __future__ import annotations

import pytest

from chalicelib.core.store import Store
from chalicelib.core.table.writes import (
    Absent,
    AtLeast,
    AtMost,
    Either,
    Equals,
    Exists,
    Guard,
    Key,
    Lacks,
    Refused,
    Set,
    SizeBelow,
    SizeIs,
    Write,
)
from tests.store.shelf import found, guarded, put

ENTRY = {"i": b"\x00\xff", "n": 3, "c": "json"}

ITEM = {
    "n": 5,
    "minus": -5,
    "word": "blue",
    "empty": "",
    "data": b"\x00",
    "flag": False,
    "list": [1, "", b"\x00", 7],
    "entries": [ENTRY],
    "void": [],
    "next": [41],
    "leases": {"t": [1, 2], "~u": [], "-_": [b"a\x01"]},
    "bare": {},
    "deep": {"er": [{"n": 9}]},
}

HOLD = [
    Exists(("n",)),
    Exists(("empty",)),
    Exists(("flag",)),
    Exists(("void",)),
    Exists(("next", 0)),
    Exists(("leases", "t")),
    Exists(("leases", "~u")),
    Exists(("leases", "-_", 0)),
    Exists(("deep", "er", 0, "n")),
    Exists(("pk",)),
    Absent(("other",)),
    Absent(("next", 1)),
    Absent(("void", 0)),
    Absent(("leases", "T")),
    Absent(("bare", "t")),
    Absent(("other", "t")),
    Absent(("other", 0)),
    Absent(("deep", "er", 0, "m")),
    Equals(("n",), 5),
    Equals(("minus",), -5),
    Equals(("word",), "blue"),
    Equals(("empty",), ""),
    Equals(("next", 0), 41),
    Equals(("list", 1), ""),
    Equals(("leases", "t", 1), 2),
    Equals(("deep", "er", 0, "n"), 9),
    AtLeast(("n",), 5),
    AtLeast(("n",), 4),
    AtLeast(("minus",), -5),
    AtLeast(("leases", "t", 1), 2),
    AtMost(("n",), 5),
    AtMost(("n",), 6),
    AtMost(("minus",), 0),
    AtMost(("next", 0), 41),
    AtMost(("leases", "t", 0), 10**15),
    SizeIs(("list",), 4),
    SizeIs(("void",), 0),
    SizeIs(("bare",), 0),
    SizeIs(("leases",), 3),
    SizeIs(("leases", "t"), 2),
    SizeIs(("leases", "~u"), 0),
    SizeBelow(("list",), 5),
    SizeBelow(("void",), 1),
    SizeBelow(("leases",), 1000),
    SizeBelow(("leases", "t"), 3),
    Lacks(("list",), 2),
    Lacks(("list",), "1"),
    Lacks(("list",), b""),
    Lacks(("void",), 1),
    Lacks(("other",), 1),
    Lacks(("leases", "T"), b"a\x01"),
    Lacks(("leases", "-_"), b"a\x02"),
    Lacks(("entries",), {**ENTRY, "n": 4}),
    Lacks(("entries",), {"i": ENTRY["i"]}),
    Either(Exists(("n",)), Exists(("other",))),
    Either(Exists(("other",)), Exists(("n",))),
    Either(Either(Exists(("other",)), Absent(("n",))), Exists(("word",))),
]

FAIL = [
    Exists(("other",)),
    Exists(("next", 1)),
    Exists(("leases", "T")),
    Exists(("other", "t")),
    Exists(("other", 0)),
    Absent(("n",)),
    Absent(("flag",)),
    Absent(("empty",)),
    Absent(("void",)),
    Absent(("bare",)),
    Absent(("next", 0)),
    Absent(("leases", "~u")),
    Equals(("n",), 6),
    Equals(("n",), "5"),
    Equals(("word",), "Blue"),
    Equals(("word",), ""),
    Equals(("empty",), "x"),
    Equals(("other",), 5),
    Equals(("other",), ""),
    Equals(("other", "t"), 5),
    Equals(("next", 1), 41),
    AtLeast(("n",), 6),
    AtLeast(("minus",), 0),
    AtLeast(("other",), 0),
    AtLeast(("next", 1), 0),
    AtLeast(("leases", "T", 0), 0),
    AtMost(("n",), 4),
    AtMost(("minus",), -6),
    AtMost(("next", 0), 40),
    AtMost(("other",), 10**15),
    AtMost(("next", 1), 10**15),
    AtMost(("leases", "T", 0), 10**15),
    SizeIs(("list",), 3),
    SizeIs(("list",), 5),
    SizeIs(("void",), 1),
    SizeIs(("other",), 0),
    SizeIs(("leases", "T"), 0),
    SizeIs(("other", "t"), 0),
    SizeBelow(("list",), 4),
    SizeBelow(("void",), 0),
    SizeBelow(("other",), 1),
    SizeBelow(("leases", "T"), 1),
    Lacks(("list",), 1),
    Lacks(("list",), ""),
    Lacks(("list",), b"\x00"),
    Lacks(("leases", "-_"), b"a\x01"),
    Lacks(("entries",), dict(reversed(ENTRY.items()))),
    Either(Exists(("other",)), Absent(("n",))),
    Either(Either(Exists(("other",)), Absent(("n",))), Absent(("word",))),
]

HOLD_ON_NOTHING = [
    Absent(("n",)),
    Absent(("leases", "t")),
    Absent(("next", 0)),
    Lacks(("list",), 1),
    Either(Exists(("n",)), Absent(("n",))),
]

FAIL_ON_NOTHING = [
    Exists(("n",)),
    Exists(("pk",)),
    Equals(("n",), 0),
    Equals(("word",), ""),
    AtLeast(("n",), 0),
    AtMost(("n",), 10**15),
    SizeIs(("list",), 0),
    SizeBelow(("list",), 1),
    Either(Exists(("n",)), Equals(("n",), 0)),
]


@pytest.mark.parametrize("guard", HOLD, ids=repr)
def test_a_guard_that_holds_lets_the_write_through(store: Store, key: Key, guard: Guard) -> None:
    put(store, key, **ITEM)
    after = store.write(guarded(key, guard, Set(("seen",), 1)))
    assert after == {"pk": key.pk, "sk": key.sk, **ITEM, "seen": 1}


@pytest.mark.parametrize("guard", FAIL, ids=repr)
def test_a_guard_that_fails_refuses_the_write_and_shows_the_item(store: Store, key: Key, guard: Guard) -> None:
    item = put(store, key, **ITEM)
    with pytest.raises(Refused) as refused:
        store.write(guarded(key, guard, Set(("seen",), 1)))
    assert refused.value.before == item
    assert found(store, key) == item


@pytest.mark.parametrize("guard", HOLD_ON_NOTHING, ids=repr)
def test_a_guard_that_holds_on_nothing_lets_an_item_be_made(store: Store, key: Key, guard: Guard) -> None:
    assert store.write(guarded(key, guard, Set(("seen",), 1))) == {"pk": key.pk, "sk": key.sk, "seen": 1}


@pytest.mark.parametrize("guard", FAIL_ON_NOTHING, ids=repr)
def test_a_guard_that_fails_on_nothing_makes_nothing(store: Store, key: Key, guard: Guard) -> None:
    with pytest.raises(Refused) as refused:
        store.write(guarded(key, guard, Set(("seen",), 1)))
    assert refused.value.before == {}
    assert found(store, key) is None


def test_all_guards_of_a_write_must_hold(store: Store, key: Key) -> None:
    item = put(store, key, n=5)
    for guards in ((Equals(("n",), 5), Exists(("other",))), (Exists(("other",)), Equals(("n",), 5))):
        with pytest.raises(Refused):
            store.write(Write(key, guards, (Set(("n",), 6),)))
    assert found(store, key) == item
    assert store.write(Write(key, (Equals(("n",), 5), Absent(("other",))), (Set(("n",), 6),)))["n"] == 6


def test_names_that_dynamodb_reserves_are_names_like_any_other(store: Store, key: Key) -> None:
    reserved = ("end", "next", "count", "size", "values", "user", "data", "name", "a.b", "a b", "#0", ":0", "-", "0")
    put(store, key, **dict.fromkeys(reserved, 1))
    guards = tuple(Equals((name,), 1) for name in reserved)
    after = store.write(Write(key, guards, tuple(Set((name,), 2) for name in reserved)))
    assert {name: after[name] for name in reserved} == dict.fromkeys(reserved, 2)
