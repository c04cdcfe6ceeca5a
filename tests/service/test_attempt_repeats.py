"""A pop that is repeated by its attempt id, where reads show the past."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from random import Random

import pytest

from chalicelib.api import Api
from chalicelib.core.base.errors import StoreUnavailable
from chalicelib.core.base.limits import MIB, TAKEOVERS_MAX
from tests.support.clock import Clock
from tests.support.instances import instance, with_messages
from tests.support.late_store import LateStore
from tests.support.stopping import Stage, finish, requests_of, stop_after
from tests.support.troubled_store import TroubledStore


@pytest.mark.parametrize("mode", ["clustering", "broadcast"])
@pytest.mark.parametrize("is_known", [True, False])
@pytest.mark.parametrize("old", [["old"], []])
def test_a_repeat_returns_all_its_attempt_holds_though_reads_are_stale(
    mode: str, is_known: bool, old: list[str]
) -> None:
    """Also at an instance that knows the group."""
    store, clock = LateStore(), Clock()
    api, other = instance(store, clock), instance(store, clock, seed=2)
    api.put_topic("t", {"queues": 1})
    api.put_group("t", "g", {"mode": mode})
    ask = {"max_messages": 10, "attempt_id": "a", "consumer_id": "ann"}
    if is_known:
        other.pop("t", "g", {**ask, "attempt_id": "b"})
    for body in old:
        api.produce("t", {"messages": [{"body": body}]})
    store.fall_behind()
    api.produce("t", {"messages": [{"body": "new"}]})
    past, store.past = store.past, None
    first = api.pop("t", "g", ask)["messages"]
    store.past = past
    again = other.pop("t", "g", ask)["messages"]
    assert [each["body"] for each in again] == [*old, "new"]
    assert [each["receipt"] for each in again] == [each["receipt"] for each in first]


def test_a_repeat_takes_nothing_else_though_reads_are_stale() -> None:
    store, clock = LateStore(), Clock()
    api = instance(store, clock)
    api.put_topic("t", {"queues": 2})
    api.put_group("t", "g", {})
    api.produce("t", {"messages": [{"body": "due later", "queue": 1}]})
    api.pop("t", "g", {"invisible_ms": 1_000})
    store.fall_behind()
    past, store.past = store.past, None
    api.produce("t", {"messages": [{"body": "held", "queue": 0}]})
    first = api.pop("t", "g", {"attempt_id": "a"})["messages"]
    store.past = past
    clock.sleep(1_000)
    assert instance(store, clock, seed=2).pop("t", "g", {"attempt_id": "a"})["messages"] == first


def test_a_repeat_answers_4_mib_over_all_queues_that_its_attempt_holds() -> None:
    """The queues hold 3 MiB each. A call that has looked stops until another call of its attempt is done."""
    ask = {"max_messages": 10, "fill": True, "attempt_id": "a"}

    def pop(stop: Callable[[], None]) -> None:
        Api(stage.instance(stop)).pop("t", "g", ask)

    def set_up() -> Api:
        api = Api(stage.instance())
        api.put_topic("t", {"queues": 2})
        api.put_group("t", "g", {})
        api.produce("t", {"messages": [{"body": "0" * 3 * MIB, "queue": 0}]})
        return api

    held_by_both = 0
    stage = Stage()
    set_up()
    for request in range(1, requests_of(pop) + 1):
        stage = Stage()
        api = set_up()
        first = stop_after(pop, request)
        others = api.pop("t", "g", {"invisible_ms": 1})["messages"]
        api.produce("t", {"messages": [{"body": "1" * 3 * MIB, "queue": 1}]})
        pop(lambda: None)
        stage.now += 1
        finish(first, goes_on=True)
        again = Api(stage.instance()).pop("t", "g", ask)["messages"]
        assert sum(len(each["body"]) for each in again) == 3 * MIB
        held_by_both += bool(others) and api.get_group("t", "g")["in_flight"] == 2
    assert held_by_both


def with_a_large_message(store: TroubledStore, clock: Clock) -> Api:
    """Its body has an item of its own."""
    api = with_messages(store, clock, 0)
    api.produce("t", {"messages": [{"body": Random(0).randbytes(20_000).hex()}]})
    return api


def no_payloads(verb: str, about: object) -> StoreUnavailable | None:
    return StoreUnavailable("down") if verb == "read" and "payload" in str(about) else None


def test_what_a_repeat_delivers_is_not_given_back_by_the_first_call() -> None:
    """The first call has leased a message whose body it cannot read."""
    store, clock = TroubledStore(), Clock()
    api = with_a_large_message(store, clock)
    ask, came = {"attempt_id": "a"}, []

    def repeat_before_it(verb: str, about: object) -> StoreUnavailable | None:
        if no_payloads(verb, about):
            store.before = lambda *_: None
            came.extend(instance(store, clock, seed=2).pop("t", "g", ask)["messages"])
            store.before = no_payloads
        return no_payloads(verb, about)

    store.before = repeat_before_it
    with pytest.raises(StoreUnavailable, match="down"):
        api.pop("t", "g", ask)
    store.before = lambda *_: None
    clock.sleep(2_000)
    assert len(came) == 1
    assert api.pop("t", "g", {})["messages"] == []


def test_what_the_first_call_delivered_is_not_given_back_by_a_repeat() -> None:
    """The repeat cannot read it."""
    store, clock = TroubledStore(), Clock()
    api = with_a_large_message(store, clock)
    assert len(api.pop("t", "g", {"attempt_id": "a"})["messages"]) == 1
    store.before = no_payloads
    with pytest.raises(StoreUnavailable, match="down"):
        instance(store, clock, seed=2).pop("t", "g", {"attempt_id": "a"})
    store.before = lambda *_: None
    clock.sleep(2_000)
    assert api.pop("t", "g", {})["messages"] == []


def test_an_attempt_with_a_claim_without_answer_is_repeated_whole() -> None:
    """One write cannot take over all leases that have expired. A part of them would not be what the repeat returns."""
    store, clock = TroubledStore(), Clock()
    api = with_messages(store, clock, TAKEOVERS_MAX + 5)
    for _ in range(TAKEOVERS_MAX + 5):
        api.pop("t", "g", {"max_messages": 1, "invisible_ms": 1_000})
    clock.sleep(1_000)
    claims = count()
    lost = StoreUnavailable("no answer", outcome="unknown")
    store.after = lambda verb, _: lost if verb == "write" and next(claims) == 1 else None
    ask = {"max_messages": TAKEOVERS_MAX + 5, "attempt_id": "a"}
    with pytest.raises(StoreUnavailable, match="no answer"):
        api.pop("t", "g", ask)
    assert len(api.pop("t", "g", ask)["messages"]) == TAKEOVERS_MAX + 5
