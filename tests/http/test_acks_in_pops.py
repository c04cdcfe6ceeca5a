"""Acks that ride along with a pop."""

from __future__ import annotations

from tests.support.client import Client, Group, Topic, bodies, receipts
from tests.support.clock import Clock


def test_a_pop_acks_in_the_same_call(topic: Topic, group: Group) -> None:
    topic.produce("a", "b", "c")
    first = group.take(2)
    popped = group.pop(ack=receipts(*first))
    assert (bodies(popped["messages"]), popped["acked"], popped["failed"]) == (["c"], 2, [])
    assert group.totals() == (0, 1, 0, 0)


def test_a_pop_acks_when_nothing_is_ready(topic: Topic, group: Group) -> None:
    topic.produce("a")
    assert group.pop(ack=receipts(group.take_one())) == {"messages": [], "acked": 1, "failed": []}
    assert group.totals() == (0, 0, 0, 0)


def test_a_pop_acks_part_of_a_lease(topic: Topic, group: Group, clock: Clock) -> None:
    topic.produce(*"abcd")
    first = group.take(3)
    assert group.pop(ack=receipts(first[1]))["acked"] == 1
    clock.sleep(30_000)
    assert bodies(group.pop()["messages"]) == ["a", "c", "d"]


def test_a_pop_acks_what_came_from_other_queues(client: Client) -> None:
    topic = client.topic("orders", queues=4)
    group = topic.group("billing")
    for queue in range(3):
        topic.produce("a", queue=queue)
    first = [group.take_one() for _ in range(3)]
    topic.produce("b", queue=3)
    popped = group.pop(ack=receipts(*first))
    assert (bodies(popped["messages"]), popped["acked"]) == (["b"], 3)
    assert group.totals() == (0, 1, 0, 0)


def popped_with_an_ack(client: Client, apart_ms: int, waited_ms: int) -> list[str]:
    """The bodies that a pop with an ack of queue 1 returns, where `c` has waited this long, and `b` in queue 3
    longer."""
    topic = client.topic("orders", queues=4)
    group = topic.group("billing")
    topic.produce("a", queue=1)
    first = group.take_one()
    topic.produce("b", queue=3)
    client.clock.sleep(apart_ms)
    topic.produce("c", queue=1)
    client.clock.sleep(waited_ms)
    return bodies(group.pop(ack=receipts(first))["messages"])


def test_a_pop_stays_with_the_queue_it_acks_unless_another_waits_longer(client: Client) -> None:
    assert popped_with_an_ack(client, apart_ms=1_000, waited_ms=1_000) == ["c"]


def test_new_messages_do_not_wait_for_a_pop_that_stays_with_its_queue(client: Client) -> None:
    assert popped_with_an_ack(client, apart_ms=100, waited_ms=99) == ["b"]


def test_a_pop_says_which_of_its_acks_did_not_count(topic: Topic, group: Group, clock: Clock) -> None:
    topic.produce("a", "b")
    old = group.take_one(invisible_ms=1)
    clock.sleep(1)
    good = group.take_one()
    popped = group.pop(ack=[old["receipt"], good["receipt"], "garbage"])
    assert popped["acked"] == 1
    assert {each["receipt"]: each["code"] for each in popped["failed"]} == {
        old["receipt"]: "LeaseLost",
        "garbage": "ReceiptInvalid",
    }
    assert bodies(popped["messages"]) == ["b"]


def test_a_pop_does_not_redeliver_what_it_acks_from_an_expired_lease(topic: Topic, group: Group, clock: Clock) -> None:
    topic.produce("a", "b")
    first = group.take_one()
    clock.sleep(30_000)
    popped = group.pop(ack=receipts(first))
    assert (bodies(popped["messages"]), popped["acked"]) == (["b"], 1)


def test_a_pop_settles_once_what_it_acks_while_the_last_lease_ends() -> None:
    class Ticking(Clock):
        def now(self) -> int:
            self.ms += 1
            return self.ms

    for left_ms in range(20):
        client = Client(clock=Ticking())
        topic = client.topic("t")
        group = topic.group("g", max_attempts=1, max_in_flight=2)
        topic.produce(*"abcd")
        taken = group.take_one()
        group.take_one(invisible_ms=60_000)
        client.clock.ms = taken["invisible_until_ms"] - left_ms
        popped = group.pop(ack=receipts(taken))
        assert (popped["acked"], bodies(popped["messages"]), group.totals()) == (1, ["c"], (1, 2, 0, 0))


def test_the_rest_of_an_expired_lease_comes_before_new_messages(topic: Topic, group: Group, clock: Clock) -> None:
    topic.produce(*"abcde")
    first = group.take(3)
    clock.sleep(30_000)
    popped = group.pop(max_messages=3, ack=receipts(first[0]))
    assert (bodies(popped["messages"]), popped["acked"]) == (["b", "c", "d"], 1)
