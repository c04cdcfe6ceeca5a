"""Popping over HTTP: what is taken and in which order, how much fits, long polls, pauses, and the cap in flight."""

from __future__ import annotations

import base64
import random

import pytest

from chalicelib.base.limits import MIB, RESPONSE_JSON_BYTES_MAX
from tests.support.client import Client, Group, Topic, bodies, failed, offsets, receipts
from tests.support.clock import START_MS, Clock

EMPTY = {"messages": [], "acked": 0, "failed": []}


# -- what is taken ----------------------------------------------------------------------------------------------------


def test_a_pop_leases_a_message_with_all_its_fields(topic: Topic, group: Group) -> None:
    stored = topic.produce({"body": "a", "key": "k", "tag": "t", "properties": {"p": "q"}})[0]
    group.client.clock.sleep(7)
    popped = group.pop()
    assert popped["messages"] == [
        {
            **stored,
            "topic": "orders",
            "body": "a",
            "key": "k",
            "tag": "t",
            "properties": {"p": "q"},
            "attempt": 1,
            "stored_at_ms": START_MS,
            "invisible_until_ms": START_MS + 7 + 30_000,
            "receipt": popped["messages"][0]["receipt"],
        }
    ]


def test_nothing_ready_is_an_empty_answer(group: Group) -> None:
    assert group.pop() == EMPTY


def test_a_pop_takes_10_messages_unless_asked_otherwise(topic: Topic, group: Group) -> None:
    topic.produce(*["a"] * 12)
    assert len(group.pop()["messages"]) == 10
    assert len(group.pop()["messages"]) == 2


@pytest.mark.parametrize("count", [1, 2, 17, 32, 33, 255, 256])
def test_a_pop_takes_as_many_as_it_asks_for_in_offset_order(topic: Topic, group: Group, count: int) -> None:
    topic.produce(*["a"] * 200)
    topic.produce(*["a"] * 200)
    assert offsets(group.take(count)) == list(range(count))
    assert group.take_one()["offset"] == count


def test_a_pop_takes_256_messages_that_were_stored_one_by_one(topic: Topic, group: Group) -> None:
    for number in range(300):
        topic.produce(f"m{number}")
    taken = group.take(256)
    assert bodies(taken) == [f"m{number}" for number in range(256)]
    assert bodies(group.pop(max_messages=256)["messages"]) == [f"m{number}" for number in range(256, 300)]
    assert group.ack(*taken) == {"acked": 256, "failed": []}


def test_a_leased_message_is_not_delivered_to_anyone_else(topic: Topic, group: Group) -> None:
    topic.produce("a", "b", "c")
    taken = [offset for _ in range(3) for offset in offsets(group.take(1))]
    assert taken == [0, 1, 2]
    assert group.pop() == EMPTY
    assert group.seen_by(group.client.another()).pop() == EMPTY


def test_pops_empty_every_queue_before_they_answer_nothing(client: Client) -> None:
    topic = client.topic("orders", queues=7)
    group = topic.group("billing")
    for queue in range(7):
        topic.produce(*["a"] * (queue + 1), queue=queue)
    taken = []
    while messages := group.pop(max_messages=3)["messages"]:
        assert len({each["queue"] for each in messages}) == 1
        taken += [(each["queue"], each["offset"]) for each in messages]
    assert sorted(taken) == [(queue, offset) for queue in range(7) for offset in range(queue + 1)]


def test_what_has_waited_longest_is_taken_first(client: Client, clock: Clock) -> None:
    topic = client.topic("orders", queues=5)
    group = topic.group("billing")
    for queue in (3, 0, 4, 1, 2):
        topic.produce("a", queue=queue)
        clock.sleep(10)
    assert [group.take_one()["queue"] for _ in range(5)] == [3, 0, 4, 1, 2]


