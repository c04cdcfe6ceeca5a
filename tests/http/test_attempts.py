"""Pops with an `attempt_id`: asked again, they give the same answer for as long as the leases last."""

from __future__ import annotations

import pytest

from chalicelib.core.base.limits import MIB
from tests.support.client import Client, Group, Topic, bodies, offsets, receipts
from tests.support.clock import Clock


def test_a_repeated_attempt_returns_the_same_messages_and_receipts(topic: Topic, group: Group) -> None:
    topic.produce(*"abcde")
    first = group.pop(max_messages=3, attempt_id="x")
    assert group.pop(max_messages=3, attempt_id="x") == first
    assert group.seen_by(group.client.another()).pop(max_messages=3, attempt_id="x") == first
    assert group.totals() == (2, 3, 0, 0)


def test_other_parameters_are_ignored_on_the_repeat(topic: Topic, group: Group, clock: Clock) -> None:
    topic.produce(*"abcde")
    first = group.pop(max_messages=3, attempt_id="x")
    clock.sleep(10)
    assert group.pop(max_messages=1, invisible_ms=1, wait_ms=20_000, attempt_id="x") == first
    assert bodies(group.pop(attempt_id="y")["messages"]) == ["d", "e"]


def test_receipts_of_either_answer_settle(topic: Topic, group: Group) -> None:
    topic.produce(*"ab")
    first = group.take(2, attempt_id="x")
    again = group.take(2, attempt_id="x")
    assert group.ack(first[0], again[1]) == {"acked": 2, "failed": []}
    assert group.totals() == (0, 0, 0, 0)


def test_after_some_were_acked_the_repeat_returns_the_others(topic: Topic, group: Group) -> None:
    topic.produce(*"abcde")
    first = group.take(5, attempt_id="x")
    group.ack(first[1], first[4])
    assert group.pop(attempt_id="x")["messages"] == [first[0], first[2], first[3]]


def test_after_some_were_nacked_the_repeat_returns_the_others(topic: Topic, group: Group, clock: Clock) -> None:
    topic.produce(*"abc")
    first = group.take(3, attempt_id="x")
    group.nack(first[1], delay_ms=1_000)
    assert group.pop(attempt_id="x")["messages"] == [first[0], first[2]]
    clock.sleep(1_000)
    assert group.pop(attempt_id="x")["messages"] == [first[0], first[2]]


def test_after_an_extension_the_repeat_returns_the_new_receipts(topic: Topic, group: Group, clock: Clock) -> None:
    topic.produce(*"abc")
    first = group.take(3, attempt_id="x")
    extended = group.extend(first[1], invisible_ms=90_000)["extended"][0]
    again = group.pop(attempt_id="x")["messages"]
    assert [each["receipt"] for each in again] == [first[0]["receipt"], extended["new_receipt"], first[2]["receipt"]]
    assert again[1]["invisible_until_ms"] == extended["invisible_until_ms"]
    clock.sleep(30_000)
    assert receipts(*group.pop(attempt_id="x")["messages"]) == [extended["new_receipt"]]


def test_after_all_were_acked_it_is_a_new_pop(topic: Topic, group: Group) -> None:
    topic.produce(*"abcd")
    group.ack(*group.take(2, attempt_id="x"))
    again = group.take(2, attempt_id="x")
    assert bodies(again) == ["c", "d"]
    assert group.take(2, attempt_id="x") == again


def test_after_expiry_it_is_a_new_pop(topic: Topic, group: Group, clock: Clock) -> None:
    topic.produce(*"ab")
    first = group.take(2, attempt_id="x")
    clock.sleep(30_000)
    again = group.take(2, attempt_id="x")
    assert [each["attempt"] for each in again] == [2, 2]
    assert group.take(2, attempt_id="x") == again
    assert group.ack(*first)["acked"] == 0
    assert group.ack(*again)["acked"] == 2


