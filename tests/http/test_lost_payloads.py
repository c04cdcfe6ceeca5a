"""A payload is gone, or cannot be read for a while: one message is lost, or comes later, and no other."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import pytest

from chalicelib.core.base.errors import StoreUnavailable
from chalicelib.core.base.limits import HOUR_MS, INLINE_BYTES_MAX, READ_TIMEOUT_MS, TAKEOVERS_MAX
from chalicelib.core.consuming.claim import UNREADABLE_MS
from chalicelib.core.log import payloads
from chalicelib.core.log.segment import PIECE_BYTES_MAX
from chalicelib.core.store import Keys, Read
from chalicelib.core.table.writes import Item
from local.memory.store import MemoryStore
from tests.support.client import Client, Group, Topic, bodies, offsets
from tests.support.orders import noise

REASON = "the message was lost: its payload is gone from the store, or damaged"


class Payloads(MemoryStore):
    """Loses payloads, or does not answer reads of them."""

    is_failing = False
    fail_alone: Collection[str] = ()
    """Partitions that do not answer."""
    fails: Callable[[], object] = staticmethod(lambda: None)
    """Runs just before a read fails."""

    def lose(self, place: int) -> None:
        """The payload that was stored n-th, from 0 on."""
        if self._blobs:
            del self._blobs[list(self._blobs)[place]]
        else:
            del self._items[self.payloads[place]]

    @property
    def payloads(self) -> list[str]:
        """The partitions with payloads, in the order of their messages."""
        return [pk for pk in self._items if pk.startswith("payload#")]

    def read(self, reads: Sequence[Read]) -> list[list[Item]]:
        asked = {key.pk for read in reads if isinstance(read, Keys) for key in read.keys}
        if asked & {*self.fail_alone} or (self.is_failing and any(pk.startswith("payload#") for pk in asked)):
            self.fails()
            raise StoreUnavailable("the payloads are throttled")
        return super().read(reads)


def unavailable(_writes: object) -> None:
    raise StoreUnavailable("writes are throttled")


@pytest.fixture
def store() -> Payloads:
    return Payloads()


@pytest.fixture
def client(store: Payloads) -> Client:
    return Client(store)


@pytest.fixture
def topic(client: Client) -> Topic:
    return client.topic("t")


@pytest.fixture
def fresh(client: Client) -> Client:
    """An instance that keeps no payload yet."""
    return client.another()


def produce(topic: Topic, count: int = 3, size: int = 2 * INLINE_BYTES_MAX, **fields: Any) -> list[str]:
    sent = noise(count, size)
    for body in sent:
        topic.produce(body, **fields)
        topic.client.clock.ms += 1
    return sent


def dead(group: Group) -> list[dict[str, Any]]:
    answer = group.client.get(f"{group.path}/dead")
    assert answer.status == 200
    found: list[dict[str, Any]] = answer.json["messages"]
    return found


@pytest.mark.parametrize("settings", [{}, {"ordered": True}, {"filter": {"expression": "tag == 'x'"}}])
def test_the_others_are_delivered_and_the_lost_one_is_dead(
    topic: Topic, store: Payloads, fresh: Client, settings: dict[str, Any]
) -> None:
    group = topic.group("g", **settings).seen_by(fresh)
    sent = produce(topic, tag="x")
    store.lose(1)
    assert bodies(group.pop()["messages"]) == [sent[0], sent[2]]
    assert group.totals() == (0, 2, 0, 1)
    [letter] = dead(group)
    assert (letter["offset"], letter["reason"], letter["attempts"], letter["body"]) == (1, REASON, 1, "")


def test_a_lost_one_moves_with_a_word_about_it_where_dead_messages_move(
    topic: Topic, store: Payloads, fresh: Client
) -> None:
    graves = topic.client.topic("graves")
    group = topic.group("g", dead_letters={"topic": "graves"}).seen_by(fresh)
    reader = graves.group("reader").seen_by(fresh)
    sent = produce(topic)
    store.lose(1)
    assert bodies(group.pop()["messages"]) == [sent[0], sent[2]]
    assert group.totals() == (0, 2, 0, 0)
    [moved] = reader.take(1)
    told = moved["properties"]
    assert (moved["body"], told["sqs:origin"], told["decant.reason"]) == (
        "the content of this message was lost",
        "0:1",
        REASON,
    )


def test_a_payload_that_cannot_be_decoded_is_lost_too(topic: Topic, store: Payloads, fresh: Client) -> None:
    group = topic.group("g").seen_by(fresh)
    sent = produce(topic)
    damaged = [items for pk, items in store._items.items() if pk.startswith("payload#")][1]
    damaged.update({sk: {**item, "data": b"\x00damaged"} for sk, item in damaged.items()})
    assert bodies(group.pop()["messages"]) == [sent[0], sent[2]]
    assert [(letter["offset"], letter["reason"]) for letter in dead(group)] == [(1, REASON)]


def test_a_pop_that_meets_nothing_but_lost_messages_takes_what_comes_after(
    topic: Topic, store: Payloads, fresh: Client
) -> None:
    group = topic.group("g", ordered=True).seen_by(fresh)
    sent = produce(topic)
    store.lose(0)
    store.lose(0)
    assert bodies(group.take(1)) == [sent[2]]
    assert offsets(dead(group)) == [0, 1]


def test_a_lost_body_in_the_bucket_is_dead_too() -> None:
    store = Payloads(keeps_blobs=True)
    topic = Client(store).topic("t")
    group = topic.group("g").seen_by(Client(store, topic.client.clock, 2))
    sent = produce(topic, count=2, size=2 * PIECE_BYTES_MAX)
    store.lose(0)
    assert bodies(group.pop()["messages"]) == [sent[1]]
    assert [letter["reason"] for letter in dead(group)] == [REASON]


def test_a_lost_message_that_is_redriven_dies_again(topic: Topic, store: Payloads, fresh: Client) -> None:
    group = topic.group("g").seen_by(fresh)
    produce(topic, count=1)
    store.lose(0)
    assert group.pop()["messages"] == []
    assert fresh.post(f"{group.path}/dead/redrive").json == {"redriven": 1, "remaining": 0}
    assert group.pop()["messages"] == []
    assert group.totals() == (0, 0, 0, 1)


def test_look_ups_leave_a_lost_message_out(topic: Topic, store: Payloads, fresh: Client) -> None:
    sent = produce(topic)
    lost_id = topic.read()["messages"][1]["message_id"]
    store.lose(1)
    seen = Topic(fresh, "t")
    assert bodies(seen.read()["messages"]) == [sent[0], sent[2]]
    first = seen.read(limit=2)
    assert bodies(first["messages"]) == [sent[0]]
    assert bodies(seen.read(next=first["next"])["messages"]) == [sent[2]]
    assert fresh.get(f"/topics/t/messages/{lost_id}").problem == (404, "MessageNotFound")


def test_a_delayed_message_without_its_payload_does_not_block_the_others(
    topic: Topic, store: Payloads, fresh: Client
) -> None:
    group = topic.group("g").seen_by(fresh)
    sent = produce(topic, delay_ms=1_000)
    small = produce(topic, count=1, size=10, delay_ms=1_000)
    store.lose(1)
    listed = fresh.get("/topics/t/delayed").json
    assert (bodies(listed["messages"]), listed["next"]) == ([sent[0], sent[2], *small], None)
    topic.client.clock.ms += 1_000
    taken = [each for _ in range(4) for each in bodies(group.pop()["messages"])]
    assert sorted(taken) == sorted([sent[0], sent[2], *small])
    assert [letter["reason"] for letter in dead(group)] == [REASON]


@pytest.mark.parametrize("is_made_again", [False, True])
def test_an_instance_with_a_stale_cache_of_a_deleted_topic_buries_nothing(
    topic: Topic, store: Payloads, fresh: Client, is_made_again: bool
) -> None:
    group = topic.group("g").seen_by(fresh)
    produce(topic)
    assert group.pop(max_messages=1)["messages"]
    store.lose(1)
    store._items["topic#t"].clear()  # the first that a deletion does
    if is_made_again:
        assert topic.client.another().put("/topics/t").status == 201
    assert fresh.post(f"{group.path}/pop").problem == (404, "TopicNotFound")
    assert not any(pk.startswith("dead#") and items for pk, items in store._items.items())


def test_a_message_that_is_missing_when_it_has_just_expired_is_not_dead(topic: Topic, store: Payloads) -> None:
    assert topic.client.put(topic.path, retention_ms=HOUR_MS).status == 200
    group = topic.group("g").seen_by(topic.client.another())
    produce(topic, count=1)
    group.nack(group.take_one(), delay_ms=HOUR_MS - 1)
    store.lose(0)
    topic.client.clock.ms += HOUR_MS - 1
    assert group.seen_by(topic.client.another()).pop()["messages"] == []
    assert group.totals() == (0, 0, 0, 0)


@pytest.mark.parametrize("fields", [{}, {"attempt_id": "a"}])
def test_messages_that_cannot_be_read_for_a_while_do_not_die_of_it(
    topic: Topic, store: Payloads, fresh: Client, fields: dict[str, Any]
) -> None:
    group = topic.group("g", max_attempts=2, invisible_ms=1_000).seen_by(fresh)
    topic.produce("held by another")
    group.take_one(invisible_ms=HOUR_MS)
    sent = produce(topic)
    store.is_failing = True
    for _ in range(5):
        assert fresh.post(f"{group.path}/pop", **fields).problem == (503, "StoreUnavailable")
        topic.client.clock.ms += 1_001
    store.is_failing = False
    taken = group.take(3, **fields)
    assert (bodies(taken), {each["attempt"] for each in taken}) == (sent, {1})
    assert group.totals() == (0, 4, 0, 0)


def test_unreadable_messages_are_ready_again_in_a_moment(topic: Topic, store: Payloads, fresh: Client) -> None:
    group = topic.group("g").seen_by(fresh)
    produce(topic)
    store.is_failing = True
    assert fresh.post(f"{group.path}/pop").status == 503
    assert group.totals() == (0, 0, 3, 0)
    topic.client.clock.ms += UNREADABLE_MS
    assert group.totals() == (3, 0, 0, 0)


def test_one_payload_that_cannot_be_read_holds_back_no_other_message(
    topic: Topic, store: Payloads, fresh: Client
) -> None:
    group = topic.group("g", max_attempts=2).seen_by(fresh)
    sent = produce(topic)
    store.fail_alone = store.payloads[1:2]
    taken = group.pop()["messages"]
    assert bodies(taken) == [sent[0], sent[2]]
    assert group.ack(*taken) == {"acked": 2, "failed": []}
    for _ in range(5):
        topic.client.clock.ms += UNREADABLE_MS
        assert fresh.post(f"{group.path}/pop").problem == (503, "StoreUnavailable")
    small = produce(topic, count=1, size=10)
    assert bodies(group.take(1)) == small
    store.fail_alone = ()
    topic.client.clock.ms += UNREADABLE_MS
    assert [(each["body"], each["attempt"]) for each in group.take(1)] == [(sent[1], 1)]


def test_what_was_read_comes_though_what_cannot_be_read_is_not_given_back(
    topic: Topic, store: Payloads, fresh: Client
) -> None:
    group = topic.group("g").seen_by(fresh)
    sent = produce(topic)
    store.fail_alone = store.payloads[1:2]
    store.fails = lambda: setattr(store, "write", unavailable)
    assert bodies(group.pop()["messages"]) == sent[::2]
    assert group.totals() == (0, 3, 0, 0)


def test_what_a_pop_has_comes_though_the_rest_cannot_be_read(topic: Topic, store: Payloads, fresh: Client) -> None:
    """The rest is a claim of its own, in the place of a lost message."""
    group = topic.group("g").seen_by(fresh)
    sent = produce(topic)
    store.lose(1)
    store.fail_alone = store.payloads[1:]
    assert bodies(group.pop(max_messages=2)["messages"]) == sent[:1]
    assert group.totals() == (0, 1, 1, 1)


@pytest.mark.parametrize(("count", "given_back"), [(TAKEOVERS_MAX, TAKEOVERS_MAX), (TAKEOVERS_MAX + 1, 0)])
def test_as_many_unread_messages_come_back_soon_as_one_write_names(
    topic: Topic, store: Payloads, fresh: Client, count: int, given_back: int
) -> None:
    group = topic.group("g").seen_by(fresh)
    sent = produce(topic, 2 * count)
    store.fail_alone = store.payloads[1::2]
    assert bodies(group.pop(max_messages=2 * count)["messages"]) == sent[::2]
    assert group.totals() == (0, 2 * count - given_back, given_back, 0)


@pytest.mark.parametrize("late_ms", [0, 1])
def test_after_a_slow_failure_a_pop_reads_no_further(
    topic: Topic, store: Payloads, fresh: Client, late_ms: int
) -> None:
    group = topic.group("g").seen_by(fresh)
    sent = produce(topic)
    store.fail_alone = store.payloads[1:2]
    store.fails = lambda: topic.client.clock.sleep(READ_TIMEOUT_MS + late_ms)
    assert bodies(group.pop()["messages"]) == (sent[:1] if late_ms else sent[::2])


def test_a_lost_message_of_a_log_that_is_being_removed_is_left_alone(
    topic: Topic, store: Payloads, fresh: Client
) -> None:
    def removed() -> None:
        for pk in [pk for pk in store._items if pk.startswith("log#")]:
            del store._items[pk]

    group = topic.group("g").seen_by(fresh)
    sent = produce(topic)
    store.fail_alone, store.fails = store.payloads[:1], removed
    store.lose(1)
    assert bodies(group.pop()["messages"]) == sent[2:]


def test_an_ordered_queue_waits_for_a_payload_that_cannot_be_read(topic: Topic, store: Payloads, fresh: Client) -> None:
    group = topic.group("g", ordered=True).seen_by(fresh)
    sent = produce(topic, 4)
    store.fail_alone = store.payloads[1::2]
    first = group.pop()["messages"]
    assert bodies(first) == sent[:1]
    group.ack(*first)
    assert group.pop()["messages"] == []
    store.fail_alone = ()
    topic.client.clock.ms += UNREADABLE_MS
    assert [(each["body"], each["attempt"]) for each in group.take(3)] == [(body, 1) for body in sent[1:]]


def test_what_cannot_be_read_holds_up_its_key_and_no_other(
    topic: Topic, store: Payloads, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(payloads, "INSTANCE_CACHE_BYTES_MAX", 0)  # payloads are not cached, but keys are
    group = topic.group("g", ordered="key", invisible_ms=1).seen_by(topic.client.another())
    sent = noise(6, 2 * INLINE_BYTES_MAX)
    for body, key in zip(sent, ("a", "a", "a", "b", None, None), strict=True):
        topic.produce(body, key=key)
    assert len(group.take(6)) == 6
    topic.client.clock.ms += 1
    store.fail_alone = [store.payloads[place] for place in (0, 2, 4)]
    assert bodies(group.pop(invisible_ms=60_000)["messages"]) == [sent[3], sent[5]]
    store.fail_alone = ()
    topic.client.clock.ms += UNREADABLE_MS
    assert bodies(group.pop()["messages"]) == [*sent[:3], sent[4]]


@pytest.mark.parametrize("ordered", [False, True])
def test_only_an_ordered_queue_waits_for_what_is_lost_and_not_buried(
    topic: Topic, store: Payloads, fresh: Client, monkeypatch: pytest.MonkeyPatch, ordered: bool
) -> None:
    group = topic.group("g", ordered=ordered, invisible_ms=1_000).seen_by(fresh)
    sent = produce(topic)
    store.lose(1)
    with monkeypatch.context() as away:
        away.setattr(store, "write_together", unavailable)
        assert bodies(group.pop()["messages"]) == (sent[:1] if ordered else sent[::2])
    topic.client.clock.ms += 1_001
    assert bodies(group.pop()["messages"]) == [sent[0], sent[2]]


def test_a_queue_whose_payloads_cannot_be_read_holds_back_no_other_queue(client: Client, store: Payloads) -> None:
    topic = client.topic("two", queues=2)
    group = topic.group("g").seen_by(client.another())
    topic.produce(*noise(1, 2 * INLINE_BYTES_MAX), queue=0)
    client.clock.ms += 10
    topic.produce("readable", queue=1)
    store.is_failing = True
    assert bodies(group.take(1)) == ["readable"]
