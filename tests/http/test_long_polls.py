"""Pops that wait for messages."""

from __future__ import annotations

import pytest

from chalicelib.core.base import deadline
from chalicelib.core.consuming.waiters import POLL_MS_MAX
from tests.support.client import EMPTY, Group, Json, Topic, bodies, receipts
from tests.support.clock import START_MS, Clock


def test_a_long_poll_ends_empty_after_its_time(group: Group, clock: Clock) -> None:
    assert group.pop(wait_ms=20_000) == EMPTY
    assert clock.now() == START_MS + 20_000


def test_a_pop_that_does_not_wait_takes_no_time(group: Group, clock: Clock) -> None:
    group.pop()
    group.pop(wait_ms=0)
    assert clock.now() == START_MS


def test_a_long_poll_answers_at_once_when_something_is_there(topic: Topic, group: Group, clock: Clock) -> None:
    topic.produce("a")
    assert len(group.pop(wait_ms=20_000)["messages"]) == 1
    assert clock.now() == START_MS


def test_a_long_poll_wakes_for_a_message_of_another_instance(topic: Topic, group: Group, clock: Clock) -> None:
    other = Topic(topic.client.another(), topic.name)
    clock.at(START_MS + 7_001, lambda: other.produce("a"))
    assert bodies(group.pop(wait_ms=20_000)["messages"]) == ["a"]
    assert START_MS + 7_001 <= clock.now() <= START_MS + 8_501


def test_a_long_poll_wakes_at_once_for_a_message_of_its_instance(topic: Topic, group: Group, clock: Clock) -> None:
    clock.at(START_MS + 7_001, lambda: topic.produce("a"))
    assert bodies(group.pop(wait_ms=20_000)["messages"]) == ["a"]
    assert clock.now() == START_MS + 7_001


def test_a_long_poll_is_punctual_for_a_delay_that_begins_meanwhile(topic: Topic, group: Group, clock: Clock) -> None:
    clock.at(START_MS + 7_001, lambda: topic.produce("a", delay_ms=345))
    assert bodies(group.pop(wait_ms=20_000)["messages"]) == ["a"]
    assert clock.now() == START_MS + 7_346


def test_a_long_poll_is_punctual_for_a_nack_that_comes_meanwhile(topic: Topic, group: Group, clock: Clock) -> None:
    topic.produce("a")
    message = group.take_one()
    clock.at(START_MS + 7_001, lambda: group.nack(message, delay_ms=345))
    assert bodies(group.pop(wait_ms=20_000)["messages"]) == ["a"]
    assert clock.now() == START_MS + 7_346


def test_a_long_poll_is_punctual_for_a_lease_that_is_cut_short(topic: Topic, group: Group, clock: Clock) -> None:
    topic.produce("a")
    message = group.take_one(invisible_ms=30_000)
    clock.at(START_MS + 7_001, lambda: group.extend(message, invisible_ms=345))
    assert bodies(group.pop(wait_ms=20_000)["messages"]) == ["a"]
    assert clock.now() == START_MS + 7_346


def test_a_long_poll_wakes_at_once_for_a_reset_and_a_redrive(topic: Topic, group: Group, clock: Clock) -> None:
    topic.produce("a")
    group.ack(group.take_one())
    clock.at(START_MS + 7_001, lambda: group.reset("earliest"))
    message = group.take_one(wait_ms=20_000)
    assert clock.now() == START_MS + 7_001
    group.client.post(f"{group.path}/bury", receipts=receipts(message))
    clock.at(START_MS + 17_001, lambda: group.client.post(f"{group.path}/dead/redrive"))
    assert bodies(group.pop(wait_ms=20_000)["messages"]) == ["a"]
    assert clock.now() == START_MS + 17_001


def test_a_long_poll_wakes_for_an_expired_lease(topic: Topic, group: Group, clock: Clock) -> None:
    topic.produce("a")
    group.take_one(invisible_ms=3_000)
    assert group.pop(wait_ms=20_000)["messages"][0]["attempt"] == 2
    assert START_MS + 3_000 <= clock.now() <= START_MS + 3_200


def test_a_long_poll_wakes_for_a_retry(topic: Topic, group: Group, clock: Clock) -> None:
    topic.produce("a")
    group.nack(group.take_one(), delay_ms=500)
    assert group.pop(wait_ms=20_000)["messages"][0]["attempt"] == 2
    assert START_MS + 500 <= clock.now() <= START_MS + 700


def test_a_long_poll_gives_a_full_lease_from_when_it_ends(topic: Topic, group: Group, clock: Clock) -> None:
    clock.at(START_MS + 5_000, lambda: topic.produce("a"))
    message = group.pop(wait_ms=20_000, invisible_ms=1_000)["messages"][0]
    assert message["invisible_until_ms"] == clock.now() + 1_000


def test_a_long_poll_acks_before_it_waits(topic: Topic, group: Group, clock: Clock) -> None:
    topic.produce("a")
    first = group.take_one()
    seen: list[tuple[int, int, int, int]] = []
    watching = group.seen_by(group.client.another())
    clock.at(START_MS + 100, lambda: seen.append(watching.totals()))
    assert group.pop(wait_ms=1_000, ack=receipts(first)) == {"messages": [], "acked": 1, "failed": []}
    assert seen == [(0, 0, 0, 0)]


def test_a_long_poll_ends_when_the_group_is_paused(group: Group, clock: Clock) -> None:
    other = group.seen_by(group.client.another())
    clock.at(START_MS + 2_000, lambda: other.change(paused=True))
    assert group.pop(wait_ms=20_000) == {**EMPTY, "paused": True}
    assert clock.now() <= START_MS + 2_700


def test_a_long_poll_ends_404_when_the_group_is_deleted(group: Group, clock: Clock) -> None:
    other = group.seen_by(group.client.another())
    clock.at(START_MS + 2_000, other.delete)
    assert group.client.post(f"{group.path}/pop", wait_ms=20_000).problem == (404, "GroupNotFound")


@pytest.mark.parametrize("settings", [{"max_in_flight": 1}, {"ordered": "key"}])
def test_a_long_poll_held_up_by_other_messages_wakes_soon_after(topic: Topic, clock: Clock, settings: Json) -> None:
    group = topic.group("held", **settings, invisible_ms=600_000)
    topic.produce("a", "b", key="k")
    topic.produce("c", key="other")
    first = group.take_one()
    group.pop()
    other = group.seen_by(topic.client.another())
    clock.at(START_MS + 15_001, lambda: other.ack(first))
    assert bodies(group.pop(wait_ms=20_000)["messages"]) == ["b"]
    assert clock.now() <= START_MS + 15_001 + POLL_MS_MAX


def test_a_long_poll_whose_client_has_hung_up_takes_nothing(topic: Topic, group: Group, clock: Clock) -> None:
    clock.at(START_MS + 7_001, lambda: topic.produce("a"))
    with deadline.caller(lambda: clock.ms > START_MS + 5_000):
        assert group.pop(wait_ms=20_000) == EMPTY
    assert clock.ms < START_MS + 7_001


def test_a_long_poll_hears_soon_of_the_first_delay_at_another_instance(
    topic: Topic, group: Group, clock: Clock
) -> None:
    other = Topic(topic.client.another(), topic.name)
    clock.at(START_MS + 7_001, lambda: other.produce("a", delay_ms=10))
    assert bodies(group.pop(wait_ms=20_000)["messages"]) == ["a"]
    assert clock.ms < START_MS + 9_000
