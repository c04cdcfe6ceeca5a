"""Popping over HTTP: what is taken, in which order, and what comes back."""

from __future__ import annotations

import pytest

from tests.support.client import EMPTY, Client, Group, Topic, bodies, offsets
from tests.support.clock import START_MS, Clock

# -- what is taken -----------------------------------------------------------------------------------------------------


def test_a_pop_leases_a_message_with_all_its_fields(topic: Topic, group: Group) -> None:
    stored = topic.produce({"body": "a", "key": "k", "tag": "t", "properties": {"p": "q"}})[0]
    group.client.clock.sleep(7)
    popped = group.pop()
    assert popped["messages"] == [
        {
            **stored,
            "topic": "orders",
            "body": "a",
            "key": "k",
            "tag": "t",
            "properties": {"p": "q"},
            "attempt": 1,
            "stored_at_ms": START_MS,
            "invisible_until_ms": START_MS + 7 + 30_000,
            "receipt": popped["messages"][0]["receipt"],
        }
    ]


def test_a_pop_takes_10_messages_unless_asked_otherwise(topic: Topic, group: Group) -> None:
    topic.produce(*["a"] * 12)
    assert len(group.pop()["messages"]) == 10
    assert len(group.pop()["messages"]) == 2


@pytest.mark.parametrize("count", [1, 2, 17, 32, 33, 255, 256])
def test_a_pop_takes_as_many_as_it_asks_for_in_offset_order(topic: Topic, group: Group, count: int) -> None:
    topic.produce(*["a"] * 200)
    topic.produce(*["a"] * 200)
    assert offsets(group.take(count)) == list(range(count))
    assert group.take_one()["offset"] == count


def test_a_pop_takes_256_messages_that_were_stored_one_by_one(topic: Topic, group: Group) -> None:
    for number in range(300):
        topic.produce(f"m{number}")
    taken = group.take(256)
    assert bodies(taken) == [f"m{number}" for number in range(256)]
    assert bodies(group.pop(max_messages=256)["messages"]) == [f"m{number}" for number in range(256, 300)]
    assert group.ack(*taken) == {"acked": 256, "failed": []}


def test_a_leased_message_is_not_delivered_to_anyone_else(topic: Topic, group: Group) -> None:
    topic.produce("a", "b", "c")
    taken = [offset for _ in range(3) for offset in offsets(group.take(1))]
    assert taken == [0, 1, 2]
    assert group.pop() == EMPTY
    assert group.seen_by(group.client.another()).pop() == EMPTY


def test_pops_empty_every_queue_before_they_answer_nothing(client: Client) -> None:
    topic = client.topic("orders", queues=7)
    group = topic.group("billing")
    for queue in range(7):
        topic.produce(*["a"] * (queue + 1), queue=queue)
    taken = []
    while messages := group.pop(max_messages=3)["messages"]:
        assert len({each["queue"] for each in messages}) == 1
        taken += [(each["queue"], each["offset"]) for each in messages]
    assert sorted(taken) == [(queue, offset) for queue in range(7) for offset in range(queue + 1)]


def test_the_message_that_has_waited_longest_is_taken_first(client: Client, clock: Clock) -> None:
    topic = client.topic("orders", queues=4)
    group = topic.group("billing")
    for queue in (3, 0, 1, 2):
        topic.produce("a", queue=queue)
        clock.sleep(10)
    assert [group.take_one()["queue"] for _ in range(4)] == [3, 0, 1, 2]


def test_the_lease_is_as_long_as_the_pop_says_or_else_the_group(topic: Topic, clock: Clock) -> None:
    topic.produce("a", "b", "c")
    group = topic.group("billing", invisible_ms=5_000)
    ends = [
        group.take_one(**asked)["invisible_until_ms"] for asked in ({}, {"invisible_ms": 1}, {"invisible_ms": None})
    ]
    assert ends == [START_MS + 5_000, START_MS + 1, START_MS + 5_000]


def test_a_lease_of_no_time_counts_as_an_attempt_and_is_due_at_once(topic: Topic, group: Group) -> None:
    topic.produce("a", "b")
    for attempt in (1, 2, 3):
        taken = group.take(2, invisible_ms=0)
        assert [(each["attempt"], each["invisible_until_ms"]) for each in taken] == [
            (attempt, group.client.clock.ms)
        ] * 2
    assert group.totals() == (2, 0, 0, 0)
    assert group.ack(taken[0]) == {"acked": 1, "failed": []}
    assert bodies(group.pop()["messages"]) == ["b"]


def test_a_pop_may_ask_for_no_time_or_the_group_for_all(topic: Topic, group: Group) -> None:
    hasty = topic.group("hasty", invisible_ms=0)
    topic.produce("a")
    assert hasty.take_one()["attempt"] == 1
    assert hasty.take_one(invisible_ms=1_000)["attempt"] == 2
    assert hasty.pop()["messages"] == []
    assert hasty.progress()["invisible_ms"] == 0


