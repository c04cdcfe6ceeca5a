"""Dead messages move into a topic once, even if their mover dies, or several move them at once."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import pytest

from chalicelib.api import Api
from chalicelib.core.base.limits import KIB
from chalicelib.core.catalogue.group_forms import DeadLetterTopic
from chalicelib.doors.sqs.registry import NewQueue, queues_of
from tests.support.stopping import Stage, Work, die_after, finish, requests_of, stop_after


def came_out(api: Api, topic: str) -> list[tuple[str, int, str]]:
    """Drains the topic, and returns the bodies, by where each was, and how often it was delivered there."""
    came: list[tuple[str, int, str]] = []
    while got := api.pop(topic, "reader", {"max_messages": 100})["messages"]:
        came += [(each["body"], int(each["properties"]["sqs:count"]), each["properties"]["sqs:origin"]) for each in got]
        api.ack(topic, "reader", {"receipts": [each["receipt"] for each in got]})
    return came


@pytest.mark.parametrize("body_bytes", [10, 2 * KIB, 300 * KIB])
def test_messages_move_whole(instance: Callable[[], Api], topic: str, body_bytes: int) -> None:
    api, dead = instance(), f"{topic}-dead"
    api.put_topic(topic, {"queues": 1})
    api.put_topic(dead, {"queues": 1})
    api.put_group(dead, "reader", {})
    api.put_group(topic, "g", {"max_attempts": 1, "invisible_ms": 0, "dead_letters": {"topic": dead}})
    bodies = [f"{number}{'x' * body_bytes}" for number in range(12)]
    for body in bodies:
        api.produce(topic, {"messages": [{"body": body, "key": "k"}]})
    taken: list[str] = []
    while len(taken) < len(bodies):
        taken += [each["body"] for each in api.pop(topic, "g", {"max_messages": 12 - len(taken)})["messages"]]
    assert api.pop(topic, "g", {})["messages"] == []
    assert came_out(instance(), dead) == [(body, 1, f"0:{offset}") for offset, body in enumerate(bodies)]
    totals = instance().get_group(topic, "g")
    assert [totals[name] for name in ("ready", "in_flight", "retrying", "dead")] == [0, 0, 0, 0]


class Scene(Stage):
    """Two messages whose last leases are over; one is too large for a segment."""

    def __init__(self) -> None:
        super().__init__()
        api = Api(self.instance())
        for name in ("t", "dead"):
            api.put_topic(name, {"queues": 1})
        api.put_group("dead", "reader", {})
        api.put_group("t", "g", {"max_attempts": 1, "invisible_ms": 1_000, "dead_letters": {"topic": "dead"}})
        api.produce("t", {"messages": [{"body": "a"}, {"body": "b" * 2_000}]})
        assert len(api.pop("t", "g", {})["messages"]) == 2
        self.now += 2_000

    def verdict(self) -> list[str]:
        """The bodies that come out of the topic an hour later, after sweeps."""
        self.now += 3_600_000
        api = Api(self.instance())
        api.service.sweeps.revive()
        api.service.sweeps.forward()
        assert api.pop("t", "g", {})["messages"] == []
        assert api.get_group("t", "g")["dead"] == 0
        return [body[0] for body, _, _ in came_out(api, "dead")]


class Circle(Scene):
    """The same in a queue of SQS clients that is its own dead-letter queue."""

    def __init__(self) -> None:
        Stage.__init__(self)
        service = self.instance()
        settings = {"max_attempts": 1, "invisible_ms": 1_000, "dead_letters": DeadLetterTopic({"topic": "t"})}
        queues_of(service).make(NewQueue("t", "t", {"queues": 1}, "g", settings, {}, {}))
        api = Api(service)
        api.produce("t", {"messages": [{"body": "a"}, {"body": "b" * 2_000}]})
        assert len(api.pop("t", "g", {})["messages"]) == 2
        self.now += 2_000

    def verdict(self) -> list[str]:
        """The messages that come an hour later, after sweeps; acks them."""
        self.now += 3_600_000
        api, came = Api(self.instance()), list[dict[str, Any]]()
        for _ in range(3):
            api.service.sweeps.revive()
            api.service.sweeps.forward()
            if got := api.pop("t", "g", {})["messages"]:
                api.ack("t", "g", {"receipts": [each["receipt"] for each in got]})
            came += got
            self.now += 2_000
        assert all(each["properties"]["sqs:count"] and each["attempt"] == 1 for each in came)
        totals = api.get_group("t", "g")
        assert [totals[name] for name in ("ready", "in_flight", "retrying", "dead")] == [0, 0, 0, 0]
        return sorted(each["body"][0] for each in came)


def popping(scene: Scene) -> Work:
    return lambda stop: Api(scene.instance(stop)).pop("t", "g", {})


def sweeping(scene: Scene) -> Work:
    return lambda stop: scene.instance(stop).sweeps.revive()


@pytest.mark.parametrize("moving", [popping, sweeping])
@pytest.mark.parametrize("made", [Scene, Circle])
def test_who_dies_after_any_request_loses_and_doubles_nothing(
    made: Callable[[], Scene], moving: Callable[[Scene], Work]
) -> None:
    scene = made()
    for request in range(1, requests_of(moving(scene.copy())) + 1):
        fresh = scene.copy()
        die_after(moving(fresh), request)
        assert fresh.verdict() == ["a", "b"], f"dead after request {request}"


@pytest.mark.parametrize("made", [Scene, Circle])
def test_two_may_each_stop_after_any_request(made: Callable[[], Scene]) -> None:
    scene = made()
    counts = requests_of(popping(scene.copy())), requests_of(sweeping(scene.copy()))
    for first, second, goes_on in product(range(1, counts[0] + 1), range(1, counts[1] + 2), (False, True)):
        fresh = scene.copy()
        running = stop_after(popping(fresh), first)
        die_after(sweeping(fresh), second)
        finish(running, goes_on)
        assert fresh.verdict() == ["a", "b"], f"at {first} and {second}; goes on: {goes_on}"


def test_the_topic_may_be_deleted_after_any_request() -> None:
    """The messages are with the group, or are gone with the topic."""
    scene = Scene()
    for request in range(1, requests_of(popping(scene.copy())) + 1):
        fresh = scene.copy()
        running = stop_after(popping(fresh), request)
        other = Api(fresh.instance())
        had = [each["body"][0] for each in other.pop("dead", "reader", {})["messages"]]
        other.delete_topic("dead")
        finish(running, goes_on=True)
        other.put_topic("dead", {"queues": 1})
        other.put_group("dead", "reader", {})
        assert sorted([*had, *fresh.verdict()]) == ["a", "b"], f"deleted after request {request}"
