"""The number of queues changes while the topic is used."""

from __future__ import annotations

from typing import Any

import pytest

from chalicelib.core.admin.draining import DELAYED_LATE_MS
from chalicelib.core.base.limits import (
    DAY_MS,
    ENTRY_LATE_MS,
    HEARD_MS,
    HOUR_MS,
    METADATA_AGE_MS_MAX,
    MINUTE_MS,
    QUEUES_MAX,
)
from chalicelib.core.catalogue.topic import CHANGES_MAX
from chalicelib.core.cursors.retries import RETRY_PAGE_LEASES
from chalicelib.core.producing.produce import queue_of_key
from tests.support.client import Client, Group, Json, Topic, bodies
from tests.support.clock import Clock

UNWRITTEN_MS = HEARD_MS + ENTRY_LATE_MS
"""How long after a change a queue may leave at the earliest."""
DELAYED_MS = HEARD_MS + DELAYED_LATE_MS
"""The same where messages may be delayed."""


def key_of(queue: int, queues: int) -> str:
    return next(str(number) for number in range(10_000) if queue_of_key(str(number), queues) == queue)


def resize(topic: Topic, queues: int) -> Json:
    answer = topic.client.put(topic.path, queues=queues)
    assert answer.status == 200, answer.json
    changed: Json = answer.json
    return changed


def check(topic: Topic) -> None:
    """The sweep that lets queues leave."""
    topic.client.api.service.sweeps.check()


def read_queues(topic: Topic) -> list[int]:
    return [queue["queue"] for queue in topic.details()["queue_offsets"]]


def shrunk(topic: Topic, queues: int, late_ms: int = UNWRITTEN_MS) -> None:
    """Shrinks the topic, lets the time pass, and sweeps."""
    resize(topic, queues)
    topic.client.clock.sleep(late_ms + 10)  # changes within a millisecond apply one after another
    check(topic)


@pytest.fixture
def orders(client: Client) -> Topic:
    """A topic of four queues."""
    return client.topic("orders", queues=4)


# -- more queues ------------------------------------------------------------------------------------------------------


def test_new_queues_are_read_at_once_and_written_20_seconds_later(orders: Topic, clock: Clock) -> None:
    orders.client.topic("small", 1)
    small = Topic(orders.client, "small")
    key = key_of(2, 3)
    assert resize(small, 3)["queues"] == 3
    assert read_queues(small) == [0, 1, 2]
    clock.sleep(HEARD_MS - 1)
    assert small.produce("early", key=key)[0]["queue"] == 0
    clock.sleep(1)
    assert small.produce("late", key=key)[0]["queue"] == 2


def test_all_instances_place_by_the_new_number_at_one_instant(client: Client, orders: Topic, clock: Clock) -> None:
    other = Topic(client.another(), orders.name)
    other.produce("it knows the topic")
    resize(orders, 8)
    key = key_of(7, 8)
    for wait_ms in (METADATA_AGE_MS_MAX, HEARD_MS - METADATA_AGE_MS_MAX):
        assert orders.produce("a", key=key)[0]["queue"] < 4
        assert other.produce("a", key=key)[0]["queue"] < 4
        clock.sleep(wait_ms)
    assert {topic.produce("b", key=key)[0]["queue"] for topic in (orders, other)} == {7}


def test_a_named_queue_is_written_as_soon_as_it_is_there(client: Client, orders: Topic) -> None:
    other = Topic(client.another(), orders.name)
    other.produce("it knows the topic")
    resize(orders, 8)
    assert [topic.produce("a", queue=7)[0]["queue"] for topic in (orders, other)] == [7, 7]


def test_a_group_reads_added_queues_from_their_beginning(orders: Topic, clock: Clock) -> None:
    groups = [orders.group("late", start="latest"), orders.group("early")]
    everyone = orders.group("everyone", mode="broadcast")
    everyone.pop(consumer_id="one")
    resize(orders, 6)
    orders.produce("a", queue=5)
    assert [bodies(group.take(1)) for group in groups] == [["a"], ["a"]]
    assert bodies(everyone.take(1, consumer_id="one")) == ["a"]
    assert [queue["queue"] for queue in groups[0].progress()["queues"]] == [*range(6)]


@pytest.mark.parametrize("has_delays", [False, True])
def test_a_waiting_pop_hears_of_new_queues(client: Client, orders: Topic, clock: Clock, has_delays: bool) -> None:
    if has_delays:
        orders.produce("much later", delay_ms=DAY_MS)
    group = orders.group("billing").seen_by(client.another())
    clock.at(clock.ms + 1_000, lambda: resize(orders, 8))
    clock.at(clock.ms + 1_500, lambda: orders.produce("a", queue=7))
    began_ms = clock.ms
    assert bodies(group.take(1, wait_ms=20_000)) == ["a"]
    assert clock.ms - began_ms <= METADATA_AGE_MS_MAX + 500


