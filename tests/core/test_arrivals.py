"""Calls that wait in one instance look for their replies together."""

from __future__ import annotations

from contextlib import ExitStack

from chalicelib.core.requests.asking import PAUSE_MS_MAX, PAUSE_MS_MIN, TOGETHER_MAX, Arrivals
from chalicelib.core.table.writes import Key
from tests.support.clock import Clock


def key(number: int) -> Key:
    return Key("reply", str(number))


def test_one_looks_for_all_whose_look_is_due_soon() -> None:
    clock = Clock()
    arrivals = Arrivals(clock.runtime(1))
    now = clock.uptime()
    asked_ms = {key(1): now, key(2): now, key(3): now - 100 * PAUSE_MS_MAX}
    with ExitStack() as waiting:
        for reply, ms in asked_ms.items():
            waiting.enter_context(arrivals.expected(reply, ms))
        clock.sleep(PAUSE_MS_MIN)
        assert arrivals.due() == [key(1), key(2)]
        assert arrivals.due() == []
        clock.sleep(PAUSE_MS_MAX // 2)
        assert arrivals.due() == [key(1), key(2), key(3)]


def test_two_that_wait_for_one_reply_read_it_once() -> None:
    clock = Clock()
    arrivals = Arrivals(clock.runtime(1))
    with arrivals.expected(key(1), clock.uptime()) as one, arrivals.expected(key(1), clock.uptime()) as other:
        clock.sleep(PAUSE_MS_MIN)
        assert arrivals.due() == [key(1)]
        arrivals.tell(key(1), {"at": 1})
        assert one.item == other.item == {"at": 1}
    arrivals.tell(key(1), {"at": 1})  # nobody waits any more
    assert not arrivals._expected


def test_those_that_are_due_longest_are_read_first() -> None:
    clock = Clock()
    arrivals = Arrivals(clock.runtime(1))
    with ExitStack() as waiting:
        for number in range(TOGETHER_MAX + 1):
            waiting.enter_context(arrivals.expected(key(number), clock.uptime()))
            clock.sleep(1)
        clock.sleep(PAUSE_MS_MAX)
        assert arrivals.due() == [key(number) for number in range(TOGETHER_MAX)]
        assert arrivals.due() == [key(TOGETHER_MAX)]


def test_in_a_crowd_looks_are_half_a_millisecond_apart_for_each_call() -> None:
    clock = Clock()
    arrivals = Arrivals(clock.runtime(1))
    with ExitStack() as waiting:
        crowd = [waiting.enter_context(arrivals.expected(key(number), clock.uptime())) for number in range(60)]
        clock.sleep(PAUSE_MS_MIN)
        arrivals.due()
        assert {arrival.look_at_ms - clock.uptime() for arrival in crowd} == {30}
