"""In an ordered group nothing of a queue is delivered past a message that is not settled."""

from __future__ import annotations

import pytest

from tests.support.client import Client, Group, Topic, bodies, failed, offsets, receipts
from tests.support.clock import Clock


@pytest.fixture
def group(topic: Topic) -> Group:
    return topic.group("billing", ordered=True, invisible_ms=1_000, backoff_ms=[5_000])


def test_a_queue_gives_nothing_more_until_what_was_taken_is_settled(topic: Topic, group: Group) -> None:
    topic.produce(*"abcd")
    first = group.take(2)
    assert group.pop()["messages"] == []
    group.ack(first[0])
    assert group.pop()["messages"] == []
    group.ack(first[1])
    assert bodies(group.take(2)) == ["c", "d"]


def test_other_queues_go_on(client: Client) -> None:
    topic = client.topic("wide", queues=2)
    group = topic.group("billing", ordered=True)
    topic.produce("a", "b", queue=0)
    topic.produce("c", queue=1)
    got = {message["queue"] for message in (group.take_one(), group.take_one())}
    assert got == {0, 1}
    assert group.pop()["messages"] == []


def test_a_failed_message_is_retried_in_its_place_after_its_backoff(topic: Topic, group: Group, clock: Clock) -> None:
    topic.produce(*"abc")
    first = group.take(2)
    group.nack(first[0])
    group.ack(first[1])
    assert group.totals() == (1, 0, 1, 0)
    assert group.queue()["committed_offset"] == 0
    clock.sleep(4_999)
    assert group.pop()["messages"] == []
    clock.sleep(1)
    again = group.take(2)
    assert (bodies(again), [each["attempt"] for each in again]) == (["a", "c"], [2, 1])


def test_a_nack_may_say_its_own_delay(topic: Topic, group: Group, clock: Clock) -> None:
    topic.produce(*"ab")
    group.nack(group.take_one(), delay_ms=10)
    assert group.pop()["messages"] == []
    clock.sleep(10)
    assert bodies(group.take(2)) == ["a", "b"]


def test_acked_messages_never_come_again(topic: Topic, group: Group, clock: Clock) -> None:
    topic.produce(*"abcd")
    first = group.take(3)
    group.ack(first[1])
    clock.sleep(1_000)
    again = group.take(3)
    assert offsets(again) == [0, 2, 3]
    assert failed(group.ack(first[0])) == ["LeaseLost"]


def test_a_part_of_what_ran_out_holds_the_queue_again(topic: Topic, group: Group, clock: Clock) -> None:
    topic.produce(*"abc")
    group.take(3)
    clock.sleep(1_000)
    first = group.take_one()
    assert first["offset"] == 0
    assert group.pop()["messages"] == []
    group.ack(first)
    assert offsets(group.take(2)) == [1, 2]


def test_an_extended_lease_holds_its_queue(topic: Topic, group: Group, clock: Clock) -> None:
    topic.produce(*"abc")
    first = group.take(2)
    longer = group.extend(first[0], invisible_ms=60_000)["extended"][0]["new_receipt"]
    group.ack(first[1])
    clock.sleep(30_000)
    assert group.pop()["messages"] == []
    group.ack(longer)
    assert bodies(group.take(1)) == ["c"]


def test_the_next_messages_come_with_the_ack_of_those_before(topic: Topic, group: Group) -> None:
    topic.produce(*"abcde")
    first = group.take(2)
    answer = group.pop(max_messages=2, ack=[each["receipt"] for each in first])
    assert (answer["acked"], bodies(answer["messages"])) == (2, ["c", "d"])
    partly = group.pop(ack=[answer["messages"][1]["receipt"]])
    assert (partly["acked"], partly["messages"]) == (1, [])


def test_another_instance_acks_and_takes_at_once(topic: Topic, group: Group) -> None:
    topic.produce(*"abcd")
    elsewhere = group.seen_by(topic.client.another())
    first = group.take(2)
    assert bodies(elsewhere.take(2, ack=[each["receipt"] for each in first])) == ["c", "d"]
    assert bodies(group.pop()["messages"]) == []


