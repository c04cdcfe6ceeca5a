"""A paused group delivers nothing, and settles what it has delivered."""

from __future__ import annotations

from tests.support.client import EMPTY, Group, Topic, bodies, failed, receipts


def test_a_paused_group_delivers_nothing_from_the_next_pop_on(topic: Topic, group: Group) -> None:
    topic.produce("a", "b")
    group.take_one()
    group.change(paused=True)
    assert group.pop(wait_ms=20_000) == {**EMPTY, "paused": True}
    assert group.seen_by(group.client.another()).pop() == {**EMPTY, "paused": True}
    assert group.totals() == (1, 1, 0, 0)


def test_a_group_that_goes_on_delivers_again(topic: Topic, group: Group) -> None:
    topic.produce("a")
    group.change(paused=True)
    group.pop()
    group.change(paused=False)
    popped = group.pop()
    assert bodies(popped["messages"]) == ["a"]
    assert "paused" not in popped


def test_the_acks_of_a_paused_pop_count(topic: Topic, group: Group) -> None:
    topic.produce("a", "b", "c")
    taken = group.take(2)
    group.change(paused=True)
    popped = group.pop(ack=[*receipts(*taken), "garbage"])
    assert (popped["messages"], popped["paused"], popped["acked"], failed(popped)) == (
        [],
        True,
        2,
        ["ReceiptInvalid"],
    )
    assert group.totals() == (1, 0, 0, 0)


def test_a_paused_group_still_settles(topic: Topic, group: Group) -> None:
    topic.produce("a", "b", "c")
    first, second, third = group.take(3)
    group.change(paused=True)
    assert group.ack(first)["acked"] == 1
    assert group.nack(second)["nacked"] == 1
    assert len(group.extend(third)["extended"]) == 1
