"""The cap on messages in flight, queue by queue."""

from __future__ import annotations

import pytest

from tests.support.client import EMPTY, Client, Group, Topic, bodies, offsets, receipts
from tests.support.clock import Clock
from tests.support.troubled_store import TroubledStore, unavailable


def test_a_pop_that_meets_the_cap_gets_fewer_and_says_so(topic: Topic) -> None:
    group = topic.group("billing", max_in_flight=3)
    topic.produce(*"abcde")
    first = group.pop(max_messages=5)
    assert (bodies(first["messages"]), first["limited"]) == (["a", "b", "c"], "in_flight")
    assert group.pop() == {**EMPTY, "limited": "in_flight"}


def test_a_pop_that_the_cap_cuts_short_says_so_also_with_a_rate(topic: Topic) -> None:
    group = topic.group("capped", max_in_flight=3, rate_limit=100)
    topic.produce(*"abcd")
    popped = group.pop(max_messages=4)
    assert (bodies(popped["messages"]), popped["limited"]) == (["a", "b", "c"], "in_flight")


def test_a_pop_with_a_rate_says_so_if_others_fill_the_cap_meanwhile(topic: Topic, store: TroubledStore) -> None:
    """Between the permits of the rate and the claim."""
    group = topic.group("capped", max_in_flight=3, rate_limit=100)
    topic.produce(*"abcd")
    other = group.seen_by(topic.client.another())

    def meanwhile(_verb: str, about: object) -> None:
        if "rate#" in str(about):
            store.after = unavailable()
            other.take(2)

    store.after = meanwhile
    popped = group.pop(max_messages=2)
    assert (bodies(popped["messages"]), popped["limited"]) == (["c"], "in_flight")


def test_a_pop_that_fills_the_cap_exactly_is_not_limited(topic: Topic) -> None:
    group = topic.group("billing", max_in_flight=3)
    topic.produce(*"abcde")
    assert "limited" not in group.pop(max_messages=3)


def test_a_full_group_with_nothing_ready_is_not_limited(topic: Topic) -> None:
    group = topic.group("billing", max_in_flight=2)
    topic.produce(*"ab")
    group.take(2)
    assert group.pop() == EMPTY


def test_the_cap_counts_for_each_queue(client: Client) -> None:
    topic = client.topic("orders", queues=2)
    group = topic.group("billing", max_in_flight=1)
    for queue in (0, 1):
        topic.produce("a", "b", queue=queue)
    popped = [group.pop() for _ in range(3)]
    assert [offsets(each["messages"]) for each in popped] == [[0], [0], []]
    assert {each["queue"] for pop in popped for each in pop["messages"]} == {0, 1}
    assert [each.get("limited") for each in popped] == ["in_flight"] * 3


def test_a_queue_at_its_cap_does_not_hide_another(client: Client, clock: Clock) -> None:
    topic = client.topic("orders", queues=2)
    group = topic.group("billing", max_in_flight=1)
    topic.produce("a", "b", queue=0)
    group.take_one()
    clock.sleep(10)
    topic.produce("c", queue=1)
    assert bodies(group.pop()["messages"]) == ["c"]


@pytest.mark.parametrize("ordered", [False, "key"])
def test_the_acks_that_ride_along_make_room_in_the_same_call(topic: Topic, ordered: bool | str) -> None:
    group = topic.group("billing", max_in_flight=2, ordered=ordered)
    topic.produce(*"abcde")
    first = group.take(2)
    popped = group.pop(ack=receipts(*first))
    assert (bodies(popped["messages"]), popped["acked"], popped["limited"]) == (["c", "d"], 2, "in_flight")
    assert group.totals() == (1, 2, 0, 0)


@pytest.mark.parametrize("ordered", [False, "key"])
@pytest.mark.parametrize("are_gone_first", [True, False])
def test_acks_make_room_beside_such_as_are_settled_already(
    topic: Topic, ordered: bool | str, are_gone_first: bool
) -> None:
    """As many as if these were not named, however many were taken with them."""
    group = topic.group("billing", max_in_flight=6, ordered=ordered)
    topic.produce(*"abcdefghijk")
    settled = group.take(6)
    group.ack(*settled)
    held = group.take(2)
    acked = [settled[0], held[0]] if are_gone_first else [held[0], settled[0]]
    popped = group.pop(ack=receipts(*acked), max_messages=2)
    assert (bodies(popped["messages"]), popped["acked"]) == (["i", "j"], 2)


