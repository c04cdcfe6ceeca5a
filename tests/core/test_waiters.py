"""Pops that wait in one instance: which of them wake when a call stores messages there."""

from __future__ import annotations

from unittest.mock import Mock

import pytest

from chalicelib.api import Api
from chalicelib.core.consuming.waiters import POLL_MS_MAX, Waiter, Waiters, WaitKey
from local.memory.store import MemoryStore
from tests.support.clock import Clock
from tests.support.instances import instance

WAIT_MS = 20_000
BILLING, SHIPPING, ELSEWHERE = WaitKey("t", "billing"), WaitKey("t", "shipping"), WaitKey("u", "billing")


def rested_ms(clock: Clock, waiter: Waiter, ready_at_ms: int | None = None, is_held: bool = False) -> int:
    began_ms = clock.ms
    waiter.rest(ready_at_ms, is_held)
    return clock.ms - began_ms


def test_one_pop_of_each_group_hears_of_a_message() -> None:
    waiters = Waiters(Clock().runtime())
    with (
        waiters.waiting(BILLING, WAIT_MS) as first,
        waiters.waiting(BILLING, WAIT_MS) as second,
        waiters.waiting(SHIPPING, WAIT_MS) as other,
        waiters.waiting(ELSEWHERE, WAIT_MS) as elsewhere,
    ):
        waiters.stored("t")
        assert [waiter.was_told for waiter in (first, second, other, elsewhere)] == [True, False, True, False]
    assert waiters._waiting == {}


def test_every_consumer_of_a_broadcast_group_hears_of_a_message() -> None:
    waiters = Waiters(Clock().runtime())
    with (
        waiters.waiting(WaitKey("t", "all", "ann"), WAIT_MS) as ann,
        waiters.waiting(WaitKey("t", "all", "bob"), WAIT_MS) as bob,
    ):
        waiters.stored("t")
        assert ann.was_told
        assert bob.was_told


def test_consumers_wait_together_unless_each_has_its_own_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    service = instance(MemoryStore(), Clock(), 1).service
    api, waiters = Api(service), service.consuming.waiters
    waiting = Mock(wraps=waiters.waiting)
    monkeypatch.setattr(waiters, "waiting", waiting)
    api.put_topic("t", {"queues": 2, "zones": {"a": [0], "b": [1]}})
    api.put_group("t", "billing", {})
    api.put_group("t", "all", {"mode": "broadcast"})
    for group, asks in {
        "billing": [{"consumer_id": "ann"}, {"consumer_id": "ann"}, {"consumer_id": "bob"}, {"zone": "a"}],
        "all": [{"consumer_id": "ann"}, {"consumer_id": "ann", "zone": "a"}, {"consumer_id": "bob"}],
    }.items():
        for ask in asks:
            api.pop("t", group, {**ask, "wait_ms": 1})
    places = [called.args[0] for called in waiting.call_args_list]
    assert [place[2:] for place in places[1:4]] == [(None, None), (None, None), (None, "a")]
    assert [place[2:] for place in places[4:]] == [("ann", None), ("ann", None), ("bob", None)]


def test_who_was_told_tells_the_next_when_it_leaves() -> None:
    """It may not have taken all there was, or not have looked any more."""
    waiters = Waiters(Clock().runtime())
    with waiters.waiting(BILLING, WAIT_MS) as first:
        pass
    assert not first.was_told
    leaving = waiters.waiting(BILLING, WAIT_MS)
    leaving.__enter__()
    with waiters.waiting(BILLING, WAIT_MS) as second:
        waiters.stored("t")
        assert not second.was_told
        leaving.__exit__(None, None, None)
        assert second.was_told


def test_a_rest_ends_at_once_when_something_is_stored_during_it() -> None:
    clock = Clock()
    waiters = Waiters(clock.runtime())
    with waiters.waiting(BILLING, WAIT_MS) as waiter:
        waiter.listen()
        clock.sleep(9_000)
        clock.at(clock.ms + 700, lambda: waiters.stored("t"))
        assert rested_ms(clock, waiter) == 700


def test_a_message_stored_during_a_look_ends_the_rest_after_it() -> None:
    clock = Clock()
    waiters = Waiters(clock.runtime())
    with waiters.waiting(BILLING, WAIT_MS) as waiter:
        clock.sleep(9_000)
        waiter.listen()
        waiters.stored("t")
        assert rested_ms(clock, waiter) == 0


def test_a_pop_that_was_told_and_got_nothing_looks_again_soon() -> None:
    """Its look may be one that does not show yet what was stored."""
    clock = Clock()
    waiters = Waiters(clock.runtime())
    with waiters.waiting(BILLING, WAIT_MS) as waiter:
        for _ in range(12):
            waiter.listen()
            rested_ms(clock, waiter)
        clock.at(clock.ms + 100, lambda: waiters.stored("t"))
        rests = []
        for _ in range(7):
            waiter.listen()
            rests.append(rested_ms(clock, waiter))
    assert rests == [100, 10, 20, 40, 80, 160, POLL_MS_MAX]


def test_rests_grow_with_the_silence_and_end_at_what_is_due() -> None:
    clock = Clock()
    waiter = Waiter(clock.runtime(), WAIT_MS)
    rests = []
    while not waiter.is_over():
        waiter.listen()
        rests.append(rested_ms(clock, waiter))
    assert rests[:6] == [10, 20, 40, 80, 160, POLL_MS_MAX]
    assert max(rests) == 1_500
    assert sum(rests) == WAIT_MS
    waiter = Waiter(clock.runtime(), WAIT_MS)
    clock.sleep(9_000)
    assert rested_ms(clock, waiter, ready_at_ms=clock.ms + 33) == 33
    assert rested_ms(clock, waiter, is_held=True) < POLL_MS_MAX


def test_a_pop_that_does_not_wait_is_told_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    service = instance(MemoryStore(), Clock(), 1).service
    api, waiting = Api(service), Mock()
    monkeypatch.setattr(service.consuming.waiters, "waiting", waiting)
    api.put_topic("t", {})
    api.put_group("t", "billing", {})
    assert api.pop("t", "billing", {})["messages"] == []
    assert not waiting.called
