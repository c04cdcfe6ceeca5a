"""The circuit breaker: a queue takes no more while some group has `max_depth` messages of it left to consume."""

from __future__ import annotations

from typing import Any

import pytest

from chalicelib.core.base.limits import DEDUP_MS, IDLE_CONSUMER_MS, RETENTION_MS_MIN, SECOND_MS
from chalicelib.core.producing.depths import LOOK_MS
from chalicelib.core.store import Range
from tests.support.client import Answer, Client, Group, Topic, bodies
from tests.support.clock import Clock
from tests.support.troubled_store import TroubledStore, throttled_queue, unavailable

DEPTH = 3


def breaking(client: Client, queues: int = 1, **settings: Any) -> Topic:
    """A new topic with a breaker."""
    assert client.put("/topics/orders", queues=queues, max_depth=DEPTH, **settings).status == 201
    return Topic(client, "orders")


@pytest.fixture
def topic(client: Client) -> Topic:
    return breaking(client)


def send(topic: Topic, *messages: dict[str, Any], client: Client | None = None) -> Answer:
    batch = [{"body": "x", **message} for message in messages or [{}]]
    return (client or topic.client).post(f"{topic.path}/messages", messages=batch)


def fill(topic: Topic, queue: int = 0, client: Client | None = None) -> None:
    """Sends as many messages as fit an empty queue, one by one, as far as they are taken."""
    for _ in range(DEPTH):
        assert send(topic, {"queue": queue}, client=client).status in (200, 429)


def refused(answer: Answer) -> bool:
    if answer.status != 429:
        return False
    assert answer.problem == (429, "QueueFull")
    assert int(answer.headers["Retry-After"]) >= 1
    return True


def drain(group: Group, **fields: Any) -> None:
    while messages := group.pop(**fields)["messages"]:
        group.ack(*messages)


# -- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("message", [{}, {"key": "k"}, {"queue": 0}, {"dedup_id": "d"}])
def test_a_full_queue_refuses_messages_and_stores_nothing(topic: Topic, group: Group, message: dict[str, Any]) -> None:
    fill(topic)
    answer = send(topic, message)
    assert refused(answer)
    for part in ("queue 0", "'orders'", "'billing'", "3 messages", "max_depth is 3"):
        assert part in answer.json["detail"]
    assert len(topic.read()["messages"]) == DEPTH


def test_a_message_without_key_goes_to_a_queue_with_room_until_none_has(client: Client) -> None:
    topic = breaking(client, queues=3)
    topic.group("billing")
    queues = [send(topic).json["messages"][0]["queue"] for _ in range(3 * DEPTH)]
    assert sorted(queues) == sorted([0, 1, 2] * DEPTH)
    assert refused(send(topic))


def test_of_a_batch_those_with_a_full_queue_fail(client: Client) -> None:
    topic = breaking(client, queues=2)
    topic.group("billing")
    fill(topic, 0)
    answer = send(topic, {"queue": 0}, {}, {"queue": 1})
    assert answer.status == 207
    full, *stored = answer.json["messages"]
    assert full["error"]["code"] == "QueueFull"
    assert [(made["queue"], made["offset"]) for made in stored] == [(1, 0), (1, 1)]


def test_one_request_may_overshoot(topic: Topic, group: Group) -> None:
    assert send(topic, *[{}] * (DEPTH + 5)).status == 200
    assert refused(send(topic))


def test_a_message_that_hops_does_not_go_to_a_full_queue(store: TroubledStore, client: Client) -> None:
    topic = breaking(client, queues=3)
    topic.group("billing")
    queue = send(topic).json["messages"][0]["queue"]
    full, open_ = [other for other in range(3) if other != queue]
    fill(topic, full)
    store.before = throttled_queue(queue)
    assert send(topic).json["messages"][0]["queue"] == open_
    store.before = unavailable()
    fill(topic, open_)
    store.before = throttled_queue(queue)
    assert send(topic).problem == (503, "StoreUnavailable")


def test_delayed_messages_are_not_refused_and_not_counted(client: Client, topic: Topic, group: Group) -> None:
    fill(topic)
    assert send(topic, {"delay_ms": 500}).status == 200
    assert refused(send(topic))
    client.clock.sleep(SECOND_MS)
    drain(group)
    assert group.totals() == (0, 0, 0, 0)
    assert group.queue()["next_offset"] == DEPTH + 1


def test_what_one_queue_refuses_and_another_fails_is_503(store: TroubledStore, client: Client) -> None:
    topic = breaking(client, queues=2)
    topic.group("billing")
    fill(topic, 0)
    store.before = throttled_queue(1)
    assert send(topic, {"queue": 0}, {"queue": 1}).problem == (503, "StoreUnavailable")


