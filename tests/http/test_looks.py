"""Topics with many queues: a pop looks at a few of them first, and the cursors of a group are in several pages."""

from __future__ import annotations

from typing import Any

import pytest

from chalicelib.core.base.errors import StoreUnavailable
from chalicelib.core.base.limits import IDLE_CONSUMER_MS, SECOND_MS, STORE_DEADLINE_MS
from chalicelib.core.consuming.pop import LOOKED_AT
from chalicelib.core.store import Keys
from chalicelib.core.table import keys
from tests.support.client import EMPTY, Client, Group, Json, Topic, bodies, failed
from tests.support.clock import START_MS, Clock
from tests.support.troubled_store import Trouble, TroubledStore, unavailable

QUEUES = 40
"""Three pages, the last of them not full."""
SOME = (0, 15, 16, 31, 32, 39)
"""The first and the last queue of each page."""
HOT = 5


@pytest.fixture
def topic(client: Client) -> Topic:
    return client.topic("orders", queues=QUEUES)


def in_each(topic: Topic, queues: Any = range(QUEUES)) -> list[str]:
    """The bodies of a message in each of these queues."""
    for queue in queues:
        topic.produce(f"{queue}", queue=queue)
    return [f"{queue}" for queue in queues]


def drained(group: Group, **fields: Any) -> list[str]:
    """The bodies of all that it gives, sorted, and acked."""
    got: list[str] = []
    while messages := group.pop(**fields)["messages"]:
        group.ack(*messages)
        got += bodies(messages)
    return sorted(got, key=int)


def partitions(client: Client) -> set[str]:
    """The partitions of groups that hold something."""
    return {pk for pk, held in client.store._items.items() if pk.startswith("group#") and held}


# -- what a pop finds -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("queues", [LOOKED_AT + 1, 16, 17, 128])
def test_none_means_that_no_queue_has_a_message(client: Client, queues: int) -> None:
    topic = client.topic("many", queues=queues)
    group = topic.group("billing")
    for queue in range(queues):
        topic.produce("x", queue=queue)
        group.ack(group.take_one())
        assert group.pop() == EMPTY


def test_every_message_is_delivered_once(topic: Topic, group: Group) -> None:
    sent = in_each(topic)
    assert drained(group) == sent


@pytest.mark.parametrize("settings", [{}, {"ordered": True}, {"ordered": "key"}, {"rate_limit": 1_000}])
@pytest.mark.parametrize("queue", SOME)
def test_a_lease_that_ran_out_is_found(topic: Topic, clock: Clock, settings: Json, queue: int) -> None:
    group = topic.group("billing", **settings)
    topic.produce("a", queue=queue)
    group.take_one(invisible_ms=1_000)
    assert group.pop() == EMPTY
    clock.sleep(1_000)
    assert group.take_one()["attempt"] == 2


@pytest.mark.parametrize("queue", SOME)
def test_what_becomes_due_ends_a_wait_when_it_is_due(topic: Topic, group: Group, clock: Clock, queue: int) -> None:
    topic.produce("a", queue=queue)
    group.nack(group.take_one(), delay_ms=7_001)
    assert bodies(group.pop(wait_ms=20_000)["messages"]) == ["a"]
    assert clock.now() == START_MS + 7_001
    topic.produce("b", queue=queue, delay_ms=7_001)
    assert bodies(group.pop(wait_ms=20_000)["messages"]) == ["b"]
    assert clock.now() == START_MS + 2 * 7_001


def test_retries_in_a_page_of_their_own_are_found(topic: Topic, group: Group, clock: Clock) -> None:
    group.nack_into_a_page(60_000, queue=QUEUES - 1)
    clock.sleep(60_000)
    assert len(group.pop()["messages"]) == 10


def test_a_wait_ends_at_once_when_the_same_instance_stores_a_message(topic: Topic, group: Group, clock: Clock) -> None:
    clock.at(START_MS + 7_001, lambda: topic.produce("a", queue=33))
    assert bodies(group.pop(wait_ms=20_000)["messages"]) == ["a"]
    assert clock.now() == START_MS + 7_001


def test_a_wait_finds_what_another_instance_stores_in_any_queue(topic: Topic, group: Group, clock: Clock) -> None:
    other = Topic(topic.client.another(), topic.name)
    for queue in SOME:
        stored_ms = clock.now() + 5_001
        clock.at(stored_ms, lambda: other.produce("a", queue=queue))  # noqa: B023
        group.ack(group.take_one(wait_ms=20_000))
        assert clock.now() - stored_ms <= 6 * SECOND_MS


def test_no_queue_waits_while_others_are_never_empty(topic: Topic, group: Group, clock: Clock) -> None:
    """The consumer gets a full batch each time, and does not stay where it got it."""
    in_each(topic)
    got: set[int] = set()
    for _ in range(4 * QUEUES):
        topic.produce(*"abcd", queue=HOT)
        clock.sleep(10)
        messages = group.take(1)
        group.ack(*messages)
        got.add(messages[0]["queue"])
    assert got == {*range(QUEUES)}


