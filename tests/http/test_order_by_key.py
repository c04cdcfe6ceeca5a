"""In a group ordered by key a message waits for the earlier ones of its key, and for no others."""

from __future__ import annotations

from random import Random
from typing import Any
from unittest.mock import patch

import pytest

from chalicelib.core.base.limits import HOUR_MS, PASSED_AT_ONCE_MAX
from chalicelib.core.consuming import key_plan, skip
from chalicelib.core.consuming.skip import FILTERED_BYTES_MAX
from tests.support.client import Client, Group, Json, Topic, bodies, failed, offsets
from tests.support.clock import Clock
from tests.support.troubled_store import TroubledStore


@pytest.fixture
def group(topic: Topic) -> Group:
    return topic.group("billing", ordered="key", invisible_ms=1_000, backoff_ms=[5_000])


def keyed(topic: Topic, *messages: str, **fields: Any) -> None:
    """The first letter of each is its key; `-` is none."""
    topic.produce(*({"body": body, "key": None if body[0] == "-" else body[0]} for body in messages), **fields)


def bury(group: Group, message: Json) -> None:
    assert group.client.post(f"{group.path}/bury", receipts=[message["receipt"]]).json["failed"] == []


def test_a_pop_takes_all_that_it_can_of_a_key_and_then_the_next(topic: Topic, group: Group) -> None:
    keyed(topic, "a1", "b1", "a2", "a3")
    assert bodies(group.take(4)) == ["a1", "a2", "a3", "b1"]


def test_a_pop_passes_other_keys_for_more_of_the_first(topic: Topic, group: Group) -> None:
    keyed(topic, *(f"{key}{number}" for number in range(4) for key in "abc"))
    assert bodies(group.take(4)) == ["a0", "a1", "a2", "a3"]
    assert bodies(group.take(4)) == ["b0", "b1", "b2", "b3"]
    assert bodies(group.take(4)) == ["c0", "c1", "c2", "c3"]


def test_messages_without_a_key_come_each_in_its_turn(topic: Topic, group: Group) -> None:
    keyed(topic, "-1", "a1", "-2", "a2", "-3")
    assert bodies(group.take(5)) == ["-1", "a1", "a2", "-2", "-3"]


@pytest.mark.parametrize(("between", "then"), [(32, "a2"), (33, "-")])
def test_a_pop_passes_no_more_than_thirty_two_for_it(topic: Topic, group: Group, between: int, then: str) -> None:
    keyed(topic, "a1", *["-"] * between, "a2")
    assert bodies(group.take(2)) == ["a1", then]


def test_a_pop_reads_on_for_more_of_the_first_key(topic: Topic, group: Group) -> None:
    keyed(topic, *["-"] * 50)
    group.take(50)
    for number in range(8):
        for key in "abc":
            keyed(topic, f"{key}{number}")
    assert bodies(group.take(8)) == [f"a{number}" for number in range(8)]
    assert bodies(group.take(8)) == [f"b{number}" for number in range(8)]


def test_a_pop_of_one_message_sets_none_aside(topic: Topic, group: Group) -> None:
    keyed(topic, "a1", "b1", "a2")
    group.take_one()
    assert group.queue()["next_offset"] == 1


def test_a_key_waits_for_what_is_out_and_others_do_not(topic: Topic, group: Group) -> None:
    keyed(topic, "a1", "a2", "b1", "a3", "b2")
    first = group.take_one()
    assert bodies([first]) == ["a1"]
    assert bodies(group.take(2)) == ["b1", "b2"]
    keyed(topic, "a4")
    assert group.pop()["messages"] == []
    assert group.queue()["next_offset"] == 5  # and sets nothing aside
    group.ack(first)
    assert bodies(group.take(2)) == ["a2", "a3"]


def test_what_is_set_aside_counts_as_ready_and_is_not_settled(topic: Topic, group: Group) -> None:
    keyed(topic, "a1", "a2", "b1")
    first, other = group.take_one(), group.take_one()
    assert group.totals() == (1, 2, 0, 0)
    assert group.queue()["next_offset"] == 3
    group.ack(first, other)
    assert group.queue()["committed_offset"] == 1


def test_a_message_that_waits_for_its_retry_is_not_settled(topic: Topic, group: Group) -> None:
    keyed(topic, "a1", "b1")
    group.nack(group.take_one())
    group.ack(group.take_one())
    assert group.queue()["committed_offset"] == 0


