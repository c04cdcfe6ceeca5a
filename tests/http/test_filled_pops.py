"""Pops with `fill`: one answer brings messages of as many queues as it takes, and all limits hold over them."""

from __future__ import annotations

from itertools import count
from random import Random
from typing import Any

import pytest

from chalicelib.core.base.errors import StoreUnavailable
from chalicelib.core.base.limits import MIB, TAKEOVERS_MAX
from chalicelib.core.consuming import taker
from tests.support.client import Client, Group, Json, Topic, bodies, receipts
from tests.support.clock import Clock
from tests.support.troubled_store import Trouble, TroubledStore, unavailable

QUEUES = 3


@pytest.fixture
def topic(client: Client) -> Topic:
    return client.topic("orders", queues=QUEUES)


def produced(topic: Topic, clock: Clock, *counts: int) -> None:
    """So many messages in each queue, one queue after the other."""
    for queue, number in enumerate(counts):
        if number:
            topic.produce(*[f"{queue}.{place}" for place in range(number)], queue=queue)
        clock.sleep(10)


def places(messages: list[Json]) -> list[tuple[int, int]]:
    return [(message["queue"], message["offset"]) for message in messages]


def test_a_pop_takes_from_queue_after_queue_until_it_is_full(topic: Topic, group: Group, clock: Clock) -> None:
    produced(topic, clock, 2, 4, 9)
    answer = group.pop(max_messages=10, fill=True)
    firsts = [(queue, at) for queue, count in enumerate((2, 4, 4)) for at in range(count)]
    assert places(answer["messages"]) == firsts
    assert {message["attempt"] for message in answer["messages"]} == {1}
    assert group.totals() == (5, 10, 0, 0)
    assert group.ack(*answer["messages"])["acked"] == 10
    assert places(group.pop(max_messages=10, fill=True)["messages"]) == [(2, at) for at in range(4, 9)]
    assert group.totals() == (0, 5, 0, 0)


@pytest.mark.parametrize("fill", [False, None])
def test_without_fill_a_pop_takes_from_one_queue(topic: Topic, group: Group, clock: Clock, fill: bool | None) -> None:
    produced(topic, clock, 2, 4)
    assert places(group.pop(fill=fill)["messages"]) == [(0, 0), (0, 1)]


def test_a_pop_waits_for_a_first_message_and_for_no_more(topic: Topic, group: Group, clock: Clock) -> None:
    began_ms = clock.now()
    assert group.pop(fill=True, wait_ms=500)["messages"] == []
    assert clock.now() == began_ms + 500
    produced(topic, clock, 1)
    began_ms = clock.now()
    assert len(group.pop(fill=True, wait_ms=20_000)["messages"]) == 1
    assert clock.now() == began_ms


def test_expired_leases_of_several_queues_come_in_one_answer(topic: Topic, group: Group, clock: Clock) -> None:
    produced(topic, clock, 2, 2, 2)
    group.take(6, fill=True)
    clock.sleep(30_000)
    again = group.take(6, fill=True)
    assert {message["attempt"] for message in again} == {2}
    assert group.ack(*again)["acked"] == 6


# -- limits -----------------------------------------------------------------------------------------------------------


