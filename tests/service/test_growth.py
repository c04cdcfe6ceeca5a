"""Topics whose `queues` are "auto" get more of them where one carries too much."""

from __future__ import annotations

from typing import Any

import pytest

from chalicelib.api import Api
from chalicelib.core.base.errors import InvalidField, StoreUnavailable
from chalicelib.core.base.limits import HEARD_MS, METADATA_AGE_MS_MAX, SECOND_MS
from chalicelib.core.catalogue.catalogue import TRIED_MS
from chalicelib.core.store import Outcome
from chalicelib.core.table.writes import Write
from local.memory.store import MemoryStore
from tests.support.clock import Clock
from tests.support.instances import instance


class World:
    def __init__(self) -> None:
        self.store, self.clock = MemoryStore(), Clock()
        self.api = self.another()
        self.api.put_topic("t", {"queues": "auto"})

    def another(self) -> Api:
        return instance(self.store, self.clock)

    def send(self, seconds: int, per_second: int, api: Api | None = None, batch: int = 1, **fields: Any) -> set[int]:
        """Returns the queues that got messages."""
        used: set[int] = set()
        for _ in range(seconds * per_second):
            self.clock.sleep(SECOND_MS // per_second)
            sent = (api or self.api).produce("t", {"messages": [{"body": "x", **fields}] * batch})
            used |= {message["queue"] for message in sent["messages"]}
        return used

    @property
    def queues(self) -> int:
        return int(self.another().get_topic("t")["queues"])


@pytest.fixture
def world() -> World:
    return World()


def test_an_automatic_topic_begins_with_as_many_queues_as_any(world: World) -> None:
    shown = world.api.get_topic("t")
    assert (shown["queues"], shown["queues_auto"]) == (4, True)
    world.api.put_topic("u", {})
    assert "queues_auto" not in world.api.get_topic("u")


def test_a_number_ends_the_growth_and_auto_begins_it(world: World) -> None:
    assert "queues_auto" not in world.api.put_topic("t", {"queues": 5})
    world.clock.sleep(HEARD_MS)
    world.send(2, 500)
    assert world.queues == 5
    assert world.api.put_topic("t", {"queues": "auto"})["queues_auto"]
    world.send(2, 500)
    assert world.queues == 20


def test_other_settings_leave_it_alone(world: World) -> None:
    assert world.api.put_topic("t", {"retention_ms": 3_600_000})["queues_auto"]


def test_a_busy_log_quadruples_the_queues(world: World) -> None:
    world.send(2, 500)
    assert world.queues == 16
    world.clock.sleep(HEARD_MS + METADATA_AGE_MS_MAX)
    assert {queue for number in range(64) for queue in world.send(1, 1, key=str(number))} > {*range(10)}


def test_a_topic_has_at_most_all_queues(world: World) -> None:
    for expected in (16, 64, 128, 128):
        world.send(2, 500)
        assert world.queues == expected
        world.clock.sleep(HEARD_MS + METADATA_AGE_MS_MAX)


@pytest.mark.parametrize(("per_second", "batch"), [(250, 1), (10, 100)], ids=["of single messages", "of batches"])
def test_few_appends_are_no_reason(world: World, per_second: int, batch: int) -> None:
    world.send(3, per_second, batch=batch)
    assert world.queues == 4


def test_messages_of_other_instances_count(world: World) -> None:
    others = [world.another() for _ in range(5)]
    for _ in range(200):
        for each in others:
            each.produce("t", {"messages": [{"body": "x", "key": "k"}]})
            world.clock.sleep(2)
    assert world.queues == 16


@pytest.mark.parametrize("ordered", [True, "key"])
def test_ordered_groups_keep_keys_where_they_are(world: World, ordered: bool | str) -> None:
    world.api.put_group("t", "g", {"ordered": ordered})
    world.send(2, 500)
    assert world.queues == 4
    world.api.delete_group("t", "g")
    world.clock.sleep(TRIED_MS)
    world.send(2, 500)
    assert world.queues == 16


def test_an_ordered_group_that_comes_meanwhile_refuses_the_growth(world: World) -> None:
    read, done = world.api.service.env.catalogue.groups, list[str]()

    def groups(topic: Any) -> Any:
        found = read(topic)
        if not done:
            done.append("once")
            world.another().put_group("t", "g", {"ordered": True})
        return found

    world.api.service.env.catalogue.groups = groups  # type: ignore[method-assign]
    world.send(2, 500)
    assert done
    assert world.queues == 4


def test_zones_keep_queues_where_they_are(world: World) -> None:
    world.api.put_topic("t", {"zones": {"a": [0, 1]}})
    world.send(2, 500)
    assert world.queues == 4


def test_a_topic_that_drains_does_not_grow(world: World) -> None:
    world.api.put_topic("t", {"queues": 2})
    world.api.put_topic("t", {"queues": "auto"})
    world.send(2, 500)
    assert world.queues == 2


def test_many_leases_of_one_cursor_are_a_reason_too(world: World) -> None:
    world.api.put_group("t", "g", {"invisible_ms": 60_000})
    world.api.produce("t", {"messages": [{"body": "x", "queue": 0}] * 80})
    for _ in range(70):
        world.api.pop("t", "g", {"max_messages": 1})
    assert world.queues == 16


def test_a_produce_succeeds_though_the_topic_cannot_grow(world: World) -> None:
    write = world.store.write

    def fails(asked: Write) -> Outcome:
        if asked.key == world.api.service.env.catalogue.topic("t").key:
            raise StoreUnavailable("the store is down")
        return write(asked)

    world.store.write = fails  # type: ignore[method-assign, assignment]
    world.send(2, 500)
    assert world.queues == 4
    world.store.write = write  # type: ignore[method-assign]
    world.clock.sleep(TRIED_MS)
    world.send(2, 500)
    assert world.queues == 16


@pytest.mark.parametrize("value", ["Auto", "", "many", 0, 129, True])
def test_other_values_are_refused(world: World, value: Any) -> None:
    with pytest.raises(InvalidField, match="'queues'"):
        world.api.put_topic("t", {"queues": value})
    assert world.api.get_topic("t")["queues_auto"]


def test_what_began_before_the_growth_ends_after_it(world: World) -> None:
    world.api.put_group("t", "g", {})
    begun = world.api.begin_transaction("t", {"messages": [{"body": "half", "key": "c"}]})
    world.api.produce("t", {"messages": [{"body": "later", "key": "c", "delay_ms": 60_000}]})
    world.send(2, 500)
    assert world.queues == 16
    world.clock.sleep(60_000)
    world.api.commit_transaction("t", begun["transaction_id"])
    bodies = take_all(world)
    assert (bodies.count("half"), bodies.count("later"), len(bodies)) == (1, 1, 1_002)
    world.api.reset_group("t", "g", {"to": "earliest"})
    assert len(take_all(world)) == 1_002


def take_all(world: World) -> list[str]:
    bodies: list[str] = []
    while taken := world.api.pop("t", "g", {"max_messages": 256, "fill": True})["messages"]:
        bodies += [message["body"] for message in taken]
        world.api.ack("t", "g", {"receipts": [message["receipt"] for message in taken]})
    return bodies