def test_two_instances_share_a_group_and_take_each_message_once(topic: Topic, group: Group) -> None:
    other = group.seen_by(group.client.another())
    taken: list[int] = []
    for number in range(20):
        topic.produce(*[str(number)] * 5)
        taken += offsets((group, other)[number % 2].pop(max_messages=3)["messages"])
        taken += offsets((other, group)[number % 2].pop(max_messages=4)["messages"])
    assert sorted(taken) == list(range(100))


def test_the_lease_is_as_long_as_the_pop_says_or_else_the_group(topic: Topic, clock: Clock) -> None:
    topic.produce("a", "b", "c")
    group = topic.group("billing", invisible_ms=5_000)
    ends = [
        group.take_one(**asked)["invisible_until_ms"] for asked in ({}, {"invisible_ms": 1}, {"invisible_ms": None})
    ]
    assert ends == [START_MS + 5_000, START_MS + 1, START_MS + 5_000]


def test_a_lease_can_last_12_hours(topic: Topic, group: Group, clock: Clock) -> None:
    topic.produce("a")
    group.take_one(invisible_ms=43_200_000)
    clock.sleep(43_199_999)
    assert group.pop() == EMPTY
    clock.sleep(1)
    assert group.take_one()["attempt"] == 2


def test_pop_of_an_unknown_topic_or_group_is_404(topic: Topic) -> None:
    client = topic.client
    assert client.post("/topics/others/groups/billing/pop").problem == (404, "TopicNotFound")
    assert client.post(f"{topic.path}/groups/billing/pop").problem == (404, "GroupNotFound")


# -- redelivery -------------------------------------------------------------------------------------------------------


def test_an_expired_lease_comes_back_at_once_with_the_next_attempt(topic: Topic, group: Group, clock: Clock) -> None:
    topic.produce({"body": "a", "key": "k"})
    first = group.take_one(invisible_ms=1_000)
    for attempt in range(2, 6):
        clock.sleep(999)
        assert group.pop() == EMPTY
        clock.sleep(1)
        again = group.take_one(invisible_ms=1_000)
        assert again == {
            **first,
            "attempt": attempt,
            "receipt": again["receipt"],
            "invisible_until_ms": clock.now() + 1_000,
        }


def test_what_was_acked_does_not_come_back_with_the_rest_of_its_lease(topic: Topic, group: Group, clock: Clock) -> None:
    topic.produce(*"abcdefg")
    taken = group.take(7)
    group.ack(taken[0], taken[3], taken[6])
    clock.sleep(30_000)
    again = group.pop()["messages"]
    assert [(each["body"], each["attempt"]) for each in again] == [("b", 2), ("c", 2), ("e", 2), ("f", 2)]


def test_an_expired_lease_can_come_back_in_parts(topic: Topic, group: Group, clock: Clock) -> None:
    topic.produce(*"abcde")
    group.take(5)
    clock.sleep(30_000)
    assert bodies(group.take(2)) == ["a", "b"]
    assert bodies(group.take(2)) == ["c", "d"]
    clock.sleep(30_000)
    again = group.pop()["messages"]
    assert [(each["body"], each["attempt"]) for each in again] == [("a", 3), ("b", 3), ("c", 3), ("d", 3), ("e", 2)]


def test_what_expired_comes_before_what_is_new_and_in_offset_order(topic: Topic, group: Group, clock: Clock) -> None:
    topic.produce(*"abc")
    group.take(2)
    clock.sleep(30_000)
    assert [(each["offset"], each["attempt"]) for each in group.pop()["messages"]] == [(0, 2), (1, 2), (2, 1)]


def test_one_pop_of_256_returns_all_of_100_expired_single_leases(topic: Topic, group: Group, clock: Clock) -> None:
    topic.produce(*[str(number) for number in range(100)])
    for _ in range(100):
        group.take_one()
    clock.sleep(30_000)
    again = group.pop(max_messages=256)
    assert "limited" not in again
    assert bodies(again["messages"]) == [str(number) for number in range(100)]
    assert {each["attempt"] for each in again["messages"]} == {2}
    assert group.ack(*again["messages"]) == {"acked": 100, "failed": []}
    assert group.totals() == (0, 0, 0, 0)