def test_a_message_without_a_key_waits_for_none(topic: Topic, group: Group) -> None:
    keyed(topic, "-1", "-2", "-3")
    assert [group.take_one()["body"] for _ in range(3)] == ["-1", "-2", "-3"]


def test_an_ack_in_a_pop_lets_it_take_the_next_of_the_key(topic: Topic, group: Group) -> None:
    keyed(topic, "a1", "a2", "b1", "a3")
    first = group.take_one()
    group.take_one()
    assert bodies(group.take(2, ack=[first["receipt"]])) == ["a2", "a3"]


def test_an_ack_of_a_part_lets_nothing_past_the_rest_of_the_key(topic: Topic, group: Group) -> None:
    keyed(topic, "a1", "a2", "a3", "b1", "b2")
    taken = group.take(2)
    got = group.pop(ack=[taken[1]["receipt"]])["messages"]
    assert bodies(got) == ["b1", "b2"]
    assert group.pop()["messages"] == []
    group.ack(taken[0])
    assert bodies(group.take(1)) == ["a3"]


def test_a_nacked_message_holds_its_key_until_its_backoff_is_over(topic: Topic, group: Group, clock: Clock) -> None:
    keyed(topic, "a1", "a2", "b1")
    group.nack(group.take_one())
    assert bodies(group.take(1)) == ["b1"]
    clock.sleep(4_999)
    assert bodies(group.pop()["messages"]) == ["b1"]
    clock.sleep(1)
    again = group.take(2)
    assert bodies(again) == ["a1", "a2"]
    assert [message["attempt"] for message in again] == [2, 1]


def test_a_message_is_due_again_though_a_later_one_of_its_key_is_out(topic: Topic, group: Group, clock: Clock) -> None:
    keyed(topic, "a1", "a2")
    first, second = group.take(2)
    group.extend(second, invisible_ms=60_000)
    clock.sleep(1_000)
    again = group.take_one()
    assert again["body"] == "a1"
    group.ack(again)
    assert failed(group.ack(first)) == ["LeaseLost"]


def test_an_extended_lease_goes_on_holding_its_key(topic: Topic, group: Group, clock: Clock) -> None:
    keyed(topic, "a1", "a2", "a3", "a4", "b1")
    taken = group.take(3)
    group.extend(taken[0], taken[2], invisible_ms=5_000)
    clock.sleep(1_000)
    assert bodies(group.pop()["messages"]) == ["b1"]
    clock.sleep(4_000)
    assert bodies(group.pop()["messages"]) == ["b1", "a1", "a2", "a3", "a4"]


