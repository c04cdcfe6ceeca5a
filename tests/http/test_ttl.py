"""A message with a `ttl_ms` is delivered until that is over, and settled by every group that meets it later."""

from __future__ import annotations

from typing import Any

import pytest

from chalicelib.core.base.limits import DAY_MS, PASSED_AT_ONCE_MAX, TTL_MS_MAX
from chalicelib.core.consuming import skip
from tests.support.client import Group, Topic, bodies, offsets
from tests.support.clock import Clock

TTL_MS = 5_000


def brief(body: str = "a", ttl_ms: int = TTL_MS, **more: Any) -> dict[str, Any]:
    return {"body": body, "ttl_ms": ttl_ms, **more}


@pytest.mark.parametrize("size", [1, 3_000])
def test_it_is_delivered_until_its_time_to_live_is_over(topic: Topic, clock: Clock, size: int) -> None:
    """Also where the log points to a payload."""
    topic.produce(brief("x" * size))
    first, second = topic.group("first"), topic.group("second")
    clock.sleep(TTL_MS - 1)
    assert len(first.take(1)) == 1
    clock.sleep(1)
    assert second.pop()["messages"] == []
    assert second.totals() == (0, 0, 0, 0)
    assert second.queue()["committed_offset"] == 1


def test_only_the_expired_messages_of_a_batch_are_passed(topic: Topic, group: Group, clock: Clock) -> None:
    topic.produce("a", brief("b"), brief("c", 2 * TTL_MS), "d")
    clock.sleep(TTL_MS)
    assert bodies(group.take(3)) == ["a", "c", "d"]
    assert group.totals() == (0, 3, 0, 0)


def test_expired_messages_count_as_ready_until_they_are_passed(topic: Topic, group: Group, clock: Clock) -> None:
    topic.produce(brief(), brief())
    clock.sleep(TTL_MS)
    assert group.totals() == (2, 0, 0, 0)
    group.pop()
    assert group.totals() == (0, 0, 0, 0)


def test_it_is_not_delivered_again_after_its_lease_ended(topic: Topic, group: Group, clock: Clock) -> None:
    topic.produce(brief(), "b")
    group.take(2, invisible_ms=TTL_MS)
    clock.sleep(TTL_MS)
    assert bodies(group.take(1)) == ["b"]
    assert group.totals() == (0, 1, 0, 0)


def test_it_is_not_delivered_again_after_a_nack(topic: Topic, group: Group, clock: Clock) -> None:
    topic.produce(brief())
    group.nack(*group.take(1), delay_ms=TTL_MS)
    clock.sleep(TTL_MS)
    assert group.pop()["messages"] == []
    assert group.totals() == (0, 0, 0, 0)


def test_an_ack_after_the_time_to_live_counts(topic: Topic, group: Group, clock: Clock) -> None:
    topic.produce(brief())
    taken = group.take(1)
    clock.sleep(TTL_MS)
    assert group.ack(*taken) == {"acked": 1, "failed": []}


def test_an_ordered_queue_goes_on_behind_an_expired_message(topic: Topic, clock: Clock) -> None:
    group = topic.group("ordered", ordered=True)
    topic.produce(brief(), "b")
    group.take(2, invisible_ms=TTL_MS)
    clock.sleep(TTL_MS)
    assert bodies(group.take(1)) == ["b"]


def test_the_time_to_live_of_a_delayed_message_begins_with_its_delivery(topic: Topic, clock: Clock) -> None:
    group = topic.group("late")
    topic.produce(brief("a", delay_ms=60_000), brief("b" * 3_000, delay_ms=60_000))
    clock.sleep(60_000)
    topic.group("other").take(1)  # delivers the first into the queue
    clock.sleep(TTL_MS - 1)
    assert bodies(group.take(1)) == ["a"]
    assert bodies(group.take(1)) == ["b" * 3_000]


def test_what_a_pop_does_not_come_to_read_is_not_passed(
    topic: Topic, group: Group, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(skip, "FILTERED_BYTES_MAX", 1)
    for messages in ([brief()], [brief(), brief("b", 2 * TTL_MS)], ["c"]):
        topic.produce(*messages)
    clock.sleep(TTL_MS)
    assert bodies([group.take_one(), group.take_one()]) == ["b", "c"]


def test_any_number_of_expired_messages_is_passed(topic: Topic, group: Group, clock: Clock) -> None:
    for _ in range(20):
        topic.produce(*[brief()] * 256)
    topic.produce("new")
    clock.sleep(TTL_MS)
    taken: list[dict[str, Any]] = []
    for _ in range(3):
        taken += group.pop()["messages"]
    assert offsets(taken) == [20 * 256]


def test_expired_messages_are_passed_without_a_search_of_the_log(topic: Topic, group: Group, clock: Clock) -> None:
    clock.sleep(4 * DAY_MS)  # older than its retention: some messages might be gone
    for _ in range(36):
        topic.produce(*[brief()] * 256)
    clock.sleep(TTL_MS)
    group.pop()
    before = topic.client.store.meter.round_trips
    group.pop()
    passes = 4
    assert topic.client.store.meter.round_trips - before <= 3 * passes
    assert group.queue()["next_offset"] == 2 * passes * PASSED_AT_ONCE_MAX


def test_a_filter_and_the_time_to_live_both_apply(topic: Topic, clock: Clock) -> None:
    group = topic.group("some", filter={"tags": ["a"]})
    topic.produce(brief("1", tag="a"), brief("2", tag="b"), {"body": "3", "tag": "a"}, {"body": "4", "tag": "b"})
    clock.sleep(TTL_MS)
    assert bodies(group.take(1)) == ["3"]


def test_a_look_up_still_finds_an_expired_message(topic: Topic, clock: Clock) -> None:
    [produced] = topic.produce(brief())
    clock.sleep(TTL_MS)
    assert topic.client.get(f"{topic.path}/messages/{produced['message_id']}").json["body"] == "a"


def test_the_longest_ttl_with_the_longest_delay_is_accepted(topic: Topic) -> None:
    assert topic.produce(brief("a", TTL_MS_MAX, delay_ms=TTL_MS_MAX))[0]["deliver_at_ms"]