@pytest.mark.parametrize("attempt_id", [None, "a"])
def test_a_pop_takes_no_message_twice_though_its_leases_are_over_at_once(
    topic: Topic, group: Group, clock: Clock, attempt_id: str | None
) -> None:
    topic.produce(*["x"] * 100)
    for _ in range(90):
        group.take_one(invisible_ms=1_000)
    clock.sleep(1_000)
    taken = group.take(100, invisible_ms=0, **({"attempt_id": attempt_id} if attempt_id else {}))
    assert offsets(taken) == list(range(100))
    assert {each["attempt"] for each in taken} == {1, 2}


# -- redelivery --------------------------------------------------------------------------------------------------------


def test_an_expired_lease_comes_back_at_once_with_the_next_attempt(topic: Topic, group: Group, clock: Clock) -> None:
    topic.produce({"body": "a", "key": "k"})
    first = group.take_one(invisible_ms=1_000)
    for attempt in range(2, 6):
        clock.sleep(999)
        assert group.pop() == EMPTY
        clock.sleep(1)
        again = group.take_one(invisible_ms=1_000)
        assert again == {
            **first,
            "attempt": attempt,
            "receipt": again["receipt"],
            "invisible_until_ms": clock.now() + 1_000,
        }


def test_an_acked_message_does_not_come_back_with_the_rest_of_its_lease(
    topic: Topic, group: Group, clock: Clock
) -> None:
    topic.produce(*"abcdefg")
    taken = group.take(7)
    group.ack(taken[0], taken[3], taken[6])
    clock.sleep(30_000)
    again = group.pop()["messages"]
    assert [(each["body"], each["attempt"]) for each in again] == [("b", 2), ("c", 2), ("e", 2), ("f", 2)]


def test_an_expired_lease_can_come_back_in_parts(topic: Topic, group: Group, clock: Clock) -> None:
    topic.produce(*"abcde")
    group.take(5)
    clock.sleep(30_000)
    assert bodies(group.take(2)) == ["a", "b"]
    assert bodies(group.take(2)) == ["c", "d"]
    clock.sleep(30_000)
    again = group.pop()["messages"]
    assert [(each["body"], each["attempt"]) for each in again] == [("a", 3), ("b", 3), ("c", 3), ("d", 3), ("e", 2)]


def test_expired_messages_come_before_new_ones_in_offset_order(topic: Topic, group: Group, clock: Clock) -> None:
    topic.produce(*"abc")
    group.take(2)
    clock.sleep(30_000)
    assert [(each["offset"], each["attempt"]) for each in group.pop()["messages"]] == [(0, 2), (1, 2), (2, 1)]


def test_one_pop_returns_many_expired_leases_and_then_what_is_new(topic: Topic, group: Group, clock: Clock) -> None:
    for _ in range(2):
        topic.produce(*["x"] * 150)
    for _ in range(70):
        group.take_one()
    clock.sleep(30_000)
    taken = group.take(256)
    assert offsets(taken) == list(range(256))
    assert [each["attempt"] for each in taken] == [2] * 70 + [1] * 186


def test_a_message_is_delivered_max_attempts_times_and_then_counts_as_dead(topic: Topic, clock: Clock) -> None:
    group = topic.group("billing", max_attempts=3)
    topic.produce("a", "b")
    for attempt in (1, 2, 3):
        taken = group.take(2)
        assert [each["attempt"] for each in taken] == [attempt, attempt]
        clock.sleep(30_000)
    assert group.pop() == EMPTY
    assert group.totals() == (0, 0, 0, 2)
    assert group.queue()["committed_offset"] == 2


def test_without_an_end_of_attempts_a_message_comes_again_and_again(topic: Topic, clock: Clock) -> None:
    group = topic.group("billing", max_attempts=None, backoff_ms=[1_000])
    topic.produce("a")
    for attempt in range(1, 40):
        message = group.take_one()
        assert message["attempt"] == attempt
        if attempt % 2:
            clock.sleep(30_000)
        else:
            group.nack(message)
            clock.sleep(1_000)
    assert group.totals() == (1, 0, 0, 0)
    group.ack(group.take_one())
    assert group.totals() == (0, 0, 0, 0)


def test_an_end_of_attempts_set_later_holds_for_what_was_taken_before(topic: Topic, clock: Clock) -> None:
    group = topic.group("billing", max_attempts=None)
    topic.produce("a")
    for _ in range(3):
        group.take_one()
        clock.sleep(30_000)
    group.change(max_attempts=3)
    assert group.pop() == EMPTY
    assert group.totals() == (0, 0, 0, 1)


def test_the_dead_make_way_for_what_is_new_in_the_same_pop(topic: Topic, clock: Clock) -> None:
    group = topic.group("billing", max_attempts=1)
    topic.produce(*["old"] * 120)
    group.take(120)
    clock.sleep(30_000)
    topic.produce("new")
    assert bodies(group.pop(max_messages=256)["messages"]) == ["new"]
    assert group.totals() == (0, 1, 0, 120)
