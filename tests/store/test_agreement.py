"""The real stores answer every write as the memory store does: so results of the simulation hold for them."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from chalicelib.core.store import Outcome, Range, Store
from chalicelib.core.table.writes import (
    Absent,
    Add,
    Append,
    AtLeast,
    AtMost,
    Effect,
    Either,
    Equals,
    Exists,
    Guard,
    Key,
    Lacks,
    Path,
    Refused,
    Remove,
    RemoveItem,
    Set,
    SizeBelow,
    SizeIs,
    Write,
)
from local.memory.store import MemoryStore
from tests.store.shelf import HIGH, LOW, found

NUMBERS = st.integers(-3, 3) | st.sampled_from([10**15, -(10**15)])
WORDS = st.sampled_from(["", "a", "b"])
MARKS = st.binary(max_size=2)
ENTRIES = st.fixed_dictionaries({"i": MARKS, "n": NUMBERS})
ELEMENTS = NUMBERS | WORDS | MARKS | ENTRIES
LISTS = st.lists(ELEMENTS, max_size=4)
TOKENS = ("t", "~u", "-_")
LEASES = st.dictionaries(st.sampled_from(TOKENS), st.lists(NUMBERS, min_size=1, max_size=2), max_size=3)

ATTRIBUTES: dict[str, st.SearchStrategy[Any]] = {
    "n": NUMBERS,
    "word": WORDS,
    "list": LISTS,
    "next": st.lists(NUMBERS, min_size=1, max_size=1),
    "leases": LEASES,
}
ITEMS = st.none() | st.fixed_dictionaries({}, optional=ATTRIBUTES)

LEASE_PATHS: list[Path] = [("leases", token) for token in TOKENS]
NUMBER_PATHS: list[Path] = [("n",), ("next", 0), *((*path, 0) for path in LEASE_PATHS)]
LIST_PATHS: list[Path] = [("list",), ("next",), *LEASE_PATHS]
ALL_PATHS: list[Path] = [*NUMBER_PATHS, *LIST_PATHS, ("word",), ("leases",), ("list", 1), ("none",), ("none", "t")]

SIMPLE_GUARDS: st.SearchStrategy[Guard] = st.one_of(
    st.builds(Exists, st.sampled_from(ALL_PATHS)),
    st.builds(Absent, st.sampled_from(ALL_PATHS)),
    st.builds(Equals, st.sampled_from(ALL_PATHS), NUMBERS | WORDS),
    st.builds(AtLeast, st.sampled_from(NUMBER_PATHS), NUMBERS),
    st.builds(AtMost, st.sampled_from(NUMBER_PATHS), NUMBERS),
    st.builds(SizeIs, st.sampled_from([*LIST_PATHS, ("leases",)]), st.integers(0, 4)),
    st.builds(SizeBelow, st.sampled_from([*LIST_PATHS, ("leases",)]), st.integers(0, 4)),
    st.builds(Lacks, st.sampled_from(LIST_PATHS), ELEMENTS),
)
GUARDS: st.SearchStrategy[Guard] = st.recursive(
    SIMPLE_GUARDS,
    lambda inner: st.builds(Either, inner, inner),
    max_leaves=4,
)


@st.composite
def effects(draw: st.DrawFn, item: dict[str, Any] | None) -> tuple[Effect, ...]:
    """Effects on places that do not overlap, none below a missing one: as in every write of ours."""
    if draw(st.integers(0, 9)) == 0:
        return (RemoveItem(),)
    there = item or {}
    options: list[st.SearchStrategy[Effect]] = [
        st.sampled_from([Remove(("n",))]) | st.builds(Add, st.just(("n",)), NUMBERS, NUMBERS),
        st.builds(Set, st.just(("word",)), ELEMENTS) | st.just(Remove(("word",))),
        st.builds(Append, st.just(("list",)), LISTS) | st.builds(Set, st.just(("list",)), LISTS),
        st.builds(Set, st.just(("new",)), LEASES | LISTS | NUMBERS),
    ]
    if "next" in there:
        options.append(st.builds(Add, st.just(("next", 0)), NUMBERS))
        options.append(st.builds(Append, st.just(("copy",)), LISTS, st.just(("next",))))
    if "leases" in there:
        onto = [None, *([("next",)] if "next" in there else [])]
        for path in LEASE_PATHS:
            appending = [st.builds(Append, st.just(path), LISTS, st.just(each)) for each in onto]
            options.append(st.one_of(st.just(Remove(path)), st.builds(Set, st.just(path), LISTS), *appending))
    else:
        options.append(st.builds(Set, st.just(("leases",)), LEASES))
    chosen = draw(st.lists(st.sampled_from(range(len(options))), min_size=1, unique=True))
    return tuple(draw(options[place]) for place in chosen)


@st.composite
def cases(draw: st.DrawFn) -> tuple[dict[str, Any] | None, tuple[Guard, ...], tuple[Effect, ...]]:
    item = draw(ITEMS)
    return item, tuple(draw(st.lists(GUARDS, max_size=3))), draw(effects(item))


@pytest.mark.parametrize("store", ["moto", "dynoxide"], indirect=True)
@settings(max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(case=cases(), together=st.booleans())
def test_a_write_has_the_same_outcome_as_in_memory(store: Store, case: Any, together: bool) -> None:
    item, guards, changes = case
    key = Key(uuid4().hex, "a")
    write = Write(key, guards, changes)
    memory = MemoryStore()
    for each in (memory, store):
        if item is not None:
            each.put_all([{**key._asdict(), **item}])
    assert _outcome(store, write, together) == _outcome(memory, write, together)
    assert found(store, key) == found(memory, key)


@pytest.mark.parametrize("store", ["dynoxide"], indirect=True)
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_range_is_answered_as_in_memory(store: Store, data: st.DataObject) -> None:
    pk = uuid4().hex
    items = [{"pk": pk, "sk": sk} for sk in data.draw(st.sets(st.sampled_from("bcdfghjk"), max_size=8))]
    low, high = sorted((data.draw(st.sampled_from("abcdefghijkl")), data.draw(st.sampled_from("abcdefghijkl"))))
    memory = MemoryStore()
    for each in (memory, store):
        each.put_all(items)
    for limit in (None, 1, 3):
        for descending in (False, True):
            reads = [Range(pk, low, high, limit, descending), Range(pk, LOW, HIGH, limit, descending)]
            assert store.read(reads) == memory.read(reads)


def _outcome(store: Store, write: Write, together: bool) -> Outcome | tuple[str, Any] | None:
    try:
        if together:
            store.write_together([write])
            return None
        return store.write(write)
    except Refused as refused:
        return "refused", refused.before