def test_one_pop_returns_many_expired_leases_and_then_what_is_new(topic: Topic, group: Group, clock: Clock) -> None:
    for _ in range(2):
        topic.produce(*["x"] * 150)
    for _ in range(70):
        group.take_one()
    clock.sleep(30_000)
    taken = group.take(256)
    assert offsets(taken) == list(range(256))
    assert [each["attempt"] for each in taken] == [2] * 70 + [1] * 186


def test_a_message_is_delivered_max_attempts_times_and_then_counts_as_dead(topic: Topic, clock: Clock) -> None:
    group = topic.group("billing", max_attempts=3)
    topic.produce("a", "b")
    for attempt in (1, 2, 3):
        taken = group.take(2)
        assert [each["attempt"] for each in taken] == [attempt, attempt]
        clock.sleep(30_000)
    assert group.pop() == EMPTY
    assert group.totals() == (0, 0, 0, 2)
    assert group.queue()["committed_offset"] == 2


def test_the_dead_make_way_for_what_is_new_in_the_same_pop(topic: Topic, clock: Clock) -> None:
    group = topic.group("billing", max_attempts=1)
    topic.produce(*["old"] * 120)
    group.take(120)
    clock.sleep(30_000)
    topic.produce("new")
    assert bodies(group.pop(max_messages=256)["messages"]) == ["new"]
    assert group.totals() == (0, 1, 0, 120)


def test_fewer_attempts_than_a_message_had_bury_it_at_the_next_pop(topic: Topic, group: Group, clock: Clock) -> None:
    topic.produce("a")
    for _ in range(3):
        group.take_one()
        clock.sleep(30_000)
    group.change(max_attempts=2)
    assert group.pop() == EMPTY
    assert group.totals() == (0, 0, 0, 1)


# -- how much fits ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_one_by_one", [True, False])
def test_a_pop_gives_at_most_4_mib_of_bodies_and_the_rest_later(
    topic: Topic, group: Group, is_one_by_one: bool
) -> None:
    texts = [str(number) * MIB for number in range(7)]
    for batch in [[each] for each in texts] if is_one_by_one else [texts[:4], texts[4:]]:
        topic.produce(*batch)
    taken = [group.pop(max_messages=256)["messages"] for _ in range(2)]
    assert [offsets(messages) for messages in taken] == [[0, 1, 2, 3], [4, 5, 6]]
    assert [body for messages in taken for body in bodies(messages)] == texts
    assert group.totals() == (0, 7, 0, 0)