def test_after_the_last_attempt_the_queue_goes_on(topic: Topic, clock: Clock) -> None:
    group = topic.group("strict", ordered=True, max_attempts=2, invisible_ms=1_000)
    topic.produce(*"ab")
    group.nack(group.take_one(), delay_ms=0)
    assert group.take_one()["attempt"] == 2
    clock.sleep(1_000)
    assert bodies(group.take(1)) == ["b"]
    assert group.totals() == (0, 1, 0, 1)


def test_a_bury_lets_the_queue_go_on(topic: Topic, group: Group) -> None:
    topic.produce(*"ab")
    assert group._post("bury", receipts=[group.take_one()["receipt"]])["buried"] == 1
    assert bodies(group.take(1)) == ["b"]


def test_a_reset_frees_the_queue(topic: Topic, group: Group) -> None:
    topic.produce(*"ab")
    group.take(2)
    group.reset("earliest")
    assert bodies(group.take(2)) == ["a", "b"]


def test_a_filter_and_the_order_go_together(topic: Topic) -> None:
    group = topic.group("some", ordered=True, filter={"tags": ["x"]})
    topic.produce({"body": "a", "tag": "x"}, {"body": "b"}, {"body": "c", "tag": "x"})
    first = group.take_one()
    assert group.pop()["messages"] == []
    group.ack(first)
    assert bodies(group.take(1)) == ["c"]


def test_a_repeated_attempt_gets_its_own_lease(topic: Topic, group: Group) -> None:
    topic.produce(*"abc")
    first = group.take(2, attempt_id="x")
    assert group.take(2, attempt_id="x") == first


def test_ordered_cannot_be_changed(client: Client, topic: Topic, group: Group) -> None:
    answer = client.put(group.path, ordered=False)
    assert answer.problem == (400, "InvalidField")
    assert "'ordered'" in answer.json["detail"]
    assert client.put(group.path, ordered=True, max_attempts=3).status == 200
    other = topic.group("free")
    assert client.put(other.path, ordered=True, max_attempts=3).problem == (400, "InvalidField")
    assert other.progress()["max_attempts"] == 16


@pytest.mark.parametrize("ordered", [True, "key"])
def test_an_old_receipt_that_a_pop_carries_does_not_hold_up_the_queue(topic: Topic, ordered: bool | str) -> None:
    """It is of a lease whose other messages are settled too: the pop cannot see that from the receipt."""
    group = topic.group("strict", ordered=ordered)
    older = []
    for count in (2, 1, 1):
        topic.produce(*[{"body": "a", "key": "k"}] * count)
        taken = group.take(count)
        group.ack(*taken)
        older.append(taken[0])
    topic.produce({"body": "b", "key": "k"})
    assert bodies(group.pop(ack=receipts(*older))["messages"]) == ["b"]


@pytest.mark.parametrize("ordered", [True, "key"])
def test_a_receipt_from_before_a_reset_does_not_hold_up_the_queue(topic: Topic, ordered: bool | str) -> None:
    group = topic.group("strict", ordered=ordered)
    topic.produce("a", key="k")
    old = group.take_one()
    group.reset("earliest")
    popped = group.pop(ack=receipts(old))
    assert (bodies(popped["messages"]), len(popped["failed"])) == (["a"], 1)


def test_what_waits_longest_of_many_retries_still_holds_its_queue(topic: Topic, group: Group, clock: Clock) -> None:
    topic.produce(*["x"] * 256)
    taken = group.take(256, invisible_ms=60_000)
    topic.produce("y")
    group.nack(*taken[::2], delay_ms=10_000)
    group.nack(*taken[1::2], delay_ms=20_000)
    assert group.pop()["messages"] == []
    clock.sleep(10_000)
    assert group.pop()["messages"] == []
    clock.sleep(10_000)
    assert offsets([group.take_one()]) == [0]