def test_a_dedup_id_of_a_new_queue_is_known_to_an_instance_that_is_not(client: Client, orders: Topic) -> None:
    other = Topic(client.another(), orders.name)
    other.produce("it knows the topic")
    resize(orders, 8)
    first = orders.produce("a", queue=7, dedup_id="d")
    assert other.produce("a", dedup_id="d") == first


def test_unkeyed_messages_use_the_new_queues(client: Client, orders: Topic, clock: Clock) -> None:
    resize(orders, 16)
    clock.sleep(HEARD_MS)
    used = {Topic(Client(client.store, clock, seed), orders.name).produce("a")[0]["queue"] for seed in range(2, 40)}
    assert max(used) > 3


def test_the_number_of_queues_changes_fifty_times_an_hour_at_most(client: Client, orders: Topic, clock: Clock) -> None:
    for number in range(CHANGES_MAX):
        resize(orders, 5 + number)
    assert client.put(orders.path, queues=128).problem == (400, "InvalidField")
    assert orders.details()["queues"] == 4 + CHANGES_MAX
    clock.sleep(60 * MINUTE_MS + HEARD_MS)
    resize(orders, 128)
    assert len(read_queues(orders)) == 128


# -- fewer queues -----------------------------------------------------------------------------------------------------


def test_queues_that_are_too_many_are_written_for_20_seconds_more(orders: Topic, clock: Clock) -> None:
    changed = resize(orders, 2)
    assert (changed["queues"], changed["draining"]) == (2, [2, 3])
    key = key_of(3, 4)
    clock.sleep(HEARD_MS - 1)
    assert orders.produce("a", key=key)[0]["queue"] == 3
    clock.sleep(1)
    assert orders.produce("b", key=key)[0]["queue"] < 2


def test_a_named_queue_that_is_too_many_is_refused_at_once(client: Client, orders: Topic) -> None:
    resize(orders, 2)
    for queue in (2, QUEUES_MAX):
        refused = client.post(f"{orders.path}/messages", messages=[{"body": "a", "queue": queue}])
        assert refused.problem == (400, "InvalidField")
        assert refused.json["detail"] == f"field 'messages[0].queue' must be an integer from 0 to 1; it is {queue}"
    assert orders.details()["queue_offsets"][2]["end_offset"] == 0


def test_a_queue_leaves_when_its_time_is_over_and_not_before(orders: Topic, clock: Clock) -> None:
    resize(orders, 2)
    clock.sleep(UNWRITTEN_MS - 1)
    check(orders)
    assert read_queues(orders) == [0, 1, 2, 3]
    clock.sleep(1)
    check(orders)
    assert read_queues(orders) == [0, 1]
    assert "draining" not in orders.details()
    assert "draining" not in orders.client.get("/topics").json["topics"][0]


@pytest.mark.parametrize("queues", [0, -1])
def test_a_topic_keeps_one_queue(client: Client, orders: Topic, queues: int) -> None:
    assert client.put(orders.path, queues=queues).problem == (400, "InvalidField")
    assert orders.details()["queues"] == 4


def test_a_queue_that_a_zone_names_cannot_be_taken_away(client: Client, orders: Topic) -> None:
    assert client.put(orders.path, zones={"a": [0], "b": [3]}).status == 200
    before = orders.details()
    assert client.put(orders.path, queues=2).problem == (400, "InvalidField")
    assert orders.details() == before
    assert client.put(orders.path, queues=2, zones={"a": [0], "b": [1]}).json["draining"] == [2, 3]


def leased(group: Group) -> None:
    group.take_one()


def nacked(group: Group) -> None:
    group.nack(group.take_one(), delay_ms=DAY_MS)


def ready(group: Group) -> None:
    pass


HOLDS = [ready, leased, nacked]


@pytest.mark.parametrize("hold", HOLDS)
@pytest.mark.parametrize("settings", [{}, {"ordered": True}])
def test_a_queue_is_read_until_every_group_has_settled_it(orders: Topic, hold: Any, settings: Json) -> None:
    orders.produce("a", queue=3)
    done, slow = orders.group("done"), orders.group("slow", invisible_ms=12 * 60 * MINUTE_MS, **settings)
    done.ack(done.take_one())
    hold(slow)
    shrunk(orders, 2)
    assert orders.details()["draining"] == [2, 3]
    assert orders.client.put(orders.path, queues=4).problem == (409, "QueuesDraining")
    orders.client.clock.sleep(DAY_MS)
    slow.ack(slow.take_one())
    check(orders)
    assert read_queues(orders) == [0, 1]