def test_expired_messages_too_large_for_one_response_come_back_too(topic: Topic, group: Group, clock: Clock) -> None:
    for number in range(6):
        topic.produce(str(number) * (MIB + MIB // 2))
    first = [offsets(group.pop(max_messages=256)["messages"]) for _ in range(3)]
    assert first == [[0, 1], [2, 3], [4, 5]]
    clock.sleep(30_000)
    again = [group.pop(max_messages=256)["messages"] for _ in range(3)]
    assert [offsets(messages) for messages in again] == first
    assert {each["attempt"] for messages in again for each in messages} == {2}


def test_expired_leases_of_large_messages_come_back_as_far_as_they_fit(
    topic: Topic, group: Group, clock: Clock
) -> None:
    for number in range(60):
        topic.produce(chr(33 + number) * 100_000)
    for _ in range(60):
        group.take_one()
    clock.sleep(30_000)
    first, second = (group.pop(max_messages=256)["messages"] for _ in range(2))
    assert (offsets(first), offsets(second)) == (list(range(41)), list(range(41, 60)))
    assert group.totals() == (0, 60, 0, 0)


def test_a_response_never_exceeds_what_json_makes_of_the_bodies(topic: Topic, group: Group) -> None:
    text = "\x01" * 300_000
    for _ in range(5):
        topic.produce(text)
    path, taken = f"{group.path}/pop", []
    for _ in range(3):
        answer = group.client.post(path, max_messages=256)
        assert len(answer.raw) <= RESPONSE_JSON_BYTES_MAX
        taken += offsets(answer.json["messages"])
    assert taken == [0, 1, 2, 3, 4]


def test_many_small_messages_of_many_properties_stay_within_a_response(topic: Topic, group: Group) -> None:
    properties = {f"{number:02}": "\x01" * 300 for number in range(50)}
    for _ in range(8):
        topic.produce(*[{"body": "x", "properties": properties}] * 32)
    taken = []
    while len(taken) < 256:
        answer = group.client.post(f"{group.path}/pop", max_messages=256)
        assert len(answer.raw) <= RESPONSE_JSON_BYTES_MAX
        assert answer.json["messages"]
        taken += offsets(answer.json["messages"])
    assert taken == list(range(256))


def test_a_small_message_behind_a_large_one_waits_for_the_next_pop(topic: Topic, group: Group) -> None:
    topic.produce("x" * 4 * MIB)
    topic.produce("small")
    assert offsets(group.pop()["messages"]) == [0]
    assert offsets(group.pop()["messages"]) == [1]


def test_large_bytes_stay_within_a_response(topic: Topic, group: Group) -> None:
    data = base64.b64encode(random.Random(3).randbytes(MIB)).decode()
    for _ in range(5):
        topic.produce({"body_base64": data})
    taken = []
    for _ in range(2):
        answer = group.client.post(f"{group.path}/pop", max_messages=256)
        assert len(answer.raw) <= RESPONSE_JSON_BYTES_MAX
        taken += offsets(answer.json["messages"])
    assert taken == [0, 1, 2, 3, 4]


# -- an ack that rides along ------------------------------------------------------------------------------------------


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


def test_a_pop_stays_with_the_queue_it_acks_unless_another_waits_longer(client: Client, clock: Clock) -> None:
    topic = client.topic("orders", queues=4)
    group = topic.group("billing")
    topic.produce("a", queue=1)
    first = group.take_one()
    topic.produce("b", queue=3)
    clock.sleep(1_000)
    topic.produce("c", queue=1)
    clock.sleep(1_000)
    assert bodies(group.pop(ack=receipts(first))["messages"]) == ["c"]


def test_what_is_fresh_does_not_wait_for_a_pop_that_stays_with_its_queue(client: Client, clock: Clock) -> None:
    topic = client.topic("orders", queues=4)
    group = topic.group("billing")
    topic.produce("a", queue=1)
    first = group.take_one()
    topic.produce("b", queue=3)
    clock.sleep(100)
    topic.produce("c", queue=1)
    clock.sleep(99)
    assert bodies(group.pop(ack=receipts(first))["messages"]) == ["b"]


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


def test_a_pop_that_acks_part_of_an_expired_lease_gets_the_rest(topic: Topic, group: Group, clock: Clock) -> None:
    topic.produce(*"abc")
    first = group.take(3)
    clock.sleep(30_000)
    popped = group.pop(ack=receipts(first[0]))
    assert (bodies(popped["messages"]), popped["acked"]) == (["b", "c"], 1)


def test_the_rest_of_an_expired_lease_comes_before_new_messages(topic: Topic, group: Group, clock: Clock) -> None:
    topic.produce(*"abcde")
    first = group.take(3)
    clock.sleep(30_000)
    popped = group.pop(max_messages=3, ack=receipts(first[0]))
    assert (bodies(popped["messages"]), popped["acked"]) == (["b", "c", "d"], 1)


def test_a_pop_with_acks_of_an_unknown_group_is_404(topic: Topic, group: Group) -> None:
    topic.produce("a")
    taken = group.take_one()
    answer = topic.client.post(f"{topic.path}/groups/others/pop", ack=receipts(taken))
    assert answer.problem == (404, "GroupNotFound")
    assert group.totals() == (0, 1, 0, 0)


# -- long polls -------------------------------------------------------------------------------------------------------


def test_a_long_poll_ends_empty_after_its_time(group: Group, clock: Clock) -> None:
    assert group.pop(wait_ms=20_000) == EMPTY
    assert clock.now() == START_MS + 20_000


def test_a_pop_that_does_not_wait_takes_no_time(group: Group, clock: Clock) -> None:
    group.pop()
    group.pop(wait_ms=0)
    assert clock.now() == START_MS


def test_a_long_poll_answers_at_once_when_something_is_there(topic: Topic, group: Group, clock: Clock) -> None:
    topic.produce("a")
    assert len(group.pop(wait_ms=20_000)["messages"]) == 1
    assert clock.now() == START_MS


def test_a_long_poll_wakes_for_a_new_message(topic: Topic, group: Group, clock: Clock) -> None:
    other = Topic(topic.client.another(), topic.name)
    clock.at(START_MS + 7_001, lambda: other.produce("a"))
    assert bodies(group.pop(wait_ms=20_000)["messages"]) == ["a"]
    assert START_MS + 7_001 <= clock.now() <= START_MS + 7_201


def test_a_long_poll_wakes_for_an_expired_lease(topic: Topic, group: Group, clock: Clock) -> None:
    topic.produce("a")
    group.take_one(invisible_ms=3_000)
    assert group.pop(wait_ms=20_000)["messages"][0]["attempt"] == 2
    assert START_MS + 3_000 <= clock.now() <= START_MS + 3_200


def test_a_long_poll_wakes_for_a_retry(topic: Topic, group: Group, clock: Clock) -> None:
    topic.produce("a")
    group.nack(group.take_one(), delay_ms=500)
    assert group.pop(wait_ms=20_000)["messages"][0]["attempt"] == 2
    assert START_MS + 500 <= clock.now() <= START_MS + 700


def test_a_long_poll_gives_a_full_lease_from_when_it_ends(topic: Topic, group: Group, clock: Clock) -> None:
    clock.at(START_MS + 5_000, lambda: topic.produce("a"))
    message = group.pop(wait_ms=20_000, invisible_ms=1_000)["messages"][0]
    assert message["invisible_until_ms"] == clock.now() + 1_000


def test_a_long_poll_acks_before_it_waits(topic: Topic, group: Group, clock: Clock) -> None:
    topic.produce("a")
    first = group.take_one()
    seen: list[tuple[int, int, int, int]] = []
    watching = group.seen_by(group.client.another())
    clock.at(START_MS + 100, lambda: seen.append(watching.totals()))
    assert group.pop(wait_ms=1_000, ack=receipts(first)) == {"messages": [], "acked": 1, "failed": []}
    assert seen == [(0, 0, 0, 0)]


def test_a_long_poll_ends_when_the_group_is_paused(group: Group, clock: Clock) -> None:
    other = group.seen_by(group.client.another())
    clock.at(START_MS + 2_000, lambda: other.change(paused=True))
    assert group.pop(wait_ms=20_000) == {**EMPTY, "paused": True}
    assert clock.now() <= START_MS + 2_200


def test_a_long_poll_ends_404_when_the_group_is_deleted(group: Group, clock: Clock) -> None:
    other = group.seen_by(group.client.another())
    clock.at(START_MS + 2_000, other.delete)
    assert group.client.post(f"{group.path}/pop", wait_ms=20_000).problem == (404, "GroupNotFound")


def test_a_long_poll_at_the_cap_wakes_when_an_ack_makes_room(topic: Topic, clock: Clock) -> None:
    group = topic.group("billing", max_in_flight=1)
    topic.produce("a", "b")
    first = group.take_one()
    other = group.seen_by(group.client.another())
    clock.at(START_MS + 2_000, lambda: other.ack(first))
    assert bodies(group.pop(wait_ms=20_000)["messages"]) == ["b"]
    assert START_MS + 2_000 <= clock.now() <= START_MS + 2_200
    assert group.totals() == (0, 1, 0, 0)


# -- paused -----------------------------------------------------------------------------------------------------------


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


# -- the cap on what is in flight -------------------------------------------------------------------------------------


def test_a_pop_that_meets_the_cap_gets_fewer_and_is_told(topic: Topic) -> None:
    group = topic.group("billing", max_in_flight=3)
    topic.produce(*"abcde")
    first = group.pop(max_messages=5)
    assert (bodies(first["messages"]), first["limited"]) == (["a", "b", "c"], "in_flight")
    assert group.pop() == {**EMPTY, "limited": "in_flight"}


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


def test_an_ack_makes_room(topic: Topic) -> None:
    group = topic.group("billing", max_in_flight=2)
    topic.produce(*"abcd")
    first = group.take(2)
    group.ack(first[0])
    assert bodies(group.pop()["messages"]) == ["c"]
    assert group.totals() == (1, 2, 0, 0)


def test_the_acks_that_ride_along_make_room_in_the_same_call(topic: Topic) -> None:
    group = topic.group("billing", max_in_flight=2)
    topic.produce(*"abcde")
    first = group.take(2)
    popped = group.pop(ack=receipts(*first))
    assert (bodies(popped["messages"]), popped["acked"], popped["limited"]) == (["c", "d"], 2, "in_flight")
    assert group.totals() == (1, 2, 0, 0)


def test_acks_of_an_expired_lease_make_no_room_that_was_there_already(topic: Topic, clock: Clock) -> None:
    group = topic.group("billing", max_in_flight=2)
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


def test_a_lower_cap_holds_back_what_is_ready_until_enough_is_settled(topic: Topic, group: Group) -> None:
    topic.produce(*"abcdef")
    taken = group.take(4)
    group.change(max_in_flight=2)
    assert group.pop() == {**EMPTY, "limited": "in_flight"}
    group.ack(*taken[:2])
    assert group.pop() == {**EMPTY, "limited": "in_flight"}
    group.ack(taken[2])
    assert bodies(group.pop()["messages"]) == ["e"]


@pytest.mark.parametrize("seed", range(8))
def test_the_cap_is_never_passed_by_two_instances(topic: Topic, seed: int) -> None:
    chance = random.Random(seed)
    group = topic.group("billing", max_in_flight=7, max_attempts=1_000)
    instances = [group, group.seen_by(group.client.another())]
    topic.produce(*["x"] * 200)
    held: list[str] = []
    for _ in range(60):
        at = chance.choice(instances)
        chance.shuffle(held)
        match chance.randrange(5):
            case 0 | 1:
                riding, held = held[:2], held[2:]
                popped = at.pop(max_messages=chance.randint(1, 9), invisible_ms=chance.randint(1, 50), ack=riding)
                held += receipts(*popped["messages"])
            case 2 if held:
                at.ack(held.pop())
            case 3 if held:
                at.nack(held.pop(), delay_ms=chance.randint(0, 50))
            case _:
                group.client.clock.sleep(chance.randint(1, 20))
        assert group.queue()["in_flight"] <= 7


def test_a_thousand_single_retries_do_not_hold_up_what_is_new(topic: Topic, group: Group) -> None:
    for _ in range(8):
        topic.produce(*["x"] * 256)
        taken = group.take(256)
        group.nack(*taken[::2], delay_ms=86_400_000)
        group.ack(*taken[1::2])
    topic.produce("new")
    assert group.totals() == (1, 0, 1_024, 0)
    assert bodies(group.pop()["messages"]) == ["new"]