def test_one_answer_holds_4_mib_over_all_queues(topic: Topic, group: Group, clock: Clock) -> None:
    for queue in range(QUEUES):
        topic.produce(*["x" * (MIB + MIB // 2)] * 2, queue=queue)
        clock.sleep(10)
    taken = [places(group.pop(max_messages=10, fill=True)["messages"]) for _ in range(3)]
    assert taken == [[(queue, at) for at in range(2)] for queue in range(QUEUES)]
    assert group.totals() == (0, 6, 0, 0)


def test_a_message_that_does_not_fit_any_more_stays_for_the_next_pop(topic: Topic, group: Group, clock: Clock) -> None:
    for queue, size in enumerate((3 * MIB, 2 * MIB, 10)):
        topic.produce("x" * size, queue=queue)
        clock.sleep(10)
    assert places(group.pop(fill=True)["messages"]) == [(0, 0)]
    assert group.totals() == (2, 1, 0, 0)
    assert places(group.pop(fill=True)["messages"]) == [(1, 0), (2, 0)]


def test_the_rate_of_a_group_holds_over_all_queues(topic: Topic, clock: Clock) -> None:
    group = topic.group("slow", rate_limit=5)
    produced(topic, clock, 3, 3, 3)
    answer = group.pop(fill=True)
    assert (len(answer["messages"]), answer["limited"]) == (5, "rate")
    clock.sleep(answer["retry_after_ms"])
    answer = group.pop(fill=True)
    assert (len(answer["messages"]), "limited" in answer) == (4, False)


def test_the_cap_of_a_group_holds_in_each_queue(topic: Topic, clock: Clock) -> None:
    group = topic.group("capped", max_in_flight=2)
    produced(topic, clock, 3, 3, 1)
    answer = group.pop(fill=True)
    assert (places(answer["messages"]), answer["limited"]) == ([(0, 0), (0, 1), (1, 0), (1, 1), (2, 0)], "in_flight")
    assert group.pop(fill=True) == {"messages": [], "acked": 0, "failed": [], "limited": "in_flight"}


def test_a_pop_goes_on_for_a_second_at_most(topic: Topic, group: Group, clock: Clock, store: TroubledStore) -> None:
    produced(topic, clock, 2, 2, 2)
    group.ack(*group.take(6, fill=True))
    produced(topic, clock, 2, 2, 2)

    def slow(verb: str, _about: object) -> None:
        if verb == "write":
            clock.sleep(taker.FILL_MS // 2 + 1)

    store.before = slow
    assert places(group.pop(fill=True)["messages"]) == [(0, 2), (0, 3), (1, 2), (1, 3)]


# -- acks -------------------------------------------------------------------------------------------------------------


def test_acks_ride_on_the_claims_of_their_queues(
    topic: Topic, group: Group, clock: Clock, store: TroubledStore
) -> None:
    produced(topic, clock, 2, 2, 2)
    taken = group.take(6, fill=True)
    produced(topic, clock, 1, 1)
    writes: list[str] = []

    def note(verb: str, about: Any) -> None:
        if verb == "write":
            writes.append(about.key.sk[-1])

    store.after = note
    answer = group.pop(fill=True, ack=receipts(*taken))
    assert (answer["acked"], answer["failed"], places(answer["messages"])) == (6, [], [(0, 2), (1, 2)])
    assert sorted(writes) == ["0", "1", "2"]
    assert group.totals() == (0, 2, 0, 0)


# -- trouble and repeats ----------------------------------------------------------------------------------------------


def claims_of(queue: int, trouble: StoreUnavailable) -> Trouble:
    """Writes to the cursor of one queue go wrong."""

    def wrong(verb: str, about: Any) -> Exception | None:
        return trouble if verb == "write" and about.key.sk.endswith(f"#{queue:03d}") else None

    return wrong


FAILED = StoreUnavailable("the store throttled")
UNKNOWN = StoreUnavailable("no answer", outcome="unknown")


@pytest.mark.parametrize("attempt_id", [None, "x"])
def test_what_is_taken_is_answered_though_the_next_queue_fails(
    topic: Topic, group: Group, clock: Clock, store: TroubledStore, attempt_id: str | None
) -> None:
    produced(topic, clock, 2, 2, 2)
    store.before = claims_of(1, FAILED)
    taken = group.pop(fill=True, attempt_id=attempt_id)
    assert places(taken["messages"]) == [(0, 0), (0, 1)]
    store.before = unavailable()
    if attempt_id:
        assert group.pop(fill=True, attempt_id=attempt_id) == taken
    assert places(group.pop(fill=True)["messages"]) == [(1, 0), (1, 1), (2, 0), (2, 1)]
    assert group.ack(*taken["messages"])["acked"] == 2


def test_a_claim_without_an_answer_may_have_leased_what_comes_back(
    topic: Topic, group: Group, clock: Clock, store: TroubledStore
) -> None:
    produced(topic, clock, 1, 1)
    group.ack(*group.take(2, fill=True))
    produced(topic, clock, 2, 2)
    store.after = claims_of(1, UNKNOWN)
    assert places(group.pop(fill=True)["messages"]) == [(0, 1), (0, 2)]
    store.after = unavailable()
    clock.sleep(30_000)
    again = group.take(4, fill=True)
    assert (sorted(places(again)), {message["attempt"] for message in again}) == ([(0, 1), (0, 2), (1, 1), (1, 2)], {2})


def test_an_attempt_with_such_a_claim_is_repeated_whole(
    topic: Topic, group: Group, clock: Clock, store: TroubledStore
) -> None:
    produced(topic, clock, 1, 1)
    group.ack(*group.take(2, fill=True))
    produced(topic, clock, 2, 2)
    store.after = claims_of(1, UNKNOWN)
    assert group.client.post(f"{group.path}/pop", fill=True, attempt_id="x").problem == (503, "StoreUnavailable")
    store.after = unavailable()
    taken = group.take(4, fill=True, attempt_id="x")
    assert places(taken) == [(0, 1), (0, 2), (1, 1), (1, 2)]
    assert {message["attempt"] for message in taken} == {1}
    assert group.ack(*taken)["acked"] == 4


def test_messages_that_cannot_be_read_are_left_to_later_pops(
    topic: Topic, group: Group, clock: Clock, store: TroubledStore
) -> None:
    produced(topic, clock, 2)
    topic.produce(Random(1).randbytes(3_000).hex(), queue=1)
    clock.sleep(10)
    topic.produce("late", queue=2)
    fresh = group.seen_by(group.client.another())
    store.before = lambda verb, about: (
        FAILED if verb == "read" and any("payload#" in str(read) for read in about) else None
    )
    assert places(fresh.pop(fill=True)["messages"]) == [(0, 0), (0, 1), (2, 0)]
    store.before = unavailable()
    clock.sleep(1_000)
    assert places(fresh.take(1, fill=True)) == [(1, 0)]


def test_an_attempt_that_cannot_give_back_what_it_could_not_read_fails(
    topic: Topic, group: Group, clock: Clock, store: TroubledStore
) -> None:
    produced(topic, clock, 1)
    topic.produce(Random(1).randbytes(2_000).hex(), queue=1)
    fresh = group.seen_by(group.client.another())
    away = set[str]()

    def unread(verb: str, about: Any) -> Exception | None:
        if verb == "read" and "payload#" in repr(about):
            away.update(("read", "write"))
        return StoreUnavailable("the store throttled") if verb in away else None

    store.before = unread
    assert fresh.client.post(f"{fresh.path}/pop", fill=True, attempt_id="x").status == 503
    store.before = unavailable()
    assert places(fresh.take(2, fill=True, attempt_id="x")) == [(0, 0), (1, 0)]


@pytest.mark.parametrize(("ask", "outcome"), [({}, "unknown"), ({"attempt_id": "x"}, "none")])
def test_what_is_taken_over_is_answered_though_the_next_claim_fails(
    topic: Topic, group: Group, clock: Clock, store: TroubledStore, ask: Json, outcome: str
) -> None:
    topic.produce(*["x"] * (TAKEOVERS_MAX + 1), queue=0)
    for _ in range(TAKEOVERS_MAX + 1):
        group.take_one()
    clock.sleep(30_000)
    claims = count()

    def second(verb: str, about: Any) -> Exception | None:
        is_second = verb == "write" and "cursor#" in about.key.sk and next(claims) == 1
        return StoreUnavailable("no answer", outcome=outcome) if is_second else None

    store.before = second
    assert len(group.pop(max_messages=100, **ask)["messages"]) == TAKEOVERS_MAX


def test_a_repeated_attempt_returns_the_messages_of_all_its_queues(topic: Topic, group: Group, clock: Clock) -> None:
    produced(topic, clock, 2, 3, 4)
    first = group.take(8, fill=True, attempt_id="x")
    for client in (group.client, group.client.another()):
        again = group.seen_by(client).pop(max_messages=8, fill=True, attempt_id="x")["messages"]
        assert sorted(receipts(*again)) == sorted(receipts(*first))
    group.ack(*first[:3])
    left = group.pop(max_messages=8, fill=True, attempt_id="x")["messages"]
    assert sorted(receipts(*left)) == sorted(receipts(*first[3:]))
    assert group.totals() == (1, 5, 0, 0)


def test_a_repeat_during_the_first_call_takes_nothing_twice(
    topic: Topic, group: Group, clock: Clock, store: TroubledStore
) -> None:
    """Another instance gets the same attempt each time the first is about to claim."""
    produced(topic, clock, 2, 3, 4)
    other, seen = group.seen_by(group.client.another()), list[Json]()

    def in_between(verb: str, about: Any) -> None:
        if verb == "write" and "cursor#" in about.key.sk:
            store.before = unavailable()
            seen.extend(other.pop(max_messages=5, fill=True, attempt_id="x")["messages"])
            store.before = in_between

    store.before = in_between
    taken = group.pop(max_messages=5, fill=True, attempt_id="x")["messages"]
    store.before = unavailable()
    assert len(taken) == 5
    assert {*receipts(*seen)} == {*receipts(*taken)}
    assert group.totals() == (4, 5, 0, 0)


def test_a_call_beside_a_larger_one_of_its_attempt_answers_what_fits(
    topic: Topic, group: Group, clock: Clock, store: TroubledStore
) -> None:
    produced(topic, clock, 2, 3, 4)
    other = group.seen_by(group.client.another())

    def first(verb: str, about: Any) -> None:
        if verb == "write" and "cursor#" in about.key.sk:
            store.before = unavailable()
            other.take(9, fill=True, attempt_id="x")

    store.before = first
    assert places(group.pop(max_messages=3, fill=True, attempt_id="x")["messages"]) == [(0, 0), (0, 1), (1, 0)]
    assert group.totals() == (0, 9, 0, 0)


def test_an_attempt_answers_all_that_it_takes_over_in_many_writes(topic: Topic, group: Group, clock: Clock) -> None:
    topic.produce(*["x" * (MIB // 8)] * (TAKEOVERS_MAX + 4), queue=1)
    for _ in range(TAKEOVERS_MAX + 4):
        group.take_one()
    produced(topic, clock, 1)
    clock.sleep(30_000)
    assert len(group.pop(max_messages=100, fill=True, attempt_id="x")["messages"]) == TAKEOVERS_MAX + 5


# -- kinds of groups, zones -------------------------------------------------------------------------------------------


def test_an_ordered_group_fills_up_from_queues_that_wait_for_nothing(topic: Topic, clock: Clock) -> None:
    group = topic.group("strict", ordered=True)
    produced(topic, clock, 3, 3)
    held = group.take(2)
    produced(topic, clock, 0, 0, 2)
    assert places(group.pop(fill=True)["messages"]) == [(1, 0), (1, 1), (1, 2), (2, 0), (2, 1)]
    assert group.pop(fill=True)["messages"] == []
    assert places(group.pop(fill=True, ack=receipts(*held))["messages"]) == [(0, 2)]


def test_each_consumer_of_a_broadcast_group_fills_up(topic: Topic, clock: Clock) -> None:
    group = topic.group("everyone", mode="broadcast")
    produced(topic, clock, 2, 2, 2)
    for consumer in ("one", "two"):
        assert len(group.take(6, fill=True, consumer_id=consumer)) == 6


def test_a_filter_passes_over_unwanted_messages_of_every_queue(topic: Topic, clock: Clock) -> None:
    group = topic.group("picky", filter={"tags": ["paid"]})
    for queue in range(QUEUES):
        topic.produce(*[{"body": tag, "tag": tag} for tag in ("new", "paid", "new")], queue=queue)
        clock.sleep(10)
    assert bodies(group.pop(fill=True)["messages"]) == ["paid"] * 3
    group.pop(fill=True)
    assert group.totals() == (0, 3, 0, 0)


def test_queues_that_are_left_to_another_zone_stay_left(client: Client, clock: Clock) -> None:
    assert client.put("/topics/zoned", queues=3, zones={"a": [0], "b": [1]}).status == 201
    topic = Topic(client, "zoned")
    group = topic.group("g")
    produced(topic, clock, 1, 1, 1)
    assert places(group.pop(fill=True, zone="a")["messages"]) == [(0, 0), (2, 0)]
    assert places(group.pop(fill=True, zone="b")["messages"]) == [(1, 0)]