def test_a_queue_is_read_while_its_retries_are_all_in_a_page(orders: Topic, clock: Clock) -> None:
    group = orders.group("billing")
    group.nack_into_a_page(DAY_MS, queue=3)
    shrunk(orders, 2)
    assert orders.details()["draining"] == [2, 3]
    clock.sleep(DAY_MS)
    assert len(group.drained()) == RETRY_PAGE_LEASES
    check(orders)
    assert read_queues(orders) == [0, 1]


def test_a_queue_is_read_until_every_broadcast_consumer_has_settled_it(orders: Topic) -> None:
    group = orders.group("everyone", mode="broadcast")
    orders.produce("a", queue=3)
    held = {name: group.take_one(consumer_id=name) for name in ("one", "two")}
    shrunk(orders, 2)
    group.ack(held["one"])
    check(orders)
    assert orders.details()["draining"] == [2, 3]
    group.ack(held["two"])
    check(orders)
    assert read_queues(orders) == [0, 1]


def test_a_queue_is_read_while_a_message_is_delayed_in_it(orders: Topic, clock: Clock) -> None:
    group = orders.group("billing")
    cancelled, *_ = orders.produce("cancelled", "later", queue=3, delay_ms=60 * MINUTE_MS)
    assert orders.client.delete(f"{orders.path}/delayed/{cancelled['message_id']}").status == 200
    shrunk(orders, 2, DELAYED_MS)
    assert orders.details()["draining"] == [2, 3]
    clock.sleep(60 * MINUTE_MS)
    group.ack(*group.take(1))
    check(orders)
    assert read_queues(orders) == [0, 1]


def test_a_queue_is_read_while_a_half_message_names_it(orders: Topic) -> None:
    half = orders.client.post(f"{orders.path}/transactions", messages=[{"body": "a", "queue": 3}]).json
    group = orders.group("billing")
    shrunk(orders, 2, DELAYED_MS)
    assert orders.details()["draining"] == [2, 3]
    commit = orders.client.post(f"{orders.path}/transactions/{half['transaction_id']}/commit")
    assert commit.json["messages"][0]["queue"] == 3
    group.ack(group.take_one())
    check(orders)
    assert read_queues(orders) == [0, 1]


@pytest.mark.parametrize("count", [1, 101])
def test_cancelled_delayed_messages_do_not_hold_their_queue(orders: Topic, count: int) -> None:
    for stored in orders.produce(*["cancelled"] * count, queue=3, delay_ms=DAY_MS):
        assert orders.client.delete(f"{orders.path}/delayed/{stored['message_id']}").status == 200
    shrunk(orders, 2, DELAYED_MS)
    assert read_queues(orders) == [0, 1]


@pytest.mark.parametrize("mode", ["clustering", "broadcast"])
def test_a_queue_leaves_for_good_although_an_expired_message_is_owed(client: Client, clock: Clock, mode: str) -> None:
    client.put("/topics/short", retention_ms=MINUTE_MS)
    short = Topic(client, "short")
    short.produce("a", queue=3)
    short.group("gone", mode=mode).take_one(consumer_id="one")
    shrunk(short, 2)
    assert short.details()["draining"] == [2, 3]
    clock.sleep(DAY_MS)
    for _ in range(3):
        check(short)
        assert read_queues(short) == [0, 1]


def test_a_queue_leaves_a_day_after_its_last_message_expired(client: Client, clock: Clock) -> None:
    client.put("/topics/short", retention_ms=MINUTE_MS)
    short = Topic(client, "short")
    short.produce("a", queue=3)
    short.group("gone")
    shrunk(short, 2)
    assert short.details()["draining"] == [2, 3]
    clock.sleep(DAY_MS)
    check(short)
    assert read_queues(short) == [0, 1]


def test_progress_tells_how_far_draining_queues_are(orders: Topic) -> None:
    orders.produce("a", "b", queue=3)
    group = orders.group("billing")
    shrunk(orders, 1)
    group.take_one()
    queue = group.queue(3)
    assert (queue["ready"], queue["in_flight"], queue["end_offset"]) == (1, 1, 2)
    assert group.totals() == (1, 1, 0, 0)
    assert orders.details()["queue_offsets"][3]["end_offset"] == 2


def test_what_holds_a_queue_is_said(client: Client, orders: Topic, clock: Clock) -> None:
    orders.group("slow")
    orders.produce("a", queue=3)
    resize(orders, 2)
    assert "on their way" in client.put(orders.path, queues=4).json["detail"]
    clock.sleep(UNWRITTEN_MS)
    detail = client.put(orders.path, queues=4).json["detail"]
    assert "queue 3 of topic 'orders'" in detail
    assert "'slow'" in detail