def test_a_pop_with_fill_takes_from_as_many_queues_as_it_needs(topic: Topic, group: Group) -> None:
    sent = in_each(topic)
    assert sorted(bodies(group.take(QUEUES, fill=True)), key=int) == sent


def test_a_cap_in_one_queue_is_told_only_with_none(topic: Topic) -> None:
    group = topic.group("capped", max_in_flight=1)
    topic.produce("a", "b", queue=HOT)
    group.take_one(invisible_ms=60_000)
    for queue in SOME:
        topic.produce("c", queue=queue)
        answer = group.pop(max_messages=1)
        assert (bodies(answer["messages"]), answer.get("limited")) == (["c"], None)
        group.ack(*answer["messages"])
        assert group.pop() == {**EMPTY, "limited": "in_flight"}


@pytest.mark.parametrize("queue", SOME)
def test_an_attempt_is_repeated_whichever_queue_it_took_from(topic: Topic, group: Group, queue: int) -> None:
    topic.produce("a", queue=queue)
    first = group.take_one(attempt_id="x")
    topic.produce("b", queue=0)
    assert group.seen_by(topic.client.another()).take_one(attempt_id="x") == first


def test_a_pop_settles_the_acks_that_it_carries_in_any_queue(topic: Topic, group: Group) -> None:
    in_each(topic)
    receipts: list[str] = []
    for _ in range(QUEUES):
        answer = group.pop(max_messages=1, ack=receipts)
        assert answer["failed"] == []
        receipts = [message["receipt"] for message in answer["messages"]]
    group.ack(*receipts)
    assert group.totals() == (0, 0, 0, 0)


# -- pages of cursors -------------------------------------------------------------------------------------------------


def test_cursors_beyond_sixteen_queues_do_not_share_a_partition(client: Client, topic: Topic, group: Group) -> None:
    in_each(topic)
    drained(group)
    assert len(partitions(client)) == 3


@pytest.mark.parametrize("start", ["earliest", "latest"])
def test_pages_where_nothing_was_claimed_are_at_the_start(topic: Topic, start: str) -> None:
    in_each(topic)
    group = topic.group("late", start=start)
    waiting = QUEUES if start == "earliest" else 0
    assert group.totals() == (waiting, 0, 0, 0)
    assert len(drained(group)) == waiting
    assert group.totals() == (0, 0, 0, 0)


@pytest.mark.parametrize("to", ["earliest", "now", "latest"])
def test_a_reset_moves_the_cursors_of_all_pages(topic: Topic, group: Group, to: str) -> None:
    sent = in_each(topic)
    held = group.take_one()
    drained(group)
    in_each(topic)
    group.reset(to)
    assert failed(group.ack(held)) == ["LeaseLost"]
    assert drained(group) == sorted([*sent, *sent] if to == "earliest" else [], key=int)


def test_a_deleted_group_leaves_no_page(client: Client, topic: Topic, group: Group) -> None:
    in_each(topic)
    drained(group)
    group.delete()
    assert partitions(client) == set()
    assert client.post(f"{group.path}/pop").problem == (404, "GroupNotFound")


def test_a_deleted_topic_leaves_no_page(client: Client, topic: Topic, group: Group) -> None:
    in_each(topic)
    drained(group)
    topic.delete()
    assert partitions(client) == set()


@pytest.mark.parametrize("queue", SOME)
def test_no_instance_takes_from_a_deleted_group_where_nothing_was_claimed(
    client: Client, topic: Topic, group: Group, queue: int
) -> None:
    other = client.another()
    group.seen_by(other).pop()
    topic.produce("a", queue=queue)
    group.delete()
    assert other.post(f"{group.path}/pop").problem == (404, "GroupNotFound")
    assert partitions(client) == set()


