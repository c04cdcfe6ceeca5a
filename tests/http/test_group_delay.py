"""A group with a delay takes each message that long after it was stored."""

from __future__ import annotations

import pytest

from tests.support.client import Client, Group, Topic, bodies
from tests.support.clock import Clock


@pytest.fixture
def group(topic: Topic) -> Group:
    return topic.group("billing", delay_ms=2_000, invisible_ms=1_000)


def test_a_message_waits_for_the_delay_and_not_a_moment_longer(topic: Topic, group: Group, clock: Clock) -> None:
    topic.produce("a")
    clock.sleep(500)
    topic.produce("b")
    clock.sleep(1_499)
    assert group.pop()["messages"] == []
    clock.sleep(1)
    assert bodies(group.pop()["messages"]) == ["a"]


def test_what_is_held_back_is_counted_apart(topic: Topic, group: Group, clock: Clock) -> None:
    topic.produce("a", "b")
    clock.sleep(1_500)
    topic.produce("c")
    assert (group.totals(), group.progress()["delayed"]) == ((0, 0, 0, 0), 3)
    clock.sleep(500)
    assert (group.totals(), group.progress()["delayed"]) == ((2, 0, 0, 0), 1)
    assert bodies(group.pop()["messages"]) == ["a", "b"]
    assert (group.totals(), group.progress()["delayed"]) == ((0, 2, 0, 0), 1)


def test_a_waiting_pop_wakes_when_the_delay_is_over(topic: Topic, group: Group, clock: Clock) -> None:
    topic.produce("a")
    before = clock.ms
    assert bodies(group.pop(wait_ms=10_000)["messages"]) == ["a"]
    assert clock.ms - before == 2_000


def test_a_change_counts_for_what_is_stored_already(topic: Topic, group: Group, clock: Clock) -> None:
    topic.produce("a")
    group.change(delay_ms=0)
    group.ack(group.take_one())
    topic.produce("b")
    group.change(delay_ms=900_000)
    clock.sleep(899_999)
    assert group.pop()["messages"] == []
    clock.sleep(1)
    assert bodies(group.take(1)) == ["b"]


def test_the_rest_of_a_batch_is_held_back_too(topic: Topic, group: Group, clock: Clock) -> None:
    topic.produce("a", "b", "c")
    group.reset({"queue": 0, "offset": 1})
    assert group.pop()["messages"] == []
    clock.sleep(2_000)
    assert bodies(group.pop()["messages"]) == ["b", "c"]


def test_a_retry_is_not_delayed_again(topic: Topic, group: Group, clock: Clock) -> None:
    topic.produce("a")
    clock.sleep(2_000)
    group.nack(group.take_one(), delay_ms=10)
    clock.sleep(10)
    assert bodies(group.take(1)) == ["a"]


def test_other_groups_do_not_wait(topic: Topic, group: Group) -> None:
    topic.produce("a")
    assert bodies(topic.group("other").take(1)) == ["a"]


def test_a_delayed_message_waits_after_it_has_come(topic: Topic, group: Group, clock: Clock) -> None:
    topic.produce("a", delay_ms=5_000)
    clock.sleep(5_000)
    assert group.pop()["messages"] == []
    clock.sleep(2_000)
    assert bodies(group.take(1)) == ["a"]


def test_what_expires_meanwhile_does_not_come(topic: Topic, group: Group, clock: Clock) -> None:
    topic.produce("a", ttl_ms=1_000)
    topic.produce("b")
    clock.sleep(2_000)
    assert bodies(group.pop()["messages"]) == ["b"]


@pytest.mark.parametrize("settings", [{"filter": {"tags": ["x"]}}, {"ordered": True}, {"ordered": "key"}])
def test_groups_of_every_kind_wait(topic: Topic, clock: Clock, settings: dict[str, object]) -> None:
    group = topic.group("special", delay_ms=1_000, **settings)
    topic.produce("a", "b", key="k", tag="x")
    clock.sleep(600)
    topic.produce("c", key="k", tag="x")
    clock.sleep(400)
    first = group.take(2)
    assert bodies(first) == ["a", "b"]
    clock.sleep(600)
    group.ack(*first)
    assert bodies(group.take(1)) == ["c"]


def test_a_message_set_aside_waits_for_a_longer_delay(topic: Topic, clock: Clock) -> None:
    group = topic.group("keyed", ordered="key")
    topic.produce("a1", "a2", key="a")
    topic.produce("b1", key="b")
    first = group.take_one()
    group.take_one()
    group.ack(first)
    group.change(delay_ms=1_000)
    assert group.pop()["messages"] == []
    clock.sleep(1_000)
    assert bodies(group.take(1)) == ["a2"]


@pytest.mark.parametrize("delay_ms", [-1, 900_001, "1s", 1.5])
def test_a_delay_is_from_none_to_fifteen_minutes(client: Client, topic: Topic, delay_ms: object) -> None:
    answer = client.put(f"{topic.path}/groups/g", delay_ms=delay_ms)
    assert answer.problem == (400, "InvalidField")
    assert "field 'delay_ms' must be an integer from 0 to 900000" in answer.json["detail"]


def test_without_a_delay_a_message_comes_though_its_clock_was_ahead(topic: Topic, clock: Clock) -> None:
    topic.produce("a")
    clock.set_back_ms = 1_000
    assert bodies(topic.group("g").take(1)) == ["a"]