def test_of_leases_that_are_over_at_once_a_repeat_is_a_new_pop(topic: Topic, group: Group) -> None:
    topic.produce("a", "b")
    for attempt in (1, 2):
        taken = group.take(2, attempt_id="one", invisible_ms=0)
        assert [(each["offset"], each["attempt"]) for each in taken] == [(0, attempt), (1, attempt)]


def test_messages_another_took_after_expiry_are_not_returned(topic: Topic, group: Group, clock: Clock) -> None:
    topic.produce(*"ab")
    group.take(1, attempt_id="x")
    clock.sleep(30_000)
    group.take(1, attempt_id="y")
    assert bodies(group.pop(attempt_id="x")["messages"]) == ["b"]


@pytest.mark.parametrize("consumers", [("c1", "c2"), (None, "c1"), ("None", None)])
def test_an_attempt_belongs_to_its_consumer(topic: Topic, group: Group, consumers: tuple[str, str]) -> None:
    topic.produce(*"ab")
    first = group.pop(max_messages=1, attempt_id="x", consumer_id=consumers[0])
    second = group.pop(max_messages=1, attempt_id="x", consumer_id=consumers[1])
    assert (bodies(first["messages"]), bodies(second["messages"])) == (["a"], ["b"])
    assert group.pop(attempt_id="x", consumer_id=consumers[0]) == first
    assert group.pop(attempt_id="x", consumer_id=consumers[1]) == second


def test_names_that_read_alike_in_a_row_are_two_attempts(topic: Topic, group: Group) -> None:
    topic.produce(*"abcd")
    names = [("worker", "1-7"), ("worker-1", "7"), ("worker", "-1-7"), ("worker1-", "7")]
    taken = [group.take_one(consumer_id=consumer, attempt_id=attempt) for consumer, attempt in names]
    assert bodies(taken) == ["a", "b", "c", "d"]


def test_an_attempt_belongs_to_its_group(topic: Topic) -> None:
    topic.produce("a", "b")
    for name in ("one", "two"):
        assert bodies(topic.group(name).pop(max_messages=1, attempt_id="x")["messages"]) == ["a"]


def test_a_repeat_finds_its_lease_in_whatever_queue_it_is(client: Client) -> None:
    topic = client.topic("orders", queues=8)
    group = topic.group("billing")
    for queue in range(8):
        topic.produce("a", "b", queue=queue)
    popped = {name: group.pop(attempt_id=name) for name in "abcdefgh"}
    assert sorted(each["messages"][0]["queue"] for each in popped.values()) == list(range(8))
    assert {name: group.pop(attempt_id=name) for name in "abcdefgh"} == popped


def test_the_acks_of_a_repeat_count(topic: Topic, group: Group) -> None:
    topic.produce(*"abc")
    done = group.take_one()
    first = group.pop(attempt_id="x", ack=receipts(done))
    again = group.pop(attempt_id="x", ack=receipts(done))
    assert again == first
    assert first["acked"] == 1


def test_after_a_reset_it_is_a_new_pop(topic: Topic, group: Group) -> None:
    topic.produce(*"ab")
    first = group.take(2, attempt_id="x")
    group.reset("earliest")
    again = group.take(2, attempt_id="x")
    assert offsets(again) == offsets(first)
    assert not set(receipts(*first)) & set(receipts(*again))


def test_a_repeat_returns_a_full_response(topic: Topic, group: Group) -> None:
    for number in range(5):
        topic.produce(str(number) * MIB)
    first = group.pop(max_messages=256, attempt_id="x")
    assert offsets(first["messages"]) == [0, 1, 2, 3]
    assert group.pop(max_messages=256, attempt_id="x") == first


def test_a_repeat_returns_what_was_taken_over_from_many_leases(topic: Topic, group: Group, clock: Clock) -> None:
    topic.produce(*["x"] * 120)
    for _ in range(100):
        group.take_one()
    clock.sleep(30_000)
    first = group.pop(max_messages=110, attempt_id="x")
    assert offsets(first["messages"]) == list(range(110))
    assert group.pop(max_messages=110, attempt_id="x") == first