def test_a_request_to_a_full_queue_is_refused_at_once(topic: Topic, group: Group) -> None:
    fill(topic)
    assert refused(topic.client.post(f"{topic.path}/requests", body="a", timeout_ms=5_000))
    assert topic.client.clock.slept == []


def test_a_repeat_of_a_stored_message_gets_its_first_result(client: Client, topic: Topic, group: Group) -> None:
    first = send(topic, {"dedup_id": "d"}).json["messages"][0]
    fill(topic)
    for instance in (client, client.another()):
        answer = send(topic, {"dedup_id": "d"}, {"dedup_id": "e"}, {}, client=instance)
        assert answer.status == 207
        again, *new = answer.json["messages"]
        assert again == first
        assert {made["error"]["code"] for made in new} == {"QueueFull"}
    assert send(topic, {"dedup_id": "d"}).json["messages"] == [first]
    assert len(topic.read()["messages"]) == DEPTH


def test_a_repeat_after_five_minutes_is_a_new_message(client: Client, topic: Topic, group: Group) -> None:
    assert send(topic, {"dedup_id": "d"}).status == 200
    fill(topic)
    client.clock.sleep(DEDUP_MS)
    assert refused(send(topic, {"dedup_id": "d"}))


# -- who counts -------------------------------------------------------------------------------------------------------


def test_without_a_group_there_is_no_limit(topic: Topic) -> None:
    assert {send(topic).status for _ in range(5 * DEPTH)} == {200}


def test_the_slowest_group_counts(client: Client, topic: Topic) -> None:
    fast, slow = topic.group("fast"), topic.group("slow")
    fill(topic)
    drain(fast)
    client.clock.sleep(LOOK_MS)
    answer = send(topic)
    assert refused(answer)
    assert "group 'slow'" in answer.json["detail"]
    slow.delete()
    client.clock.sleep(LOOK_MS)
    assert send(topic).status == 200


def test_a_group_counts_from_the_next_look_on(client: Client, topic: Topic) -> None:
    fill(topic)
    topic.group("late")
    client.clock.sleep(LOOK_MS)
    assert refused(send(topic))


def test_a_group_waits_for_nothing_from_before_its_start(client: Client, topic: Topic) -> None:
    fill(topic)
    topic.group("late", start="latest")
    client.clock.sleep(LOOK_MS)
    fill(topic)
    assert refused(send(topic))


def test_leased_messages_wait_and_nacked_ones_do_not(client: Client, topic: Topic, group: Group) -> None:
    fill(topic)
    taken = group.take(DEPTH)
    client.clock.sleep(LOOK_MS)
    assert refused(send(topic))
    group.nack(*taken)
    client.clock.sleep(LOOK_MS)
    assert send(topic).status == 200


def test_the_slowest_known_consumer_of_a_broadcast_group_counts(client: Client, topic: Topic) -> None:
    group = topic.group("all", mode="broadcast")
    fill(topic)
    assert refused(send(topic))
    drain(group, consumer_id="a")
    client.clock.sleep(LOOK_MS)
    assert send(topic).status == 200  # b is not known yet
    group.take_one(consumer_id="b")
    fill(topic)
    drain(group, consumer_id="a")
    client.clock.sleep(LOOK_MS)
    assert refused(send(topic))
    client.clock.sleep(IDLE_CONSUMER_MS)
    group.pop(consumer_id="a")
    client.clock.sleep(LOOK_MS)
    assert send(topic).status == 200


def test_an_old_topic_is_full_of_what_has_not_expired(client: Client, clock: Clock) -> None:
    topic = breaking(client, retention_ms=RETENTION_MS_MIN)
    group = topic.group("billing")
    send(topic)
    drain(group)
    clock.sleep(RETENTION_MS_MIN)
    send(topic)
    first_at_ms = clock.ms
    clock.sleep(1)
    send(topic, *[{}] * DEPTH)
    clock.sleep(LOOK_MS)
    assert f"has not consumed {DEPTH + 1} messages" in send(topic).json["detail"]
    clock.sleep(first_at_ms + RETENTION_MS_MIN - clock.ms)
    assert f"has not consumed {DEPTH} messages" in send(topic).json["detail"]