def test_it_may_shrink_further_while_it_drains(orders: Topic) -> None:
    resize(orders, 3)
    assert resize(orders, 1)["draining"] == [1, 2, 3]
    orders.client.clock.sleep(UNWRITTEN_MS + 1)
    check(orders)
    assert read_queues(orders) == [0]


# -- what has left ----------------------------------------------------------------------------------------------------


def emptied(orders: Topic) -> Group:
    """A group that has settled a message in queue 3, which has left."""
    group = orders.group("billing")
    orders.produce("old", queue=3)
    group.ack(group.take_one())
    shrunk(orders, 2)
    assert read_queues(orders) == [0, 1]
    return group


def test_messages_of_a_queue_that_left_are_found_until_they_expire(client: Client, orders: Topic) -> None:
    emptied(orders)
    [message] = orders.read()["messages"]
    assert (message["body"], message["queue"]) == ("old", 3)
    assert bodies(orders.read(queue=3, offset=0)["messages"]) == ["old"]
    assert client.get(f"{orders.path}/messages/{message['message_id']}").json["body"] == "old"
    assert orders.group("new").pop()["messages"] == []
    client.clock.sleep(3 * DAY_MS)
    assert orders.read()["messages"] == []


def test_a_queue_that_returns_goes_on_where_it_ended(orders: Topic, clock: Clock) -> None:
    group = emptied(orders)
    late = orders.group("late", start="latest")
    resize(orders, 4)
    assert [(made["queue"], made["offset"]) for made in orders.produce("new", queue=3)] == [(3, 1)]
    assert orders.produce("new", queue=2)[0]["offset"] == 0
    assert sorted(each["queue"] for _ in range(2) for each in group.take(1)) == [2, 3]
    assert sorted(each["queue"] for _ in range(2) for each in late.take(1)) == [2, 3]


def test_a_queue_may_leave_and_return_again_and_again(orders: Topic) -> None:
    group = orders.group("billing")
    for offset in range(4):
        assert orders.produce("a", queue=3)[0]["offset"] == offset
        group.ack(group.take_one())
        shrunk(orders, 2)
        assert read_queues(orders) == [0, 1]
        resize(orders, 4)
        shrunk(orders, 3, UNWRITTEN_MS)  # nothing was written to it since
        assert read_queues(orders) == [0, 1, 2]
        resize(orders, 4)


def test_dead_letters_of_a_queue_that_left_are_counted_and_redriven(orders: Topic, clock: Clock) -> None:
    group = orders.group("billing", max_attempts=1)
    orders.produce("bad", queue=2)
    group.nack(group.take_one())
    shrunk(orders, 2)
    clock.sleep(HOUR_MS)
    check(orders)  # and is to look at the topic no more
    assert group.totals() == (0, 0, 0, 1)
    letters = orders.client.get(f"{group.path}/dead").json["messages"]
    assert bodies(letters) == ["bad"]
    assert orders.client.post(f"{group.path}/dead/redrive").json == {"redriven": 1, "remaining": 0}
    check(orders)
    clock.sleep(METADATA_AGE_MS_MAX + 1)
    group.ack(group.take_one())
    check(orders)
    assert read_queues(orders) == [0, 1]


def test_a_topic_that_drains_can_be_deleted_and_made_again(client: Client, orders: Topic) -> None:
    emptied(orders)
    resize(orders, 1)
    orders.delete()
    kept = ("service", "agenda#check")
    remains = {pk: items for pk, items in client.store._items.items() if items and not pk.startswith(kept)}
    assert [pk.split("#")[2] for pk in sorted(remains)] == ["0", "1", "2", "3"]
    assert all(item["closed"] and not item["entries"] for items in remains.values() for item in items.values())
    again = client.topic("orders", queues=4)
    assert again.produce("new", queue=3)[0]["offset"] == 0


def test_an_instance_that_lets_a_queue_return_reads_it_at_once(client: Client, clock: Clock) -> None:
    """Though it has looked at the topic without that queue for the same answer."""
    topic = client.topic("orders", queues=2)
    group = topic.group("billing", invisible_ms=1_000)
    topic.produce("a", queue=1)
    group.drained()
    client.put(topic.path, queues=1)
    clock.sleep(UNWRITTEN_MS)
    assert client.put(topic.path, queues=2).status == 200
    group.seen_by(client.another()).reset("earliest")
    assert bodies(group.pop()["messages"]) == ["a"]
