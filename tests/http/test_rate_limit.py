"""A group gets a limited number of messages a second, from all instances and to all consumers together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from chalicelib.core.base.errors import StoreUnavailable
from chalicelib.core.base.limits import PASSED_AT_ONCE_MAX
from chalicelib.core.table.writes import Write
from tests.support.client import Client, Group, Topic, bodies, offsets
from tests.support.clock import Clock
from tests.support.troubled_store import TroubledStore, unavailable, unknown


def taken_over(ms: int, clock: Clock, *groups: Group, step_ms: int = 20, **ask: object) -> int:
    """How many messages these instances of a group get by asking all the time."""
    end, count = clock.now() + ms, 0
    while clock.now() < end:
        for group in groups:
            messages = group.pop(**ask)["messages"]
            count += len(messages)
            if messages:
                group.ack(*messages)
        clock.sleep(step_ms)
    return count


def filled(topic: Topic, count: int = 1_000) -> None:
    for first in range(0, count, 200):
        topic.produce(*[f"{first + place}" for place in range(200)])


def test_up_to_a_second_s_messages_come_at_once_and_no_more(topic: Topic, clock: Clock) -> None:
    group = topic.group("slow", rate_limit=10)
    filled(topic)
    answer = group.pop(max_messages=100)
    assert len(answer["messages"]) == 10
    assert (answer["limited"], answer["retry_after_ms"]) == ("rate", 1_000)
    clock.sleep(400)
    answer = group.pop()
    assert (answer["messages"], answer["limited"], answer["retry_after_ms"]) == ([], "rate", 600)
    clock.sleep(600)
    assert len(group.pop(max_messages=4)["messages"]) == 4
    assert len(group.pop()["messages"]) == 6
    clock.sleep(60_000)
    assert len(group.pop(max_messages=100)["messages"]) == 10
    assert group.pop()["messages"] == []  # a pause saves nothing up


@pytest.mark.parametrize("rate", [1, 2.5, 7, 50, 123.4])
@pytest.mark.parametrize("instances", [1, 4])
def test_the_rate_holds_over_instances_and_queues(client: Client, clock: Clock, rate: float, instances: int) -> None:
    topic = client.topic("wide", queues=3)
    first = topic.group("slow", rate_limit=rate)
    filled(topic)
    groups = [first, *(first.seen_by(client.another()) for _ in range(instances - 1))]
    got = taken_over(3_000, clock, *groups, max_messages=7)
    assert 0.8 * rate * 3 <= got <= 1.2 * rate * 3


def test_a_rate_below_one_a_second_is_one_now_and_then(topic: Topic, clock: Clock) -> None:
    group = topic.group("slow", rate_limit=0.5)
    filled(topic)
    assert taken_over(10_000, clock, group, step_ms=100) == 5


def test_redeliveries_count_too(topic: Topic, clock: Clock) -> None:
    group = topic.group("slow", rate_limit=2, invisible_ms=100)
    topic.produce("a", "b")
    group.take(2)
    clock.sleep(100)
    assert group.pop()["limited"] == "rate"
    clock.sleep(900)
    assert [each["attempt"] for each in group.take(2)] == [2, 2]


def test_units_counted_for_messages_that_were_not_there_are_given_back(topic: Topic) -> None:
    group = topic.group("slow", rate_limit=5, filter={"tags": ["x"]})
    topic.produce("a", "b", "c", {"body": "d", "tag": "x"})
    assert len(group.pop()["messages"]) == 1
    topic.produce(*[{"body": "e", "tag": "x"}] * 6)
    assert len(group.pop()["messages"]) == 4


def test_a_claim_without_an_answer_counts_since_its_repeat_delivers_it(
    store: TroubledStore, client: Client, topic: Topic
) -> None:
    group = topic.group("slow", rate_limit=3)
    topic.produce(*"abcdefg")
    group.take_one()

    def no_answer(verb: str, about: object) -> Exception | None:
        return unknown("write")(verb, about) if "claims" in str(about) else None

    store.after = no_answer
    assert client.post(f"{group.path}/pop", max_messages=2, attempt_id="x").status == 503
    store.after = unavailable()
    assert group.pop()["messages"] == []
    assert offsets(group.pop(max_messages=2, attempt_id="x")["messages"]) == [1, 2]


def test_a_pop_whose_unused_permits_cannot_be_given_back_delivers(topic: Topic, store: TroubledStore) -> None:
    group = topic.group("slow", rate_limit=5, filter={"tags": ["x"]})
    topic.produce("a", {"body": "b", "tag": "x"})
    store.before = unavailable("write_together")
    assert bodies(group.pop()["messages"]) == ["b"]


def test_what_a_pop_passes_before_its_first_message_takes_none(topic: Topic) -> None:
    group = topic.group("slow", rate_limit=10, ordered="key", filter={"tags": ["x"]})
    filled(topic, PASSED_AT_ONCE_MAX)
    topic.produce("a", "b", tag="x")
    assert bodies(group.pop()["messages"]) == ["a", "b"]


def test_what_comes_back_while_a_pop_passes_others_is_taken_by_its_permits(
    topic: Topic, store: TroubledStore, clock: Clock
) -> None:
    group = topic.group("slow", rate_limit=10, ordered="key", filter={"tags": ["x"]}, invisible_ms=1_000)
    topic.produce("a", "b", tag="x")
    group.take(2)
    filled(topic, PASSED_AT_ONCE_MAX)
    clock.sleep(999)
    store.before = lambda verb, _about: clock.sleep(1) if verb == "write" else None
    assert bodies(group.pop()["messages"]) == ["a", "b"]


def test_permits_given_back_late_do_not_count_in_the_next_second(topic: Topic, client: Client, clock: Clock) -> None:
    group = topic.group("slow", rate_limit=5, filter={"tags": ["x"]})
    other = group.seen_by(client.another())
    topic.produce("a", "b", "c", {"body": "d", "tag": "x"})
    together = client.store.write_together

    def after_the_next_second_began(writes: Sequence[Write]) -> None:
        client.store.write_together = together  # type: ignore[method-assign]
        assert writes[0].key.sk.startswith("rate#")
        clock.sleep(1_000)
        topic.produce(*[{"body": "e", "tag": "x"}] * 9)
        other.take(5)
        together(writes)

    client.store.write_together = after_the_next_second_began  # type: ignore[method-assign]
    group.pop()
    assert other.pop()["messages"] == []


def test_a_long_poll_waits_until_the_rate_allows_more(topic: Topic, clock: Clock) -> None:
    group = topic.group("slow", rate_limit=1)
    topic.produce("a", "b")
    group.take_one()
    before = clock.now()
    assert len(group.pop(wait_ms=5_000)["messages"]) == 1
    assert 1_000 <= clock.now() - before <= 1_300


def test_acks_count_while_the_rate_holds_messages_back(topic: Topic) -> None:
    group = topic.group("slow", rate_limit=1)
    topic.produce("a", "b")
    message = group.take_one()
    answer = group.pop(ack=[message["receipt"]])
    assert (answer["acked"], answer["messages"], answer["limited"]) == (1, [], "rate")


def test_an_empty_queue_is_not_limited_and_costs_nothing(topic: Topic) -> None:
    group = topic.group("slow", rate_limit=1)
    group.pop()
    before = topic.client.store.meter.write_units
    assert "limited" not in group.pop()
    assert topic.client.store.meter.write_units == before


def test_a_rate_can_be_changed(client: Client, topic: Topic) -> None:
    group = topic.group("slow", rate_limit=1)
    filled(topic, 200)
    group.take_one()
    group.change(rate_limit=20)
    assert len(group.pop(max_messages=50)["messages"]) == 19


def test_a_deleted_group_leaves_no_window(topic: Topic) -> None:
    group = topic.group("slow", rate_limit=1)
    filled(topic, 200)
    group.take_one()
    group.delete()
    assert not [sk for part in topic.client.store._items.values() for sk in part if sk.startswith("rate#")]


def test_a_pop_that_fails_gives_back_what_it_was_allowed(topic: Topic, store: TroubledStore) -> None:
    group = topic.group("slow", rate_limit=2)
    topic.produce("a", "b")

    def trouble(verb: str, about: Any) -> Exception | None:
        return StoreUnavailable("throttled") if verb == "write" and "cursor#" in about.key.sk else None

    store.before = trouble
    assert group.client.post(f"{group.path}/pop").status == 503
    store.before = unavailable()
    assert bodies(group.pop()["messages"]) == ["a", "b"]