@pytest.mark.parametrize("queue", SOME)
def test_another_instance_knows_of_a_pause_half_a_second_later(
    client: Client, topic: Topic, group: Group, clock: Clock, queue: int
) -> None:
    topic.produce("a", queue=queue)
    group.nack(group.take_one(), delay_ms=0)  # so that there is a cursor
    other = group.seen_by(client.another())
    assert failed(other.nack(other.take_one(), delay_ms=0)) == []
    group.change(paused=True)
    clock.sleep(SECOND_MS // 2 + 1)
    assert other.pop()["messages"] == []


def test_every_consumer_of_a_broadcast_group_gets_all_pages(topic: Topic, clock: Clock) -> None:
    group = topic.group("everyone", mode="broadcast")
    sent = in_each(topic)
    for consumer in "ab":
        assert drained(group, consumer_id=consumer) == sent
    clock.sleep(IDLE_CONSUMER_MS // 2)
    topic.produce("7", queue=QUEUES - 1)
    assert drained(group, consumer_id="a") == ["7"]
    clock.sleep(IDLE_CONSUMER_MS // 2 + 1)  # b is forgotten, and a is not, though most of its cursors are as old
    assert drained(group, consumer_id="a") == []
    assert group.totals() == (0, 0, 0, 0)


def test_the_breaker_counts_the_messages_of_all_pages(client: Client, topic: Topic, group: Group) -> None:
    assert client.put(topic.path, max_depth=1).status == 200
    in_each(topic)
    answer = client.post(f"{topic.path}/messages", messages=[{"body": "a", "queue": QUEUES - 1}])
    assert answer.status == 429
    drained(group)
    client.clock.sleep(SECOND_MS)
    topic.produce("a", queue=QUEUES - 1)


def test_a_queue_of_another_page_leaves_when_it_is_settled(topic: Topic, group: Group, client: Client) -> None:
    in_each(topic)
    assert client.put(topic.path, queues=16).status == 200
    assert sorted(bodies(group.drained()), key=int) == [f"{queue}" for queue in range(QUEUES)]
    client.clock.sleep(3_600_000)
    client.api.service.sweeps.check()
    assert "draining" not in topic.details()


# -- queues that cannot be read ---------------------------------------------------------------------------------------


def unreadable(clock: Clock, queue: int, took_ms: int = 0) -> Trouble:
    """Reads of the log of this queue fail, each after so long."""

    def trouble(verb: str, about: Any) -> Exception | None:
        if verb != "read":
            return None
        asked = [key.pk for read in about for key in (read.keys if isinstance(read, Keys) else [read])]
        hit = [pk for pk in asked if pk.startswith("log#") and int(pk.split("#")[2]) == queue]
        if hit:
            clock.sleep(took_ms)
        return StoreUnavailable("the store throttled") if hit else None

    return trouble


@pytest.fixture(params=[4, QUEUES])
def scene(request: pytest.FixtureRequest, client: Client) -> Group:
    return client.topic("troubled", queues=request.param).group("billing")


def test_a_log_that_cannot_be_read_does_not_keep_the_others_back(
    scene: Group, store: TroubledStore, clock: Clock
) -> None:
    sent = in_each(scene.topic, range(len(scene.progress()["queues"])))
    store.before = unreadable(clock, 2)
    got = [scene.take_one(invisible_ms=60_000) for _ in range(len(sent) - 1)]
    assert {each["queue"] for each in got} == {queue for queue in range(len(sent)) if queue != 2}
    assert scene.client.post(f"{scene.path}/pop").problem == (503, "StoreUnavailable")
    store.before = unavailable()
    assert scene.take_one()["queue"] == 2


def test_a_pop_fails_if_nothing_else_is_there(scene: Group, store: TroubledStore, clock: Clock) -> None:
    scene.pop()
    store.before = unreadable(clock, 1)
    assert scene.client.post(f"{scene.path}/pop").problem == (503, "StoreUnavailable")
    clock.at(clock.now() + 3_000, lambda: setattr(store, "before", unavailable()))
    assert scene.pop(wait_ms=5_000) == EMPTY


def test_a_pop_does_not_wait_for_a_log_that_is_slow_to_fail(scene: Group, store: TroubledStore, clock: Clock) -> None:
    scene.topic.produce("a", queue=1)
    scene.pop(max_messages=1, invisible_ms=0)
    store.before = unreadable(clock, 2, took_ms=100)
    began_ms = clock.now()
    assert scene.take_one()["queue"] == 1
    assert clock.now() - began_ms < STORE_DEADLINE_MS // 4


def test_a_due_retry_of_a_queue_whose_log_cannot_be_read_is_left(
    scene: Group, store: TroubledStore, clock: Clock
) -> None:
    for queue in (1, 3):
        scene.topic.produce("a", queue=queue)
        scene.take_one(invisible_ms=0)
    store.before = unreadable(clock, 3)
    assert scene.take_one()["queue"] == 1
    assert scene.client.post(f"{scene.path}/pop").problem == (503, "StoreUnavailable")


def test_a_wait_looks_no_more_often_for_what_it_cannot_read(scene: Group, store: TroubledStore, clock: Clock) -> None:
    """A lease that has run out there would end each rest."""
    scene.topic.produce("a", queue=3)
    scene.take_one(invisible_ms=1_000)
    seen: list[str] = []
    fails = unreadable(clock, 3)

    def noted(verb: str, about: Any) -> Exception | None:
        seen.append(verb)
        return fails(verb, about)

    store.before = noted
    assert scene.client.post(f"{scene.path}/pop", wait_ms=5_000).problem == (503, "StoreUnavailable")
    assert len(seen) < 500


def test_a_page_that_cannot_be_read_fails_the_pop(scene: Group, store: TroubledStore) -> None:
    scene.topic.produce("a", queue=1)
    page = keys.group_partition(scene.client.api.service.env.catalogue.topic("troubled").id, "billing")

    def trouble(verb: str, about: Any) -> Exception | None:
        is_page = verb == "read" and any(getattr(read, "pk", "") == page for read in about)
        return StoreUnavailable("the store throttled") if is_page else None

    store.before = trouble
    assert scene.client.post(f"{scene.path}/pop").problem == (503, "StoreUnavailable")
