"""The order of a queue, and of a key, when other calls come between the look of a pop and its write."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from chalicelib.api import Api
from local.memory.store import MemoryStore
from tests.service.test_interleavings import Interrupted
from tests.support.clock import Clock
from tests.support.instances import instance
from tests.support.late_store import LateStore


@pytest.fixture
def store() -> Interrupted:
    return Interrupted()


@pytest.fixture
def clock() -> Clock:
    return Clock()


def prepared(store: MemoryStore, clock: Clock, *keys: str, ordered: bool | str = "key") -> Api:
    api = instance(store, clock)
    api.put_topic("t", {"queues": 1})
    api.put_group("t", "g", {"ordered": ordered, "invisible_ms": 1_000})
    api.produce("t", {"messages": [{"body": key, "key": key} for key in keys]})
    return api


def pop(api: Api, count: int, **fields: object) -> tuple[list[int], list[str]]:
    """Offsets and receipts."""
    found = api.pop("t", "g", {"max_messages": count, **fields})["messages"]
    return [each["offset"] for each in found], [each["receipt"] for each in found]


def offsets(found: tuple[Sequence[int], object]) -> list[int]:
    return [*found[0]]


@pytest.mark.parametrize(("ordered", "taken"), [(True, []), ("key", [2])])
def test_a_claim_sent_again_delivers_nothing_behind_what_others_took(
    store: Interrupted, clock: Clock, ordered: bool | str, taken: list[int]
) -> None:
    """Its reply was lost, and its lease ended before it was repeated."""
    api, other = prepared(store, clock, "a", "a", "b", ordered=ordered), instance(store, clock, 7)

    def taken_over() -> None:
        clock.ms += 1_000
        assert offsets(pop(other, 1, invisible_ms=60_000)) == [0]

    store.before_repeat = taken_over
    assert offsets(pop(api, 10)) == taken


@pytest.mark.parametrize(("act", "wait"), [("extend", "invisible_ms"), ("nack", "delay_ms")])
def test_an_ack_of_what_is_left_of_a_lease_takes_nothing_if_that_has_moved(
    store: Interrupted, clock: Clock, act: str, wait: str
) -> None:
    """The other message of the lease was nacked before, so the ack leaves the lease there."""
    api, other = prepared(store, clock, "a", "b", "c", ordered=True), instance(store, clock, 7)
    _, (first, second) = pop(api, 2)
    api.nack("t", "g", {"receipts": [first], "delay_ms": 0})
    store.meanwhile = lambda: getattr(other, act)("t", "g", {"receipts": [second], wait: 60_000})
    assert offsets(pop(api, 10, ack=[second])) == []
    clock.ms += 60_000
    assert offsets(pop(api, 10)) == [0, 1, 2]


def test_what_is_extended_after_its_end_is_not_passed(store: Interrupted, clock: Clock) -> None:
    api, other = prepared(store, clock, "a", "a", "b"), instance(store, clock, 7)
    _, (first,) = pop(api, 1)
    clock.ms += 1_000
    store.meanwhile = lambda: api.extend("t", "g", {"receipts": [first], "invisible_ms": 60_000})
    assert offsets(pop(other, 10)) == [2]


def test_a_pop_that_is_refused_sets_nothing_aside_twice(store: Interrupted, clock: Clock) -> None:
    api, other = prepared(store, clock, "a", "a", "b", "c"), instance(store, clock, 7)
    pop(api, 1, invisible_ms=60_000)
    store.meanwhile = lambda: pop(other, 1, invisible_ms=60_000)
    assert offsets(pop(api, 1, invisible_ms=60_000)) == [3]
    found = api.get_group("t", "g")
    assert (found["ready"], found["in_flight"]) == (1, 3)


def test_the_rest_of_a_lease_is_not_taken_by_the_write_that_acks_a_part(store: Interrupted, clock: Clock) -> None:
    api, other = prepared(store, clock, *"abcd"), instance(store, clock, 7)
    _, (first, _) = pop(api, 2)
    clock.ms += 995

    def run_out() -> None:
        clock.ms += 20
        assert offsets(pop(other, 1)) == [2]

    store.meanwhile = run_out
    assert offsets(pop(api, 10, ack=[first])) == [3]


def test_what_was_extended_before_a_stale_look_counts_against_the_cap(clock: Clock) -> None:
    store = LateStore()
    api = prepared(store, clock, "a", "b", "c", "d")
    api.put_group("t", "g", {"max_in_flight": 2})
    _, receipts = pop(api, 2)
    store.fall_behind()
    api.extend("t", "g", {"receipts": receipts, "invisible_ms": 60_000})
    clock.ms += 1_000
    assert offsets(pop(instance(store, clock, 7), 1)) == []


def test_a_key_is_held_though_the_read_of_what_holds_it_is_stale(clock: Clock) -> None:
    """The cursor is read strongly for the attempt, and so is the end of the log after a promotion."""
    store = LateStore()
    api = prepared(store, clock, "c")
    api.produce("t", {"messages": [{"body": key, "key": key, "delay_ms": 1_000} for key in "ab"]})
    store.fall_behind()
    lagging, store.past = store.past, None
    api.produce("t", {"messages": [{"body": "a", "key": "a"}]})
    assert offsets(pop(api, 2, invisible_ms=60_000)) == [0, 1]
    clock.ms += 1_000
    store.past = lagging
    assert offsets(pop(instance(store, clock, 7), 10, attempt_id="x")) == [3]
