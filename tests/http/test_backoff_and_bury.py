"""Waits that a group sets, and messages that are given up."""

from __future__ import annotations

from typing import Any

import pytest

from chalicelib.core.consuming.view import QueueView
from tests.support.client import Client, Group, Topic, failed, receipts
from tests.support.clock import Clock


@pytest.mark.parametrize(
    ("backoff", "waits"),
    [([100, 5_000], [100, 5_000, 5_000]), ({"initial_ms": 100, "multiplier": 3, "max_ms": 500}, [100, 300, 500])],
)
def test_a_nacked_message_comes_back_after_the_groups_backoff(
    topic: Topic, clock: Clock, backoff: Any, waits: list[int]
) -> None:
    group = topic.group("billing", backoff_ms=backoff)
    assert group.progress()["backoff_ms"] == backoff
    topic.produce("a")
    for attempt, wait_ms in enumerate(waits, 1):
        message = group.take_one()
        assert message["attempt"] == attempt
        group.nack(message)
        clock.sleep(wait_ms - 1)
        assert group.pop()["messages"] == []
        clock.sleep(1)
    assert group.take_one()["attempt"] == len(waits) + 1


def test_a_backoff_can_be_changed_and_holds_for_the_next_nack(topic: Topic, group: Group, clock: Clock) -> None:
    topic.produce("a")
    group.change(backoff_ms=[7])
    group.nack(group.take_one())
    clock.sleep(7)
    assert group.take_one()["attempt"] == 2


def test_a_backoff_that_begins_beyond_its_end_is_refused(group: Group) -> None:
    before, backoff = group.progress(), {"initial_ms": 2, "multiplier": 1, "max_ms": 1}
    answer = group.client.put(group.path, backoff_ms=backoff, max_attempts=3)
    assert answer.problem == (400, "InvalidField")
    assert "backoff_ms" in answer.json["detail"]
    assert group.progress() == before


def test_no_attempt_too_many_begins_where_a_lease_ends_within_a_pop(
    topic: Topic, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = topic.group("once", max_attempts=1, invisible_ms=1_000)
    topic.produce("a")
    group.take_one()
    topic.produce("b")
    clock.sleep(990)
    is_outrun = vars(QueueView)["is_outrun"].fget

    def slowly(view: QueueView) -> bool:
        clock.sleep(20)
        return bool(is_outrun(view))

    monkeypatch.setattr(QueueView, "is_outrun", property(slowly))
    assert [(each["body"], each["attempt"]) for each in group.pop()["messages"]] == [("b", 1)]
    assert group.pop()["messages"] == []
    assert group.totals() == (0, 1, 0, 1)


def test_sixteen_attempts_with_the_default_backoff_end_in_the_dead_letters(
    topic: Topic, group: Group, clock: Clock
) -> None:
    topic.produce("a")
    for attempt in range(1, 17):
        message = group.take_one()
        assert message["attempt"] == attempt
        group.nack(message, reason="again")
        clock.sleep(7_200_000)
    assert group.totals() == (0, 0, 0, 1)
    assert group.pop()["messages"] == []


def test_a_buried_message_is_dead_at_once(topic: Topic, group: Group, clock: Clock) -> None:
    topic.produce(*"abc")
    first, second, third = group.take(3)
    assert _bury(group, first, third, reason="no such customer") == {"buried": 2, "failed": []}
    assert group.totals() == (0, 1, 0, 2)
    clock.sleep(30_000)
    assert group.take_one()["offset"] == second["offset"]


def test_buried_settled_and_nacked_messages_cannot_be_buried(topic: Topic, group: Group) -> None:
    topic.produce(*"abc")
    buried, acked, nacked = group.take(3)
    _bury(group, buried)
    group.ack(acked)
    group.nack(nacked)
    assert failed(_bury(group, buried, acked, nacked)) == ["LeaseLost"] * 3
    assert group.totals() == (0, 0, 1, 1)
    assert failed(group.ack(buried)) == ["LeaseLost"]
    assert failed(_bury(group, "x")) == ["ReceiptInvalid"]


def test_an_instance_that_has_not_popped_buries_as_well(topic: Topic, group: Group, client: Client) -> None:
    topic.produce(*"ab")
    taken = group.take(2)
    assert _bury(group.seen_by(client.another()), *taken)["buried"] == 2
    assert group.totals() == (0, 0, 0, 2)


def test_another_group_still_gets_what_one_has_buried(topic: Topic, group: Group) -> None:
    other = topic.group("shipping")
    topic.produce("a")
    _bury(group, group.take_one())
    assert other.take_one()["body"] == "a"


def _bury(group: Group, *messages: Any, **fields: Any) -> Any:
    answer = group.client.post(f"{group.path}/bury", receipts=receipts(*messages), **fields)
    assert answer.status == 200, answer.json
    return answer.json
