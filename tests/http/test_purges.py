"""A reset to `now`: what was sent before it does not come, whether it is stored by then or still waits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from chalicelib.core.base.limits import CLOCKS_APART_MS, HEARD_MS, IDLE_CONSUMER_MS
from chalicelib.core.consuming.pop import PROMOTED_QUEUES_MAX
from chalicelib.core.delays.decision import PROMOTED_MAX
from chalicelib.core.delays.delayed_messages import Waiting
from chalicelib.core.log.segment import Entry
from tests.support.client import Client, Group, Json, Topic, bodies
from tests.support.clock import START_MS, Clock
from tests.support.troubled_store import TroubledStore

LATER_MS = 60_000


def drained(group: Group, max_messages: int = 256, **fields: Any) -> list[str]:
    got: list[Json] = []
    while messages := group.pop(max_messages=max_messages, **fields)["messages"]:
        group.ack(*messages)
        got += messages
    return bodies(got)


def begin(topic: Topic, *messages: str) -> str:
    begun = topic.client.post(f"{topic.path}/transactions", messages=[{"body": body} for body in messages])
    transaction_id: str = begun.json["transaction_id"]
    return transaction_id


def commit(topic: Topic, transaction_id: str) -> None:
    assert topic.client.post(f"{topic.path}/transactions/{transaction_id}/commit").status == 200


def test_what_is_stored_or_waits_is_gone_for_this_group_alone(topic: Topic, clock: Clock) -> None:
    group, other = topic.group("purged"), topic.group("other")
    topic.produce("stored")
    topic.produce("delayed", delay_ms=LATER_MS)
    begun = begin(topic, "half")
    group.reset("now")
    topic.produce("after")
    topic.produce("delayed after", delay_ms=LATER_MS)
    after = begin(topic, "half after")
    clock.sleep(LATER_MS)
    commit(topic, begun)
    commit(topic, after)
    assert sorted(drained(group)) == ["after", "delayed after", "half after"]
    assert group.totals() == (0, 0, 0, 0)
    assert sorted(drained(other)) == ["after", "delayed", "delayed after", "half", "half after", "stored"]


@pytest.mark.parametrize("size", [1, 900, 2_000])
def test_what_comes_into_the_log_together_is_told_apart(topic: Topic, clock: Clock, size: int) -> None:
    group, due_ms = topic.group("purged"), START_MS + LATER_MS
    for before, after in ("ab", "cd"):
        topic.produce(before * size, deliver_at_ms=due_ms)
        group.reset("now")
        topic.produce(after * size, deliver_at_ms=due_ms)
    clock.sleep(LATER_MS)
    assert [body[0] for body in drained(group)] == ["d"]


def test_a_pop_goes_on_past_queues_where_all_that_is_due_was_purged(client: Client, clock: Clock) -> None:
    topic = client.topic("wide", queues=3)
    group = topic.group("purged")
    for queue, count in enumerate((PROMOTED_QUEUES_MAX * PROMOTED_MAX, 1, 1)):
        topic.produce(*["before"] * count, delay_ms=LATER_MS + queue, queue=queue)
    group.reset("now")
    topic.produce("after", delay_ms=LATER_MS + 3, queue=2)
    clock.sleep(LATER_MS + 3)
    assert bodies(group.pop()["messages"]) == ["after"]


def test_one_message_at_a_time_comes_from_between_purged_ones(topic: Topic, clock: Clock) -> None:
    group = topic.group("purged")
    for number in range(40):
        topic.produce(f"before {number}", delay_ms=LATER_MS)
    group.reset("now")
    for number in range(40):
        topic.produce(f"after {number}", delay_ms=LATER_MS - clock.ms % LATER_MS)
    clock.sleep(LATER_MS)
    assert sorted(drained(group, max_messages=1)) == sorted(f"after {number}" for number in range(40))


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("wanted", [None, {"tags": ["paid"]}])
def test_groups_of_every_kind_are_purged(topic: Topic, clock: Clock, ordered: bool, wanted: Json | None) -> None:
    group = topic.group("purged", ordered=ordered, filter=wanted)
    topic.produce("before", delay_ms=LATER_MS, tag="paid")
    group.reset("now")
    topic.produce("after", delay_ms=LATER_MS, tag="paid")
    clock.sleep(2 * LATER_MS)
    assert drained(group) == ["after"]


def test_every_consumer_of_a_broadcast_group_is_purged(topic: Topic, clock: Clock) -> None:
    group = topic.group("purged", mode="broadcast")
    topic.produce("first")
    for consumer_id in ("ann", "bob"):
        group.take_one(consumer_id=consumer_id)
    topic.produce("before", delay_ms=LATER_MS)
    topic.produce("stored")
    group.reset("now")
    topic.produce("after", delay_ms=LATER_MS)
    clock.sleep(2 * LATER_MS)
    for consumer_id in ("ann", "bob"):
        assert drained(group, consumer_id=consumer_id) == ["after"]


@pytest.mark.parametrize("lifted", [False, True])
def test_who_returns_to_dead_letters_gets_what_a_new_consumer_gets(client: Client, clock: Clock, lifted: bool) -> None:
    """A cursor that counts dead letters stays when its consumer is forgotten."""
    topic = client.topic("kept")
    assert client.put(topic.path, retention_ms=4 * IDLE_CONSUMER_MS).status == 200
    group = topic.group("purged", mode="broadcast")
    topic.produce("dead", "stored")
    topic.produce("waits", delay_ms=2 * IDLE_CONSUMER_MS)
    dead = group.take_one(consumer_id="ann")
    group._post("bury", receipts=[dead["receipt"]])
    if lifted:
        group.reset("now")
    clock.sleep(IDLE_CONSUMER_MS + 1)
    client.api.service.sweeps.expire()
    group.reset("earliest" if lifted else "now")
    clock.sleep(IDLE_CONSUMER_MS)
    expected = ["dead", "stored", "waits"] if lifted else ["dead", "stored"]
    assert drained(group, consumer_id="new") == drained(group, consumer_id="ann") == expected


def test_a_queue_that_is_added_later_is_purged_too(client: Client, clock: Clock) -> None:
    topic = client.topic("wide", queues=1)
    group = topic.group("purged")
    begun = [begin(topic, f"half {number}") for number in range(20)]
    group.reset("now")
    assert client.put(topic.path, queues=4).status == 200
    clock.sleep(HEARD_MS)
    for transaction_id in begun:
        commit(topic, transaction_id)
    assert {message["queue"] for message in topic.read()["messages"]} & {1, 2, 3}
    assert drained(group) == []


@pytest.mark.parametrize("place", [{"delay_ms": LATER_MS}, {"queue": 1}])
def test_what_was_sent_just_before_where_nothing_was_known_is_purged(topic: Topic, clock: Clock, place: Json) -> None:
    """By an instance that has read the topic before it had a delayed message, or this queue."""
    group = topic.group("purged")
    topic.produce("known")
    other = Topic(topic.client.another(), topic.name)
    assert other.client.put(topic.path, queues=2).status == 200
    other.produce("before", **place)
    group.reset("now")
    clock.sleep(LATER_MS)
    assert drained(group) == []


def test_purging_again_and_again_does_no_harm(topic: Topic, clock: Clock) -> None:
    group = topic.group("purged")
    topic.produce("a", delay_ms=LATER_MS)
    answers = [group.reset("now") for _ in range(3)]
    assert [answer["purged_at_ms"] for answer in answers] == sorted({answer["purged_at_ms"] for answer in answers})
    topic.produce("b", delay_ms=LATER_MS)
    clock.sleep(2 * LATER_MS)
    assert drained(group) == ["b"]


def test_another_reset_lifts_the_purge(topic: Topic, clock: Clock) -> None:
    group = topic.group("purged")
    topic.produce("stored")
    topic.produce("delayed", delay_ms=LATER_MS)
    assert group.reset("now")["purged_at_ms"] is not None
    assert group.reset("earliest")["purged_at_ms"] is None
    clock.sleep(LATER_MS)
    assert drained(group) == ["stored", "delayed"]


@pytest.mark.parametrize("consumer_id", [None, "ann"])
def test_a_reset_of_one_queue_lifts_the_purge_there(client: Client, clock: Clock, consumer_id: str | None) -> None:
    topic = client.topic("wide", queues=2)
    group = topic.group("purged", mode="broadcast" if consumer_id else "clustering")
    topic.produce("taken", queue=1)
    assert drained(group, consumer_id=consumer_id) == ["taken"]
    for queue in (0, 1):
        topic.produce(str(queue), queue=queue, delay_ms=LATER_MS)
    group.reset("now")
    group.reset({"queue": 1, "offset": 1})
    clock.sleep(LATER_MS)
    assert drained(group, consumer_id=consumer_id) == ["1"]


def test_dead_letters_stay_and_can_be_redriven(topic: Topic, clock: Clock) -> None:
    group = topic.group("purged", max_attempts=1)
    topic.produce("a", delay_ms=1_000)
    clock.sleep(1_000)
    group.nack(group.take_one())
    group.reset("now")
    assert group.totals() == (0, 0, 0, 1)
    assert group.client.post(f"{group.path}/dead/redrive").status == 200
    assert drained(group) == ["a"]


# -- clocks that differ -----------------------------------------------------------------------------------------------


def test_what_a_fast_clock_sent_before_the_purge_does_not_come(topic: Topic, clock: Clock) -> None:
    group = topic.group("purged")
    topic.produce("before", delay_ms=LATER_MS)
    clock.set_back_ms = CLOCKS_APART_MS
    group.reset("now")
    clock.sleep(2 * LATER_MS)
    assert drained(group) == []


def test_what_a_slow_clock_sends_after_the_purge_comes(topic: Topic, clock: Clock) -> None:
    group = topic.group("purged")
    topic.produce("before", delay_ms=LATER_MS)
    for _ in range(2):
        group.reset("now")
    clock.set_back_ms = CLOCKS_APART_MS
    topic.produce("after", delay_ms=LATER_MS)
    clock.sleep(2 * LATER_MS)
    assert drained(group) == ["after"]


def test_a_purge_of_a_topic_where_nothing_waits_is_not_held_up(topic: Topic, clock: Clock) -> None:
    group = topic.group("purged")
    topic.produce("a")
    group.reset("now")
    assert (clock.slept, drained(group)) == ([], [])
    clock.set_back_ms = CLOCKS_APART_MS
    topic.produce("b", delay_ms=1)
    clock.sleep(1)
    assert drained(group) == ["b"]


def test_what_was_sent_before_a_release_that_notes_it_comes(
    topic: Topic, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def packed(waiting: Waiting, now: int) -> Entry:
        return Entry.packed(waiting.entry_id, [replace(waiting.message, delayed_id=waiting.message_id)], now)

    group = topic.group("purged")
    with monkeypatch.context() as old:
        old.setattr(Waiting, "packed", packed)
        topic.produce("old", delay_ms=LATER_MS)
    group.reset("now")
    clock.sleep(LATER_MS)
    assert drained(group) == ["old"]


# -- two at once, and lost replies ------------------------------------------------------------------------------------


def with_one_taken(clock: Clock) -> tuple[TroubledStore, Topic, Group, Client]:
    """A topic and a group that has taken its only message, and a client of another instance."""
    store = TroubledStore()
    client = Client(store, clock)
    topic, other = client.topic("orders"), client.another()
    group = topic.group("purged")
    topic.produce("first")
    group.take_one()
    return store, topic, group, other


@pytest.mark.parametrize("meets", ["read", "write"])
@pytest.mark.parametrize("waits", [True, False])
def test_a_purge_does_not_bring_back_what_a_later_one_has_purged(clock: Clock, waits: bool, meets: str) -> None:
    store, topic, group, other = with_one_taken(clock)
    if waits:
        begin(topic, "half")

    def purge_before_it(verb: str, about: Any) -> None:
        if verb == meets and "cursor#" in repr(about):
            store.before = lambda *_: None
            topic.produce("between")
            group.seen_by(other).reset("now")

    store.before = purge_before_it
    group.reset("now")
    assert drained(group) == []


@pytest.mark.parametrize("waits", [True, False])
def test_a_purge_by_a_clock_behind_purges_though_a_reset_lifted_one(clock: Clock, waits: bool) -> None:
    """The earlier purge moves the cursors after that reset."""
    store, topic, group, other = with_one_taken(clock)
    if waits:
        begin(topic, "half")

    def purge() -> None:
        topic.produce("between")
        clock.set_back_ms = CLOCKS_APART_MS - 50
        group.seen_by(other).reset("now")
        clock.set_back_ms = 0

    def reset_before_it(verb: str, about: Any) -> None:
        if verb == "read" and "cursor#" in repr(about):
            store.before = lambda *_: None
            group.seen_by(other).reset("latest")
            if waits:
                clock.at(clock.ms + 1, purge)

    store.before = reset_before_it
    group.reset("now")
    if not waits:
        purge()
    assert drained(group) == []


def test_a_purge_that_meets_an_earlier_one_purges_what_came_between(clock: Clock) -> None:
    store, topic, group, other = with_one_taken(clock)
    earlier: list[Any] = []

    def purge_around_it(verb: str, about: Any) -> None:
        if verb != "write" or not about.key.sk.startswith("cursor#"):
            return
        if earlier:
            store.before = lambda *_: None
            store.write(earlier[0])
        else:
            earlier.append(about)
            topic.produce("between")
            group.seen_by(other).reset("now")

    store.before = purge_around_it
    group.reset("now")
    assert drained(group) == []


@pytest.mark.parametrize("meets", ["settings", "cursor#"])
def test_a_purge_is_repeated_when_its_reply_was_lost(clock: Clock, meets: str) -> None:
    store = TroubledStore()
    topic = Client(store, clock).topic("orders")
    group = topic.group("purged")
    topic.produce("stored")
    topic.produce("waiting", delay_ms=LATER_MS)

    def lost(verb: str, about: Any) -> Exception | None:
        if verb == "write" and meets in about.key.sk:
            store.after = lambda *_: None
            return OSError("the instance dies")
        return None

    store.after = lost
    assert topic.client.post(f"{group.path}/reset", to="now").status == 500
    assert topic.client.post(f"{group.path}/reset", to="now").status == 200
    topic.produce("after")
    clock.sleep(LATER_MS)
    assert drained(group) == ["after"]