@pytest.mark.parametrize("at_once", [1, 3])
def test_the_key_that_has_been_ready_for_longest_comes_first(
    topic: Topic, group: Group, clock: Clock, at_once: int
) -> None:
    keyed(topic, "a1")
    group.take_one()
    clock.sleep(500)
    keyed(topic, "b1")
    clock.sleep(600)
    keyed(topic, "c1")
    assert [body for _ in range(3 // at_once) for body in bodies(group.take(at_once))] == ["b1", "a1", "c1"]


def test_an_attempt_takes_its_keys_by_offset(topic: Topic, group: Group, clock: Clock) -> None:
    keyed(topic, "a1", "b1")
    group.take_one()
    clock.sleep(1_000)
    for _ in range(2):
        assert bodies(group.pop(attempt_id="x")["messages"]) == ["a1", "b1"]


def test_what_is_buried_frees_its_key(topic: Topic, group: Group) -> None:
    keyed(topic, "a1", "a2")
    bury(group, group.take_one())
    assert bodies(group.take(1)) == ["a2"]


def test_a_filter_passes_what_it_rejects_and_that_holds_up_nothing(topic: Topic) -> None:
    group = topic.group("picky", ordered="key", filter={"expression": "key != 'x'"})
    keyed(topic, "x1", "a1", "x2", "a2", "b1", "x3")
    first = group.take_one()
    assert bodies([first]) == ["a1"]
    assert bodies(group.take(1)) == ["b1"]
    group.ack(first)
    assert bodies(group.pop()["messages"]) == ["a2"]
    assert group.totals()[0] == 0


def test_what_has_expired_is_passed_and_holds_up_nothing(topic: Topic, group: Group, clock: Clock) -> None:
    keyed(topic, "a1", ttl_ms=100)
    keyed(topic, "a2", "b1")
    clock.sleep(200)
    assert bodies(group.take(2)) == ["a2", "b1"]


def test_a_message_that_expires_set_aside_is_settled_when_its_key_is_free(
    topic: Topic, group: Group, clock: Clock
) -> None:
    keyed(topic, "a1")
    first = group.take_one(invisible_ms=10_000)
    keyed(topic, "a2", ttl_ms=1_000)
    keyed(topic, "a3", "b1")
    assert bodies(group.take(1)) == ["b1"]
    clock.sleep(2_000)
    group.ack(first)
    assert bodies(group.pop()["messages"]) == ["a3", "b1"]


def test_no_more_than_the_bound_is_set_aside_and_a_pop_looks_no_further(topic: Topic, group: Group) -> None:
    with patch.object(key_plan, "SET_ASIDE_MAX", 3):
        keyed(topic, "a1", "a2", "a3", "b1", "a4", "b2", "a5", "b3")
        first = group.take_one()
        assert [group.take_one()["body"], group.pop()["messages"]] == ["b1", []]
        group.ack(first)
        assert bodies(group.pop()["messages"]) == ["a2", "a3", "a4", "a5"]


def test_older_messages_wait_if_too_many_before_them_would_be_set_aside(
    topic: Topic, group: Group, clock: Clock
) -> None:
    keyed(topic, "a1", "b1")
    clock.ms -= 500  # that of another instance
    keyed(topic, "c1", "d1")
    with patch.object(key_plan, "SET_ASIDE_MAX", 0):
        assert bodies(group.take(2)) == ["a1", "b1"]


def test_a_pop_looks_past_many_messages_of_a_key(topic: Topic, group: Group) -> None:
    keyed(topic, "a0")
    first = group.take_one(invisible_ms=60_000)
    for hundred in range(5):
        keyed(topic, *(f"a{hundred}.{number}" for number in range(200)))
    keyed(topic, "b1")
    assert bodies(group.take(1)) == ["b1"]
    assert group.totals() == (1_000, 2, 0, 0)
    group.ack(first)
    assert bodies(group.take(256))[:2] == ["a0.0", "a0.1"]


def test_a_pop_looks_past_more_messages_of_a_key_than_it_reads_at_once(topic: Topic, group: Group) -> None:
    keyed(topic, "a0")
    group.take_one(invisible_ms=60_000)
    keyed(topic, *["a1"] * 6, "b1")
    with patch.object(key_plan, "PASSED_AT_ONCE_MAX", 4):
        assert bodies(group.take(1)) == ["b1"]
    assert group.totals() == (6, 2, 0, 0)


@pytest.mark.parametrize("at_once", [4, PASSED_AT_ONCE_MAX])
def test_of_what_was_stored_long_ago_only_what_has_expired_is_passed(
    topic: Topic, group: Group, clock: Clock, at_once: int
) -> None:
    assert topic.client.put(topic.path, retention_ms=HOUR_MS).status == 200
    with patch.object(key_plan, "PASSED_AT_ONCE_MAX", at_once), patch.object(skip, "PASSED_AT_ONCE_MAX", at_once):
        keyed(topic, "a1", "a2")
        clock.sleep(HOUR_MS)
        if at_once > 4:
            assert group.pop()["messages"] == []
        keyed(topic, "a3", "b4", "c5")
        assert bodies(group.pop()["messages"] + group.pop()["messages"]) == ["a3", "b4", "c5"]


def test_beyond_the_bound_a_pop_waits(topic: Topic, group: Group) -> None:
    keyed(topic, "a0")
    first = group.take_one(invisible_ms=60_000)
    for hundred in range(6):
        keyed(topic, *(f"a{hundred}.{number}" for number in range(200)))
    keyed(topic, "b1")
    assert group.pop()["messages"] == []
    group.ack(first)
    assert len(group.take(256)) == 256


@pytest.mark.parametrize("bytes_at_once", [1, FILTERED_BYTES_MAX])
def test_keys_are_found_by_an_instance_that_is_new(
    client: Client, topic: Topic, group: Group, bytes_at_once: int
) -> None:
    for number in range(8):
        keyed(topic, f"c{number}")
    keyed(topic, "a1" + "x" * 3_000, "a2" + "y" * 3_000, "b1")
    group.take(9)
    with patch.object(key_plan, "FILTERED_BYTES_MAX", bytes_at_once):
        assert bodies(group.seen_by(client.another()).take(1)) == ["b1"]
        assert group.seen_by(client.another()).pop()["messages"] == []


def test_a_pop_reads_keys_in_their_order_though_it_knows_later_ones(topic: Topic, group: Group) -> None:
    for message in ("a1", "b1", "c1"):
        keyed(topic, message)
    other = topic.group("other", ordered="key")
    other.reset({"queue": 0, "offset": 2})
    other.take_one()
    with patch.object(key_plan, "FILTERED_BYTES_MAX", 1):  # a key at a time
        assert bodies(group.take(3)) == ["a1", "b1", "c1"]


def test_the_cap_counts_what_is_out_and_not_what_is_set_aside(topic: Topic) -> None:
    group = topic.group("small", ordered="key", max_in_flight=2, invisible_ms=1_000)
    keyed(topic, "a1", "a2", "b1", "c1")
    first = group.take_one()
    assert bodies(group.take(1)) == ["b1"]
    assert group.pop()["limited"] == "in_flight"
    group.ack(first)
    assert bodies(group.take(1)) == ["a2"]


def test_a_rate_lets_through_so_many_in_order(topic: Topic, clock: Clock) -> None:
    group = topic.group("slow", ordered="key", rate_limit=2)
    keyed(topic, "a1", "b1", "a2", "a3")
    first = group.pop()
    assert (bodies(first["messages"]), first["limited"]) == (["a1", "a2"], "rate")
    clock.sleep(1_100)
    assert bodies(group.pop()["messages"]) == ["b1"]
    group.ack(*first["messages"])
    clock.sleep(1_100)
    assert bodies(group.take(1)) == ["a3"]


@pytest.mark.parametrize("at_once", [1, 2, 1_024])
def test_a_rate_does_not_keep_what_nobody_is_to_get(topic: Topic, at_once: int) -> None:
    """Nor what lies behind it."""
    group = topic.group("slow", ordered="key", rate_limit=2, filter={"expression": "key != 'b'"})
    keyed(topic, "b1", "b2", "b3")
    with patch.object(key_plan, "PASSED_AT_ONCE_MAX", at_once):
        assert group.pop()["messages"] == []
        assert group.totals() == (0, 0, 0, 0)
        keyed(topic, "b4", "b5", "b6", "a1", "b7", "a2", "a3")
        assert bodies(group.pop()["messages"]) == ["a1", "a2"]


def test_a_repeated_attempt_gets_the_same_messages_in_the_same_order(topic: Topic, group: Group) -> None:
    keyed(topic, "a1", "b1", "a2", "c1")
    first = group.pop(max_messages=3, attempt_id="x")["messages"]
    again = group.pop(max_messages=3, attempt_id="x")["messages"]
    assert bodies(first) == ["a1", "a2", "b1"]
    assert [message["receipt"] for message in again] == [message["receipt"] for message in first]


def test_each_consumer_of_a_broadcast_group_has_an_order_of_its_own(topic: Topic) -> None:
    group = topic.group("all", ordered="key", mode="broadcast")
    keyed(topic, "a1", "a2", "b1")
    assert bodies(group.take(1, consumer_id="one")) == ["a1"]
    assert bodies(group.take(3, consumer_id="two")) == ["a1", "a2", "b1"]
    assert bodies(group.take(1, consumer_id="one")) == ["b1"]


def test_a_reset_brings_back_what_was_set_aside(topic: Topic, group: Group) -> None:
    keyed(topic, "a1", "a2", "b1")
    group.take_one()
    group.take_one()
    assert topic.client.post(f"{group.path}/reset", to="earliest").status == 200
    assert bodies(group.take(3)) == ["a1", "a2", "b1"]


def test_what_comes_back_from_the_dead_letters_is_delivered(topic: Topic, group: Group) -> None:
    keyed(topic, "a1", "a2")
    bury(group, group.take_one())
    assert topic.client.post(f"{group.path}/dead/redrive").status == 200
    assert bodies(group.take(2)) == ["a1", "a2"]


def test_invisible_for_no_time_a_message_comes_once_in_an_answer(topic: Topic, group: Group) -> None:
    keyed(topic, "a1", "a2", "b1")
    for _ in range(2):
        assert bodies(group.take(3, invisible_ms=0)) == ["a1", "a2", "b1"]


@pytest.mark.parametrize("verb", ["ack", "bury"])
def test_a_waiting_pop_hears_at_once_what_its_instance_frees(
    topic: Topic, group: Group, clock: Clock, verb: str
) -> None:
    keyed(topic, "a1", "a2")
    first = group.take_one(invisible_ms=60_000)
    freed_ms = clock.ms + 7_001
    clock.at(freed_ms, lambda: group.client.post(f"{group.path}/{verb}", receipts=[first["receipt"]]))
    assert bodies(group.pop(wait_ms=20_000)["messages"]) == ["a2"]
    assert clock.ms == freed_ms


def test_a_waiting_pop_soon_sees_what_another_instance_frees(topic: Topic, group: Group, clock: Clock) -> None:
    keyed(topic, "a1", "a2")
    first = group.take_one(invisible_ms=60_000)
    other = group.seen_by(group.client.another())
    freed_ms = clock.ms + 7_001
    clock.at(freed_ms, lambda: other.ack(first))
    assert bodies(group.pop(wait_ms=20_000)["messages"]) == ["a2"]
    assert freed_ms <= clock.ms <= freed_ms + 200


def test_a_lost_message_that_is_found_again_holds_its_key(
    topic: Topic, group: Group, store: TroubledStore, clock: Clock
) -> None:
    keyed(topic, "a" + Random(1).randbytes(100_000).hex())
    keyed(topic, "a2")
    group = group.seen_by(topic.client.another())
    payloads = {pk: store._items.pop(pk) for pk in [*store._items] if pk.startswith("payload#")}
    group.ack(group.take_one())
    assert group.totals() == (0, 0, 0, 1)
    store._items.update(payloads)
    topic.client.post(f"{group.path}/dead/redrive")
    keyed(topic, "a3")
    assert offsets([group.take_one()]) == [0]
    assert group.pop()["messages"] == []


def test_a_message_that_is_gone_with_an_older_retention_holds_up_no_other(client: Client, store: TroubledStore) -> None:
    assert client.put("/topics/brief", queues=1, retention_ms=60_000).status == 201
    topic = Topic(client, "brief")
    group = topic.group("billing", ordered="key")
    client.clock.sleep(1_000)
    client.put(topic.path, retention_ms=HOUR_MS)
    client.clock.sleep(1_000)
    keyed(topic, "a" + Random(1).randbytes(100_000).hex())
    client.clock.sleep(61_000)
    for pk in [pk for pk in store._items if pk.startswith("payload#")]:
        del store._items[pk]
    keyed(topic, "b1")
    assert bodies(group.seen_by(client.another()).take(1)) == ["b1"]


def test_a_pop_takes_no_more_than_fits_where_it_has_to_choose_anew(topic: Topic, clock: Clock) -> None:
    """The last two would come first, stored by clocks that are behind, but pass more than may be set aside."""
    group = topic.group("large", ordered="key")
    for place, size in enumerate((4_000_000, 1_500_000, 1_500_000)):
        clock.set_back_ms = place
        topic.produce("x" * size, key=str(place))
    with patch.object(key_plan, "SET_ASIDE_MAX", 0):
        assert offsets(group.pop(max_messages=3)["messages"]) == [0]


def test_the_keys_of_one_topic_are_not_taken_for_those_of_another(client: Client) -> None:
    for name, keys in (("one", "ab"), ("other", "aa")):
        topic = client.topic(name)
        group = topic.group("billing", ordered="key")
        for key in keys:
            topic.produce("x", key=key)
        first, second = (group.pop(max_messages=1)["messages"] for _ in range(2))
        assert (len(first), len(second)) == (1, name == "one")


def test_a_pop_settles_all_at_once_that_was_set_aside_and_has_expired(
    topic: Topic, group: Group, store: TroubledStore, clock: Clock
) -> None:
    topic.client.put(topic.path, retention_ms=60_000)
    for _ in range(4):
        keyed(topic, *["a1"] * 90, "b1")
    held = group.take_one(invisible_ms=HOUR_MS)
    for _ in range(6):
        group.ack(*group.pop(max_messages=10)["messages"] or ["x"])
    clock.sleep(60_000)
    keyed(topic, "c1")
    group.ack(held)
    asked: list[str] = []
    store.before = lambda verb, _about: asked.append(verb)
    assert bodies(group.pop(max_messages=1)["messages"]) == ["c1"]
    assert len(asked) < 20


def test_what_was_set_aside_expires_like_what_was_never_taken(topic: Topic, group: Group, clock: Clock) -> None:
    topic.client.put(topic.path, retention_ms=60_000)
    keyed(topic, "a1", "a2", "b1")
    held = group.take_one(invisible_ms=HOUR_MS)
    assert bodies(group.drained()) == ["b1"]
    clock.sleep(59_999)
    assert group.totals() == (1, 1, 0, 0)
    clock.sleep(1)
    assert group.totals() == (0, 1, 0, 0)
    group.ack(held)
    keyed(topic, "a3")
    assert bodies(group.take(1)) == ["a3"]
    assert group.queue()["committed_offset"] == 3