@pytest.mark.parametrize("ordered", [False, "key"])
def test_acks_of_an_expired_lease_make_no_room_that_was_there_already(
    topic: Topic, clock: Clock, ordered: bool | str
) -> None:
    group = topic.group("billing", max_in_flight=2, ordered=ordered)
    topic.produce(*"abcdef")
    expired = group.take_one(invisible_ms=1_000)
    group.take_one()
    clock.sleep(1_000)
    popped = group.pop(ack=receipts(expired))
    assert (bodies(popped["messages"]), popped["acked"], popped["limited"]) == (["c"], 1, "in_flight")
    assert group.totals() == (3, 2, 0, 0)


def test_an_expired_lease_that_is_acked_in_part_keeps_its_room(topic: Topic, clock: Clock) -> None:
    group = topic.group("billing", max_in_flight=2)
    topic.produce(*"abcdef")
    first = group.take(2)
    clock.sleep(30_000)
    popped = group.pop(max_messages=10, ack=receipts(first[0]))
    assert (bodies(popped["messages"]), popped["limited"]) == (["b", "c"], "in_flight")


def test_acks_shown_twice_make_room_once(topic: Topic) -> None:
    group = topic.group("billing", max_in_flight=2)
    topic.produce(*"abcdef")
    first = group.take(2)
    popped = group.pop(ack=receipts(first[0], first[0]))
    assert (bodies(popped["messages"]), popped["acked"]) == (["c"], 2)
    group.ack(first[1])
    popped = group.pop(ack=receipts(*first))
    assert (bodies(popped["messages"]), popped["acked"]) == (["d"], 2)
    assert group.totals() == (2, 2, 0, 0)


def test_an_expired_lease_makes_room_only_for_itself(topic: Topic, clock: Clock) -> None:
    group = topic.group("billing", max_in_flight=2)
    topic.produce(*"abc")
    group.take(2)
    clock.sleep(30_000)
    popped = group.pop()
    assert ([(each["body"], each["attempt"]) for each in popped["messages"]], popped["limited"]) == (
        [("a", 2), ("b", 2)],
        "in_flight",
    )


def test_a_nacked_message_makes_room_while_it_waits(topic: Topic) -> None:
    group = topic.group("billing", max_in_flight=1)
    topic.produce("a", "b")
    group.nack(group.take_one(), delay_ms=60_000)
    assert bodies(group.pop()["messages"]) == ["b"]


@pytest.mark.parametrize("ordered", [False, "key"])
def test_an_ack_of_what_waits_for_its_retry_makes_no_room(topic: Topic, ordered: bool | str) -> None:
    group = topic.group("billing", max_in_flight=2, settle_by="message", ordered=ordered)
    topic.produce(*"abcde")
    waiting = group.take_one()
    group.nack(waiting, delay_ms=60_000)
    group.take(2)
    assert group.pop(ack=receipts(waiting))["messages"] == []


def test_a_lower_cap_holds_back_what_is_ready_until_enough_is_settled(topic: Topic, group: Group) -> None:
    topic.produce(*"abcdef")
    taken = group.take(4)
    group.change(max_in_flight=2)
    assert group.pop() == {**EMPTY, "limited": "in_flight"}
    group.ack(*taken[:2])
    assert group.pop() == {**EMPTY, "limited": "in_flight"}
    group.ack(taken[2])
    assert bodies(group.pop()["messages"]) == ["e"]


def test_a_thousand_single_retries_do_not_hold_up_what_is_new(topic: Topic, group: Group) -> None:
    for _ in range(8):
        topic.produce(*["x"] * 256)
        taken = group.take(256)
        group.nack(*taken[::2], delay_ms=86_400_000)
        group.ack(*taken[1::2])
    topic.produce("new")
    assert group.totals() == (1, 0, 1_024, 0)
    assert bodies(group.pop()["messages"]) == ["new"]


@pytest.mark.parametrize("count", [1, 2])
def test_a_cap_that_leaves_only_unwanted_messages_is_not_met(topic: Topic, count: int) -> None:
    group = topic.group("billing", max_in_flight=2, filter={"tags": ["x"]})
    topic.produce(*[{"body": "wanted", "tag": "x"}] * count, "unwanted", "unwanted")
    assert ("limited" in group.pop(max_messages=3)) == (count == 2)
