"""A reset moves a group to another place in its queues."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from tests.support.client import Client, Group, Topic, bodies, failed
from tests.support.clock import START_MS, Clock
from tests.support.small import small_segments


class Busy(NamedTuple):
    """`leased`: the one message of each queue that is in flight."""

    group: Group
    leased: list[dict[str, Any]]


@pytest.fixture
def busy(client: Client, clock: Clock) -> Busy:
    """Two queues of ten messages, one every 10 ms; in each of them one is acked, one waits, one is dead, one leased."""
    topic = client.topic("orders", queues=2)
    for number in range(10):
        for queue in (0, 1):
            topic.produce(f"{queue}{number}", queue=queue)
        clock.sleep(10)
    group = topic.group("billing")
    taken = [group.take(4) for _ in range(2)]
    group.ack(*[each[0] for each in taken])
    group.nack(*[each[1] for each in taken], delay_ms=60_000)
    group.change(max_attempts=1)
    group.nack(*[each[2] for each in taken])
    group.change(max_attempts=2)
    assert group.totals() == (12, 2, 2, 2)
    return Busy(group, [each[3] for each in taken])


@pytest.mark.parametrize(
    ("to", "begins"),
    [
        ("earliest", 0),
        ("latest", 10),
        ("now", 10),
        ({"at_ms": 0}, 0),
        ({"at_ms": START_MS}, 0),
        ({"at_ms": START_MS + 1}, 1),
        ({"at_ms": START_MS + 50}, 5),
        ({"at_ms": START_MS + 90}, 9),
        ({"at_ms": START_MS + 91}, 10),
        ({"at_ms": START_MS + 10_000_000}, 10),
        ({"at_ms": START_MS + 20, "queue": None, "offset": None}, 2),
    ],
)
def test_a_reset_drops_leases_and_retries_and_keeps_dead_letters(
    busy: Busy, clock: Clock, to: Any, begins: int
) -> None:
    group = busy.group
    answer = group.reset(to)
    assert answer == group.progress()
    assert [(each["committed_offset"], each["next_offset"]) for each in answer["queues"]] == [(begins, begins)] * 2
    assert group.totals() == (2 * (10 - begins), 0, 0, 2)
    clock.sleep(60_000)
    assert group.totals() == (2 * (10 - begins), 0, 0, 2)
    found = sorted(body for _ in range(2) for body in bodies(group.pop()["messages"]))
    assert found == [f"{queue}{number}" for queue in (0, 1) for number in range(begins, 10)]


@pytest.mark.parametrize("offset", [0, 3, 9, 10])
def test_a_reset_of_one_queue_leaves_the_others_as_they_are(busy: Busy, offset: int) -> None:
    group, before = busy.group, busy.group.queue(0)
    group.reset({"queue": 1, "offset": offset})
    assert group.queue(0) == before
    after = group.queue(1)
    assert (after["committed_offset"], after["next_offset"], after["in_flight"]) == (offset, offset, 0)
    assert group.totals() == (6 + 10 - offset, 1, 1, 2)
    lost = [each["receipt"] for each in busy.leased if each["queue"] == 1]
    assert [each["receipt"] for each in group.ack(*busy.leased)["failed"]] == lost


@pytest.mark.parametrize("to", ["earliest", "latest", "now", {"at_ms": START_MS}, {"queue": 0, "offset": 0}])
def test_receipts_from_before_a_reset_are_lost(topic: Topic, group: Group, clock: Clock, to: Any) -> None:
    topic.produce(*"abcd")
    first, second = group.take(2), group.take(2)
    group.ack(first[0])
    group.reset(to)
    for verb in (group.ack, group.nack, group.extend):
        assert failed(verb(*first, *second)) == ["LeaseLost"] * 4
        assert failed(verb(first[0])) == ["LeaseLost"]
    before = group.totals()
    clock.sleep(60_000)
    assert group.totals() == before


@pytest.mark.parametrize("count", [1, 2])
def test_a_receipt_acked_before_a_reset_is_lost_after_it(topic: Topic, group: Group, count: int) -> None:
    topic.produce(*"ab")
    acked = group.take(count)[0]
    group.ack(acked)
    group.reset("earliest")
    assert failed(group.ack(acked)) == ["LeaseLost"]
    assert group.pop(ack=[acked["receipt"]])["acked"] == 0


@pytest.mark.parametrize("rule", ["receipt", "delivery", "message"])
@pytest.mark.parametrize("rides", [False, True])
def test_an_ack_of_two_receipts_counts_the_one_since_the_reset(client: Client, rule: str, rides: bool) -> None:
    """Both name one message, and with one `attempt_id` even leases of one token."""
    topic = client.topic("orders", queues=1)
    topic.produce("a")
    group = topic.group("billing", settle_by=rule)
    old = group.pop(attempt_id="a")["messages"]
    group.reset("earliest")
    new = group.pop(attempt_id="a")["messages"]
    answer = group.pop(ack=[each["receipt"] for each in old + new]) if rides else group.ack(*old, *new)
    assert (answer["acked"], failed(answer)) == (1, ["LeaseLost"])


def test_receipts_from_before_a_reset_are_lost_on_other_instances_too(topic: Topic, group: Group) -> None:
    topic.produce(*"abcd")
    taken = group.take(3)
    other = group.seen_by(group.client.another())
    other.ack(taken[0])
    group.reset("earliest")
    again = group.take(4)
    assert failed(other.ack(taken[0])) == ["LeaseLost"]
    assert failed(other.ack(*taken)) == ["LeaseLost"] * 3
    assert other.ack(*again)["acked"] == 4


def test_a_lease_from_before_a_reset_does_not_bring_its_messages_back(topic: Topic, group: Group, clock: Clock) -> None:
    topic.produce(*"ab")
    group.take_one()
    group.nack(group.take_one(), delay_ms=1_000)
    group.reset("latest")
    clock.sleep(86_400_000)
    assert group.pop()["messages"] == []
    topic.produce("c")
    assert [(each["body"], each["attempt"]) for each in group.pop()["messages"]] == [("c", 1)]


def test_after_a_reset_attempts_count_from_1(topic: Topic, group: Group, clock: Clock) -> None:
    topic.produce("a")
    for attempt in (1, 2, 3):
        assert group.take_one()["attempt"] == attempt
        clock.sleep(30_000)
    group.reset("earliest")
    assert group.take_one()["attempt"] == 1


def test_a_group_is_reset_again_and_again(topic: Topic, group: Group) -> None:
    topic.produce(*"abc")
    for _ in range(5):
        assert bodies(group.take(3)) == ["a", "b", "c"]
        group.reset("earliest")
    assert group.totals() == (3, 0, 0, 0)


def test_a_group_that_never_popped_can_be_reset(topic: Topic, group: Group) -> None:
    topic.produce(*"abc")
    group.reset({"queue": 0, "offset": 2})
    assert bodies(group.pop()["messages"]) == ["c"]
    group.reset("latest")
    assert group.pop()["messages"] == []


def test_a_reset_of_a_paused_group_leaves_it_paused(topic: Topic, group: Group) -> None:
    topic.produce("a")
    group.change(paused=True)
    assert group.reset("earliest")["paused"] is True
    assert group.pop()["paused"] is True


@pytest.mark.parametrize("offset", [11, 12, 10**15 - 1])
def test_a_reset_to_an_offset_that_the_queue_does_not_have_is_refused(busy: Busy, offset: object) -> None:
    group, before = busy.group, busy.group.progress()
    answer = group.client.post(f"{group.path}/reset", to={"queue": 0, "offset": offset})
    assert answer.problem == (400, "InvalidField")
    assert "offset" in answer.json["detail"]
    assert group.progress() == before


@pytest.mark.parametrize(
    ("to", "code"),
    [
        ({}, "InvalidField"),
        ({"at_ms": None}, "InvalidField"),
        ({"queue": 0}, "InvalidField"),
        ({"offset": 0}, "InvalidField"),
        ({"queue": 2, "offset": 0}, "InvalidField"),
        ({"at_ms": 0, "queue": 0, "offset": 0}, "InvalidField"),
        ({"at_ms": 0, "queue": 0}, "InvalidField"),
        ({"at_ms": 0, "offset": 0}, "InvalidField"),
    ],
)
def test_a_reset_to_nowhere_is_refused_and_changes_nothing(busy: Busy, to: Any, code: str) -> None:
    group, before = busy.group, busy.group.progress()
    assert group.client.post(f"{group.path}/reset", to=to).problem == (400, code)
    assert group.progress() == before


@pytest.mark.parametrize("to", [{"queue": 0, "offset": 7}, {"at_ms": START_MS + 70}])
def test_a_reset_goes_back_over_several_segments(client: Client, clock: Clock, to: Any) -> None:
    topic = client.topic("orders")
    group, others = topic.group("billing"), client.another()
    with small_segments():
        for number in range(20):
            topic.produce(f"{number} {'x' * 100}")
            clock.sleep(10)
        assert len(group.drained()) == 20
        group.reset(to)
        assert [message["offset"] for message in group.seen_by(others).drained()] == [*range(7, 20)]
