"""The progress of a group: what is ready, in flight, retrying and dead, queue by queue."""

from __future__ import annotations

from chalicelib.core.base.limits import DAY_MS
from tests.support.client import FRESH_QUEUE, Client, Group, Topic
from tests.support.clock import START_MS, Clock


def test_progress_follows_a_message_through_all_its_states(topic: Topic, clock: Clock) -> None:
    group = topic.group("billing", max_attempts=3)
    topic.produce("a")
    assert group.totals() == (1, 0, 0, 0)
    taken = group.take_one()
    assert group.totals() == (0, 1, 0, 0)
    clock.sleep(30_000)
    assert group.totals() == (1, 0, 0, 0)
    taken = group.take_one()
    assert group.totals() == (0, 1, 0, 0)
    group.nack(taken, delay_ms=1_000)
    assert group.totals() == (0, 0, 1, 0)
    clock.sleep(1_000)
    assert group.totals() == (1, 0, 0, 0)
    taken = group.take_one()
    group.nack(taken)
    assert group.totals() == (0, 0, 0, 1)


def test_progress_names_every_number_of_every_queue(client: Client, clock: Clock) -> None:
    topic = client.topic("orders", queues=3)
    group = topic.group("billing")
    topic.produce(*"abcde", queue=1)
    clock.sleep(10)
    topic.produce("f", queue=1)
    clock.sleep(10)
    topic.produce("g", queue=2)
    clock.sleep(10)
    taken = group.take(3, consumer_id="worker-1")
    group.ack(taken[1])
    assert group.progress()["queues"] == [
        FRESH_QUEUE,
        {
            "queue": 1,
            "committed_offset": 0,
            "next_offset": 3,
            "end_offset": 6,
            "ready": 3,
            "in_flight": 2,
            "oldest_ready_at_ms": START_MS,
            "last_pop_at_ms": START_MS + 30,
            "last_consumer_id": "worker-1",
        },
        {
            "queue": 2,
            "committed_offset": 0,
            "next_offset": 0,
            "end_offset": 1,
            "ready": 1,
            "in_flight": 0,
            "oldest_ready_at_ms": START_MS + 20,
            "last_pop_at_ms": None,
            "last_consumer_id": None,
        },
    ]


def test_the_last_consumer_is_the_last_that_gave_its_id(topic: Topic, group: Group) -> None:
    topic.produce(*"abc")
    seen = []
    for consumer in ("one", "two", None):
        group.take_one(consumer_id=consumer)
        seen.append(group.queue()["last_consumer_id"])
    assert seen == ["one", "two", None]


def test_the_oldest_ready_message_is_the_first_that_can_be_taken(topic: Topic, group: Group, clock: Clock) -> None:
    for body in "abc":
        topic.produce(body)
        clock.sleep(100)
    first = group.take_one(invisible_ms=5_000)
    assert group.queue()["oldest_ready_at_ms"] == START_MS + 100
    group.take(2)
    assert group.queue()["oldest_ready_at_ms"] is None
    clock.sleep(5_000)
    assert group.queue()["oldest_ready_at_ms"] == first["stored_at_ms"]


def test_the_committed_offset_is_the_lowest_that_is_not_settled(topic: Topic, group: Group, clock: Clock) -> None:
    topic.produce(*"abcdef")
    a, b, c, d = group.take(4)
    committed = [group.queue()["committed_offset"]]
    for settle in (
        lambda: group.ack(b),
        lambda: group.ack(a),
        lambda: group.nack(c, delay_ms=1_000),
        lambda: group.extend(d),
        lambda: clock.sleep(1_000),
        lambda: group.take(1),
    ):
        settle()
        committed.append(group.queue()["committed_offset"])
    assert committed == [0, 0, 2, 3, 3, 3, 2]


def test_the_committed_offset_passes_the_dead(topic: Topic, clock: Clock) -> None:
    group = topic.group("billing", max_attempts=1)
    topic.produce(*"abc")
    group.nack(group.take_one())
    assert group.queue()["committed_offset"] == 1
    group.take(1)
    clock.sleep(30_000)
    assert group.queue()["committed_offset"] == 1
    group.take(1)
    assert (group.queue()["committed_offset"], group.totals()) == (2, (0, 1, 0, 2))


def test_the_place_of_a_group_that_nobody_pops_for_long_stays(topic: Topic, group: Group, clock: Clock) -> None:
    topic.produce(*"abc")
    group.ack(*group.take(2))
    clock.sleep(8 * DAY_MS)
    assert (group.queue()["committed_offset"], group.queue()["next_offset"]) == (2, 2)


def test_progress_is_the_same_on_every_instance(topic: Topic, group: Group) -> None:
    topic.produce(*"abcd")
    other = group.seen_by(group.client.another())
    group.ack(group.take(2)[0])
    other.nack(other.take_one())
    assert group.progress() == other.progress()
    assert group.totals() == (1, 1, 1, 0)


def test_messages_produced_after_a_look_count_at_the_next(topic: Topic, group: Group) -> None:
    other = Topic(topic.client.another(), topic.name)
    for count in range(1, 80):
        other.produce("a")
        assert group.totals() == (count, 0, 0, 0)
