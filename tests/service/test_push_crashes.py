"""Dispatchers that die or stop after any request: nothing is lost, and nothing is in two calls at once."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from chalicelib.api import Api
from chalicelib.push.outside import ConsumerResponse
from chalicelib.push.slots import LEASE_SPARE_MS, PAUSE_MS_MAX, SLOT_SPARE_MS
from chalicelib.service import Service
from tests.support.consumer import Call, Consumer, failing
from tests.support.stopping import Stage, Work, die_after, finish, requests_of, stop_after

TIMEOUT_MS = 10_000
LEASE_MS = TIMEOUT_MS + LEASE_SPARE_MS
BODIES = [f"m{number}" for number in range(6)]


class Scene(Stage):
    """A pushed group with messages in two queues. The consumer reports one message and fails one call, each once."""

    def __init__(self) -> None:
        super().__init__()
        api = Api(self.instance())
        api.put_topic("t", {"queues": 2})
        api.put_group("t", "g", {"push": {"url": "https://a.example/", "batch": 2}, "backoff_ms": [1_000]})
        api.produce("t", {"messages": [{"body": body, "queue": int(body[1:]) % 2} for body in BODIES]})
        self.arrange()

    def arrange(self) -> None:
        """The consumer, which a copy has anew."""
        self.consumer = Consumer(react=self.answer)
        self.had: list[tuple[int, str]] = []
        self.wrong: list[Call] = []
        """Calls whose messages are not leased for as long as they may take."""

    def copy(self) -> Scene:
        other = super().copy()
        other.arrange()
        return other

    def answer(self, call: Call) -> ConsumerResponse:
        self.had += [(self.now, body) for body in call.bodies]
        if any(message["invisible_until_ms"] < self.now + call.timeout_ms for message in call.messages):
            self.wrong.append(call)
        if len(self.consumer.calls) == 1:
            return failing({"itemIdentifier": call.messages[0]["message_id"], "delay_ms": 100})
        return ConsumerResponse(500 if len(self.consumer.calls) == 2 else 200)

    def instance(self, stop: Callable[[], None] = lambda: None) -> Service:
        service = super().instance(stop)
        outside = getattr(self, "consumer", Consumer()).outside()
        return Service(service.env.store, service.env.runtime, b"0123456789abcdef", outside=outside)

    def run(self) -> None:
        self.instance().pushing.run("t", True)

    def later(self) -> None:
        """Everything that anybody held is over, and what is left is pushed."""
        self.now += LEASE_MS + SLOT_SPARE_MS + PAUSE_MS_MAX
        for _ in range(3):
            self.run()
            self.now += PAUSE_MS_MAX

    def verdict(self) -> None:
        group = Api(self.instance()).get_group("t", "g")
        assert [group[name] for name in ("ready", "in_flight", "retrying", "dead")] == [0, 0, 0, 0]
        assert {body for _, body in self.had} == set(BODIES)
        assert self.wrong == []


def running(scene: Scene) -> Work:
    return lambda stop: scene.instance(stop).pushing.run("t", True)


@pytest.fixture(scope="module")
def scene() -> Scene:
    return Scene()


@pytest.fixture(autouse=True)
def no_defect(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    yield
    assert [line.getMessage() for line in caplog.get_records("call") if line.levelno >= logging.ERROR] == []


def test_a_run_delivers_every_message_and_settles_it(scene: Scene) -> None:
    fresh = scene.copy()
    fresh.run()
    fresh.verdict()
    again = {*fresh.consumer.bodies[0][:1], *fresh.consumer.bodies[1]}  # what was reported, and what failed
    assert Counter(body for _, body in fresh.had) == {body: 1 + (body in again) for body in BODIES}


def test_a_run_that_dies_after_any_request_is_made_up_for(scene: Scene) -> None:
    count = requests_of(running(scene.copy()))
    assert count > 20
    for request in range(1, count + 1):
        fresh = scene.copy()
        die_after(running(fresh), request)
        fresh.later()
        fresh.verdict()


def test_a_run_that_stops_lets_no_other_call_with_its_messages(scene: Scene) -> None:
    """Time stands still while it has stopped: whatever the other calls with is not leased by the first."""
    for request in range(1, requests_of(running(scene.copy())) + 1):
        fresh = scene.copy()
        stopped = stop_after(running(fresh), request)
        before = Counter(body for _, body in fresh.had)
        calls = len(fresh.consumer.calls)
        fresh.run()
        finish(stopped, goes_on=True)
        if calls > 2:  # nothing fails any more
            assert max((Counter(body for _, body in fresh.had) - before).values(), default=1) == 1
        fresh.later()
        fresh.verdict()


def test_a_run_that_slept_too_long_makes_no_call(scene: Scene) -> None:
    """Whenever it goes on, its messages are not leased for the time of a call: another has them, or it gives up."""
    for request in range(1, requests_of(running(scene.copy())) + 1):
        fresh = scene.copy()
        fresh.consumer.calls += [Call("", {}, b"", 0)] * 2  # nothing fails
        stopped = stop_after(running(fresh), request)
        fresh.now += LEASE_MS - TIMEOUT_MS + 1
        asleep = len(fresh.had)
        finish(stopped, goes_on=True)
        times: dict[str, list[int]] = {}
        for at_ms, body in fresh.had[asleep:]:
            times.setdefault(body, []).append(at_ms)
        assert all(len(at_ms) == 1 for at_ms in times.values()), f"asleep after request {request}"
        fresh.later()
        fresh.verdict()


def test_a_slot_is_held_during_its_call(scene: Scene) -> None:
    fresh = scene.copy()
    calls: list[int] = []

    def answer(call: Call) -> ConsumerResponse:
        fresh.consumer.react = None  # nothing fails
        began_ms = fresh.now
        fresh.run()  # another instance, while the call is under way
        assert fresh.now == began_ms  # it leaves the rest to this one
        calls.append(len(fresh.consumer.calls))
        return ConsumerResponse(200)

    fresh.consumer.react = answer
    fresh.run()
    assert calls == [1]
    assert {body for call in fresh.consumer.calls for body in call.bodies} == set(BODIES)