def test_one_queue_may_be_full_of_expired_messages_and_another_not(client: Client, clock: Clock) -> None:
    topic = breaking(client, queues=2, retention_ms=RETENTION_MS_MIN)
    topic.group("billing")
    for queue in range(2):
        fill(topic, queue)
        clock.sleep(RETENTION_MS_MIN // 2)
    answer = send(topic, {"queue": 0}, {"queue": 1})
    assert answer.status == 207
    stored, full = answer.json["messages"]
    assert (stored["queue"], stored["offset"], full["error"]["code"]) == (0, DEPTH, "QueueFull")


def test_expired_messages_do_not_wait(client: Client, clock: Clock) -> None:
    topic = breaking(client, retention_ms=RETENTION_MS_MIN)
    topic.group("billing")
    fill(topic)
    clock.sleep(RETENTION_MS_MIN - LOOK_MS)
    assert refused(send(topic))
    clock.sleep(LOOK_MS)
    fill(topic)
    assert refused(send(topic))
    clock.sleep(RETENTION_MS_MIN // 2)
    assert refused(send(topic))
    clock.sleep(RETENTION_MS_MIN // 2 + 1)
    assert send(topic).status == 200
    fill(topic)
    assert refused(send(topic))


# -- when it looks ----------------------------------------------------------------------------------------------------


def test_a_drained_queue_takes_messages_again_within_a_second(client: Client, topic: Topic, group: Group) -> None:
    fill(topic)
    assert refused(send(topic))
    drain(group)
    client.clock.sleep(LOOK_MS)
    assert send(topic).status == 200


def test_an_instance_looks_once_a_second_however_much_it_is_asked(
    store: TroubledStore, client: Client, topic: Topic, group: Group
) -> None:
    looks: list[Any] = []
    fill(topic)
    client.clock.sleep(LOOK_MS)
    store.before = lambda verb, about: looks.append(about) if verb == "read" else None
    for _ in range(5):
        assert refused(send(topic))
    assert len(looks) == 1
    client.clock.sleep(LOOK_MS - 1)
    assert refused(send(topic))
    assert len(looks) == 1
    client.clock.sleep(1)
    assert refused(send(topic))
    assert len(looks) == 2


def test_an_append_shows_what_others_have_appended(client: Client, topic: Topic, group: Group) -> None:
    other = client.another()
    assert send(topic).status == 200
    fill(topic, client=other)
    assert send(topic).status == 200  # one request of each instance
    assert refused(send(topic))
    assert refused(send(topic, client=other))


def test_a_look_that_fails_changes_nothing(store: TroubledStore, client: Client, topic: Topic, group: Group) -> None:
    fill(topic)
    client.clock.sleep(LOOK_MS)
    store.before = lambda verb, about: unavailable("read")(verb, about) if _is_look(about) else None
    assert refused(send(topic))
    assert send(topic, client=client.another()).status == 200  # it has not looked yet
    drain(group)
    store.before = unavailable()
    client.clock.sleep(LOOK_MS)
    assert send(topic).status == 200


def test_a_group_that_is_deleted_during_a_look_does_not_count(
    store: TroubledStore, client: Client, topic: Topic, group: Group
) -> None:
    def meanwhile(verb: str, about: Any) -> None:
        if verb == "read" and isinstance(about[0], Range) and about[0].pk.endswith("#billing"):
            store.before = unavailable()
            assert client.delete(group.path).status == 204

    fill(topic)
    store.before = meanwhile
    assert send(topic, client=client.another()).status == 200
    assert client.get(group.path).status == 404


def _is_look(about: Any) -> bool:
    return isinstance(about, list) and any(isinstance(read, Range) and read.pk.startswith("groups#") for read in about)


# -- the setting ------------------------------------------------------------------------------------------------------


def test_a_depth_can_be_changed_and_removed(client: Client, topic: Topic, group: Group) -> None:
    assert client.put(topic.path, retention_ms=RETENTION_MS_MIN).json["max_depth"] == DEPTH
    fill(topic)
    assert client.put(topic.path, max_depth=None).json["max_depth"] == DEPTH
    assert refused(send(topic))
    assert client.put(topic.path, max_depth=DEPTH + 1).json["max_depth"] == DEPTH + 1
    assert send(topic).status == 200
    assert refused(send(topic))
    assert client.put(topic.path, max_depth="unlimited").json["max_depth"] is None
    assert topic.details()["max_depth"] is None
    assert {send(topic).status for _ in range(5)} == {200}


def test_a_slow_group_misses_nothing(client: Client, topic: Topic, group: Group) -> None:
    sent: list[str] = []
    received: list[str] = []
    for number in range(40):
        answer = send(topic, {"body": str(number)})
        sent += [str(number)] if answer.status == 200 else []
        if number % 3 == 0:
            taken = group.pop(max_messages=1)["messages"]
            received += bodies(taken)
            group.ack(*taken)
        client.clock.sleep(LOOK_MS // 2)
    while taken := group.pop()["messages"]:
        received += bodies(taken)
        group.ack(*taken)
    assert received == sent
    assert 10 < len(sent) < 30
