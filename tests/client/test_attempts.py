"""When a call is repeated, after which pause, and until when: with a clock and chance of the test's own."""

from __future__ import annotations

import json
from typing import Any

import pytest

from decant import Decant, OutcomeUnknown, QueueFull, Unreachable, operations
from decant.calls import Attempts, HttpRequest, HttpResponse, NoAnswer, NotSent, Pause


class World:
    """A transport whose answers are given, and a clock that sleeps move."""

    address = "http://queue.example"

    def __init__(self, *outcomes: Any, took_s: float = 0.0) -> None:
        self.outcomes, self.took_s = [*outcomes], took_s
        self.now = 1_000.0
        self.sent: list[tuple[float, float]] = []
        """When each attempt began, and how long it might take."""
        self.slept: list[float] = []

    def send(self, request: HttpRequest, timeout_s: float) -> HttpResponse:
        self.sent.append((self.now, timeout_s))
        self.now += self.took_s
        outcome = self.outcomes.pop(0) if len(self.outcomes) > 1 else self.outcomes[0]
        if isinstance(outcome, Exception):
            raise outcome
        assert isinstance(outcome, HttpResponse)
        return outcome

    def close(self) -> None:
        pass

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds

    def client(self, timeout: float = 10.0, random: float = 1.0) -> Decant:
        clock, chance = lambda: self.now, lambda: random
        return Decant(transport=self, timeout=timeout, clock=clock, random=chance, sleep=self.sleep)


def answered(status: int, value: Any, **headers: str) -> HttpResponse:
    return HttpResponse(
        status, {name.replace("_", "-"): text for name, text in headers.items()}, json.dumps(value).encode()
    )


STORED = answered(200, {"messages": [{"message_id": "m", "queue": 0, "offset": 0}]})
FULL = answered(429, {"code": "QueueFull"}, retry_after="1")


def test_pauses_double_up_to_the_longest() -> None:
    world = World(NotSent("down"))
    with pytest.raises(Unreachable):
        world.client(timeout=30).send("orders", "hello")
    assert world.slept == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0, 5.0, 5.0]


def test_chance_shortens_a_pause_by_up_to_a_half() -> None:
    world = World(NotSent("down"), NotSent("down"), STORED)
    world.client(random=0.0).send("orders", "hello")
    assert world.slept == [0.05, 0.1]


def test_an_attempt_may_take_what_is_left_of_the_time() -> None:
    world = World(NotSent("down"), STORED, took_s=4.0)
    world.client(timeout=10).send("orders", "hello")
    assert world.sent == [(1_000.0, 10.0), (1_004.1, pytest.approx(5.9))]


def test_no_attempt_begins_after_the_deadline() -> None:
    world = World(NoAnswer("lost"), took_s=3.0)
    with pytest.raises(OutcomeUnknown):
        world.client(timeout=10).send("orders", "hello", dedup_id="a")
    assert world.now <= 1_010.0 + world.took_s
    assert all(began < 1_010.0 for began, _ in world.sent)


def test_what_the_service_asks_for_is_waited_for() -> None:
    world = World(FULL, FULL, STORED)
    world.client().send("orders", "hello")
    assert world.slept == [1.0, 1.0]


def test_a_produce_is_not_repeated_once_its_dedup_ids_may_be_forgotten() -> None:
    world = World(NoAnswer("lost"), took_s=50.0)
    with pytest.raises(OutcomeUnknown):
        world.client(timeout=3_600).send("orders", "hello", dedup_id="a")
    assert all(began - 1_000.0 < 240 for began, _ in world.sent)


def test_the_time_of_a_call_can_be_given_with_it() -> None:
    world = World(FULL)
    with pytest.raises(QueueFull):
        world.client(timeout=3_600).call(operations.pop("orders", "billing"), timeout=0.5)
    assert world.sent == [(1_000.0, 0.5)]


@pytest.mark.parametrize(
    ("call", "wait_s"),
    [
        (operations.pop("orders", "billing", wait_ms=20_000), 20.0),
        (operations.pop("orders", "billing"), 0.0),
        (operations.request("sums", body="1+2"), 3.0),
        (operations.request("sums", body="1+2", timeout_ms=60_000), 25.0),
        (operations.request("sums", body="1+2", timeout_ms=60_000, wait_ms=0), 0.0),
        (operations.get_reply("c", wait_ms=25_000), 25.0),
        (operations.check_transactions("orders", wait_ms=1_000), 1.0),
        (operations.pop("orders", "billing", wait_ms=10**9), 0.0),  # the service refuses it
    ],
)
def test_a_wait_of_the_service_is_not_of_the_deadline(call: Any, wait_s: float) -> None:
    attempts: Attempts[Any] = Attempts(call, "x", 0.0, 10.0, lambda: 1.0)
    assert attempts.left_s(0.0) == 10.0 + wait_s


def test_a_deadline_of_many_attempts_is_one() -> None:
    attempts: Attempts[Any] = Attempts(operations.get_health(), "x", 0.0, 10.0, lambda: 1.0)
    assert attempts.failed(NotSent("down"), 2.0) == Pause(0.1)
    assert attempts.left_s(4.0) == 6.0
    with pytest.raises(Unreachable, match="x did not carry out GET /health: gone"):
        attempts.failed(NotSent("gone"), 9.9)
