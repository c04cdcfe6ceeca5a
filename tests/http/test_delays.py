"""Delayed messages: never early, once, listed while they wait, cancelled for good or not at all."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from chalicelib.core.base.limits import DELAY_MS_MAX, MINUTE_MS, TRANSACTION_ITEMS_MAX
from chalicelib.core.base.message import message_id
from chalicelib.core.delays.decision import PROMOTED_BYTES_MAX, PROMOTED_MAX, together
from chalicelib.core.log.segment import Entry
from tests.support.client import Client, Group, Json, Topic, bodies
from tests.support.clock import START_MS, Clock
from tests.support.troubled_store import TroubledStore, throttled_queue, unavailable


def waiting(topic: Topic, **query: Any) -> Json:
    answer = topic.client.get(f"{topic.path}/delayed", **query)
    assert answer.status == 200, answer.json
    page: Json = answer.json
    return page


def cancel(topic: Topic, message: Json) -> Any:
    return topic.client.delete(f"{topic.path}/delayed/{message['message_id']}")


def found(topic: Topic, message: Json) -> Any:
    return topic.client.get(f"{topic.path}/messages/{message['message_id']}")


# -- producing --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("delay_ms", [1, 1_000, MINUTE_MS, MINUTE_MS + 1, DELAY_MS_MAX])
def test_a_delayed_message_has_no_offset_and_is_delivered_at_its_time(
    topic: Topic, group: Group, clock: Clock, delay_ms: int
) -> None:
    sent = topic.produce("later", delay_ms=delay_ms)[0]
    assert (sent["offset"], sent["queue"], sent["deliver_at_ms"]) == (None, 0, START_MS + delay_ms)
    clock.sleep(delay_ms - 1)
    assert group.pop()["messages"] == []
    clock.sleep(1)
    message = group.take_one()
    assert (message["body"], message["message_id"], message["offset"]) == ("later", sent["message_id"], 0)
    assert message["stored_at_ms"] == START_MS + delay_ms


@pytest.mark.parametrize("size", [1, 2_000])
@pytest.mark.parametrize("count", [1, 3])
def test_a_message_that_waited_shows_when_it_was_sent(
    topic: Topic, group: Group, clock: Clock, size: int, count: int
) -> None:
    for _ in range(count):
        topic.produce("x" * size, delay_ms=1_000)
    clock.sleep(1_000)
    plain = topic.produce("at once")[0]
    *waited, other = sorted(group.drained(), key=lambda message: message["body"] != "at once")[::-1]
    browsed = topic.client.get(f"{topic.path}/messages").json["messages"]
    for shown in [
        *waited,
        *(message for message in browsed if message["body"] != "at once"),
        found(topic, waited[0]).json,
    ]:
        assert (shown["sent_at_ms"], shown["stored_at_ms"]) == (START_MS, START_MS + 1_000)
    assert other["message_id"] == plain["message_id"]
    assert "sent_at_ms" not in other.keys() | found(topic, plain).json.keys()


def test_a_message_is_delivered_at_an_instant(topic: Topic, group: Group, clock: Clock) -> None:
    topic.produce("later", deliver_at_ms=START_MS + 500)
    clock.sleep(499)
    assert group.pop()["messages"] == []
    clock.sleep(1)
    assert group.take_one()["body"] == "later"


def numbered(count: int, **fields: Any) -> list[Json]:
    return [{"body": f"{number}", "key": "k", **fields} for number in range(count)]


@pytest.mark.parametrize("delay_ms", [500, 2 * MINUTE_MS])
def test_messages_of_one_call_for_one_time_keep_their_order(
    client: Client, topic: Topic, clock: Clock, delay_ms: int
) -> None:
    group = topic.group("ordered", ordered=True)
    batch = numbered(40, delay_ms=delay_ms)
    topic.produce(*[each | ({"dedup_id": each["body"]} if place % 3 == 0 else {}) for place, each in enumerate(batch)])
    assert bodies(waiting(topic)["messages"]) == [each["body"] for each in batch]
    clock.sleep(delay_ms)
    assert bodies(group.drained()) == [each["body"] for each in batch]


def test_a_repeat_by_dedup_ids_returns_the_ids_of_the_first_call(topic: Topic, group: Group, clock: Clock) -> None:
    batch = [each | {"dedup_id": each["body"]} for each in numbered(8, deliver_at_ms=START_MS + 500)]
    sent = topic.produce(*batch)
    assert topic.produce(*batch) == topic.produce(*reversed(batch))[::-1] == sent
    clock.sleep(500)
    assert [each["message_id"] for each in group.drained()] == [each["message_id"] for each in sent]


@pytest.mark.parametrize(
    "fields", [{"delay_ms": 0}, {"deliver_at_ms": 0}, {"deliver_at_ms": START_MS}, {"delay_ms": None}]
)
def test_a_time_that_has_come_means_now(topic: Topic, group: Group, fields: Json) -> None:
    sent = topic.produce("now", **fields)[0]
    assert sent["offset"] == 0
    assert "deliver_at_ms" not in sent
    assert group.take_one()["body"] == "now"


@pytest.mark.parametrize(
    "fields",
    [
        {"deliver_at_ms": START_MS + DELAY_MS_MAX + 1},
        {"delay_ms": 1, "deliver_at_ms": START_MS + 1},
    ],
)
def test_a_wrong_time_is_refused_and_nothing_stored(topic: Topic, fields: Json) -> None:
    batch = [{"body": "a", "delay_ms": 5}, {"body": "b", **fields}]
    answer = topic.client.post(f"{topic.path}/messages", messages=batch)
    assert answer.problem == (400, "InvalidField")
    assert [each["index"] for each in answer.json["errors"]] == [1]
    assert next(iter(fields)) in answer.json["detail"]
    assert waiting(topic)["messages"] == []


def test_the_farthest_instant_is_365_days_ahead(topic: Topic) -> None:
    sent = topic.produce("far", deliver_at_ms=START_MS + DELAY_MS_MAX)[0]
    assert sent["deliver_at_ms"] == START_MS + DELAY_MS_MAX


def test_messages_for_now_and_for_later_go_together(topic: Topic, group: Group, clock: Clock) -> None:
    batch: list[Json] = [{"body": "a"}, {"body": "b", "delay_ms": 100}, {"body": "c"}, {"body": "d", "delay_ms": 10**6}]
    sent = topic.produce(*batch)
    assert [each["offset"] for each in sent] == [0, None, 1, None]
    assert bodies(group.drained()) == ["a", "c"]
    clock.sleep(10**6)
    assert bodies(group.drained()) == ["b", "d"]


@pytest.mark.parametrize(("delay_ms", "count"), [(10**7, 1), (1_000, TRANSACTION_ITEMS_MAX + 1)])
def test_messages_for_later_that_were_not_stored_are_known_to_fail(
    topic: Topic, store: TroubledStore, delay_ms: int, count: int
) -> None:
    topic.produce("a", delay_ms=delay_ms)
    store.before = unavailable("write", "write_together")
    answer = topic.client.post(f"{topic.path}/messages", messages=numbered(count, delay_ms=delay_ms))
    assert answer.problem == (503, "StoreUnavailable")
    store.before = unavailable()
    assert bodies(waiting(topic)["messages"]) == ["a"]


def test_payloads_of_one_call_are_kept_until_the_last_is_due(topic: Topic, group: Group, clock: Clock) -> None:
    topic.produce({"body": "x", "delay_ms": 1}, {"body": Random(1).randbytes(2_000).hex(), "delay_ms": DELAY_MS_MAX})
    clock.sleep(DELAY_MS_MAX)
    topic.client.store.drop_expired(clock.now())
    assert [len(body) for body in bodies(group.drained())] == [1, 4_000]


def test_a_message_keeps_all_it_was_given(client: Client, clock: Clock) -> None:
    topic = client.topic("wide", queues=3)
    group = topic.group("g")
    given = {"body_base64": "AAEC", "key": "k", "tag": "t", "properties": {"p": "q"}}
    sent = topic.produce(given, delay_ms=10, queue=2)[0]
    clock.sleep(10)
    message = group.take_one()
    assert {name: message[name] for name in given} == given
    assert (message["queue"], message["message_id"]) == (2, sent["message_id"])


@pytest.mark.parametrize("delay_ms", [1_000, 10 * MINUTE_MS])
@pytest.mark.parametrize("size", [10, 2_000, 300_000, 4 * 1024 * 1024])
def test_a_body_of_any_size_comes_out_as_it_went_in(
    topic: Topic, group: Group, clock: Clock, size: int, delay_ms: int
) -> None:
    body = Random(size).randbytes(size // 2).hex()
    sent = topic.produce(body, delay_ms=delay_ms)[0]
    if size < 10**6:
        topic.produce("beside", delay_ms=delay_ms)
    assert body in bodies(waiting(topic)["messages"])
    clock.sleep(delay_ms)
    assert body in bodies(group.drained())
    assert found(topic, sent).json["body"] == body


# -- looking ----------------------------------------------------------------------------------------------------------


def test_delayed_messages_are_listed_in_due_order(client: Client) -> None:
    topic = client.topic("wide", queues=3)
    sent = [topic.produce(str(ms), delay_ms=ms, queue=ms % 3)[0] for ms in (70_000, 5, 900, 60)]
    listed = waiting(topic)["messages"]
    assert bodies(listed) == ["5", "60", "900", "70000"]
    assert listed[3] == {
        **{name: sent[0][name] for name in ("message_id", "queue", "deliver_at_ms")},
        "topic": "wide",
        "sent_at_ms": START_MS,
        "body": "70000",
        "key": None,
        "tag": None,
        "properties": {},
    }


@pytest.mark.parametrize("limit", [1, 7, 60, 1_000])
def test_pages_of_delayed_messages_hold_every_message_once(client: Client, limit: int) -> None:
    topic = client.topic("wide", queues=3)
    for number in range(60):
        topic.produce(str(number), delay_ms=1_000 + number * 7 % 20, queue=number % 3)
    got: list[str] = []
    query: Json = {"limit": limit}
    while True:
        page = waiting(topic, **query)
        assert len(page["messages"]) <= limit
        got += bodies(page["messages"])
        if page["next"] is None:
            break
        query["next"] = page["next"]
    assert sorted(got, key=int) == [str(number) for number in range(60)]


@pytest.mark.parametrize("limit", [1, 3, 100])
def test_pages_keep_due_order_where_many_of_a_queue_are_cancelled(client: Client, limit: int) -> None:
    topic = client.topic("wide", queues=2)
    dense = [topic.produce(str(ms), delay_ms=ms, queue=0)[0] for ms in range(10, 130, 10)]
    for ms in (15, 35):
        topic.produce(str(ms), delay_ms=ms, queue=1)
    for each in dense[:8]:
        cancel(topic, each)
    got, query = list[str](), Json(limit=limit)
    while query.get("next", "") is not None:
        page = waiting(topic, **query)
        got += bodies(page["messages"])
        query["next"] = page["next"]
    assert got == ["15", "35", "90", "100", "110", "120"]


def test_a_page_is_no_larger_than_a_response(topic: Topic) -> None:
    for _ in range(3):
        topic.produce(Random(1).randbytes(1_000_000).hex(), delay_ms=1_000)
    page = waiting(topic)
    assert len(page["messages"]) == 2
    assert len(waiting(topic, next=page["next"])["messages"]) == 1


def test_a_message_is_found_by_its_id_once_it_was_delivered(topic: Topic, group: Group, clock: Clock) -> None:
    sent = [topic.produce(str(number), delay_ms=100 + number // 40)[0] for number in range(100)]
    assert found(topic, sent[7]).problem == (404, "MessageNotFound")
    assert topic.read()["messages"] == []
    clock.sleep(200)
    assert found(topic, sent[7]).problem == (404, "MessageNotFound")
    came = {each["message_id"]: each for each in group.drained()}
    for each in sent:
        looked_up = found(topic, each).json
        assert looked_up == {name: came[each["message_id"]][name] for name in looked_up}
    assert {each["message_id"] for each in topic.read()["messages"]} == set(came)
    assert waiting(topic) == {"messages": [], "next": None}


def test_the_place_of_a_delivered_message_is_no_second_id(topic: Topic, group: Group, clock: Clock) -> None:
    topic.produce("a", delay_ms=1)
    clock.sleep(1)
    group.take_one()
    items = [item for partition in topic.client.store._items.values() for item in partition.values()]
    [entry] = [entry for item in items for entry in item.get("entries", [])]
    assert found(topic, {"message_id": message_id(Entry.of(entry).id, 0, 0)}).problem == (404, "MessageNotFound")


# -- cancelling -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("delay_ms", [1_000, 10 * MINUTE_MS])
@pytest.mark.parametrize("size", [10, 3_000])
def test_a_cancelled_message_is_never_delivered(
    topic: Topic, group: Group, clock: Clock, delay_ms: int, size: int
) -> None:
    sent, kept = topic.produce("a" * size, "b", delay_ms=delay_ms)
    answer = cancel(topic, sent)
    assert (answer.status, answer.json) == (200, {"cancelled": True})
    assert cancel(topic, sent).problem == (404, "MessageNotFound")
    assert [each["message_id"] for each in waiting(topic)["messages"]] == [kept["message_id"]]
    clock.sleep(delay_ms)
    assert cancel(topic, sent).problem == (404, "MessageNotFound")
    assert bodies(group.drained()) == ["b"]
    assert cancel(topic, sent).problem == (404, "MessageNotFound")
    assert found(topic, sent).problem == (404, "MessageNotFound")


def test_a_delivered_message_is_too_late_to_cancel(topic: Topic, group: Group, clock: Clock) -> None:
    sent = [topic.produce(str(number), delay_ms=100 + number // 40)[0] for number in range(100)]
    clock.sleep(200)
    assert len(group.drained()) == 100
    other = topic.produce("other", delay_ms=100)[0]
    assert cancel(topic, other).status == 200
    clock.sleep(100 * MINUTE_MS)
    for each in sent:
        assert cancel(topic, each).problem == (409, "AlreadyDelivered")


def test_a_message_that_is_due_and_not_delivered_can_be_cancelled(topic: Topic, group: Group, clock: Clock) -> None:
    sent = topic.produce("a", delay_ms=100)[0]
    clock.sleep(200)
    assert cancel(topic, sent).status == 200
    assert group.pop()["messages"] == []


@pytest.mark.parametrize(
    "message_id", ["x", "0" * 18 + "t1", "0" * 16 + "7ft1", "0" * 18 + "t0", "0" * 18 + "t" + "f" * 12, "0" * 19]
)
def test_an_id_that_never_waited_is_not_found(topic: Topic, group: Group, clock: Clock, message_id: str) -> None:
    for _ in range(3):
        topic.produce("a", delay_ms=1)
        clock.sleep(1)
        group.take_one()
    assert cancel(topic, {"message_id": message_id}).problem == (404, "MessageNotFound")
    assert found(topic, {"message_id": message_id}).problem == (404, "MessageNotFound")


def test_many_cancelled_messages_hide_none_that_waits(topic: Topic, group: Group, clock: Clock) -> None:
    sent = [topic.produce(str(number), delay_ms=100)[0] for number in range(3 * PROMOTED_MAX)]
    for each in sent[:-1]:
        assert cancel(topic, each).status == 200
    page = waiting(topic, limit=1)
    assert (bodies(page["messages"]), page["next"]) == ([str(len(sent) - 1)], None)
    clock.sleep(100)
    assert bodies(group.take(1)) == [str(len(sent) - 1)]


# -- delivering -------------------------------------------------------------------------------------------------------


def test_messages_are_delivered_together_up_to_a_size() -> None:
    half, rest, over = (
        {"entry": Entry(b"an entry", 1, 0, "json", size, None).as_value()}
        for size in (PROMOTED_BYTES_MAX // 2, 1, PROMOTED_BYTES_MAX + 1)
    )
    assert together([half, half, rest]) == [half, half]
    assert together([over, rest]) == [over]


def test_one_pop_looks_through_a_thousand_that_are_due_and_not_wanted(topic: Topic, clock: Clock) -> None:
    group = topic.group("some", filter={"tags": ["a"]})
    for _ in range(4):
        topic.produce(*[{"body": "x", "delay_ms": 1_000}] * 250)
    topic.produce({"body": "wanted", "tag": "a", "delay_ms": 1_001})
    clock.sleep(2_000)
    assert bodies(group.take(1)) == ["wanted"]


def test_a_thousand_messages_come_once_each_and_none_early(client: Client, clock: Clock) -> None:
    topic = client.topic("wide", queues=4)
    group = topic.group("g")
    random = Random(1)
    due: dict[str, int] = {}
    for _ in range(10):
        batch = [{"body": "x", "delay_ms": random.randint(1, 5_000)} for _ in range(100)]
        due |= {each["message_id"]: each["deliver_at_ms"] for each in topic.produce(*batch)}
    came: list[str] = []
    while clock.now() < START_MS + 6_000:
        messages = group.pop(max_messages=256, wait_ms=1_000)["messages"]
        group.ack(*messages) if messages else None
        assert all(due[each["message_id"]] <= clock.now() for each in messages)
        came += [each["message_id"] for each in messages]
    assert sorted(came) == sorted(due)


def test_messages_due_at_once_come_in_the_order_of_their_times(topic: Topic, group: Group, clock: Clock) -> None:
    for ms in (300, 100, 200):
        topic.produce(str(ms), delay_ms=ms)
    clock.sleep(1_000)
    assert bodies(group.take(3)) == ["100", "200", "300"]


def test_every_group_gets_a_delayed_message(topic: Topic, group: Group, clock: Clock) -> None:
    other = topic.group("shipping")
    topic.produce("a", delay_ms=10)
    clock.sleep(10)
    assert bodies(group.take(1)) == bodies(other.take(1)) == ["a"]


def test_a_message_keeps_its_id_through_retries(topic: Topic, group: Group, clock: Clock) -> None:
    sent = topic.produce("a", delay_ms=10)[0]
    clock.sleep(10)
    first = group.take_one()
    group.nack(first, delay_ms=0)
    again = group.take_one()
    assert first["message_id"] == again["message_id"] == sent["message_id"]
    assert (first["offset"], again["attempt"]) == (again["offset"], 2)


# -- deleting ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("has_heard", "first"), [(True, []), (False, []), (False, ["first"])])
def test_a_topic_that_is_made_again_has_no_old_delays(
    client: Client, clock: Clock, has_heard: bool, first: list[str]
) -> None:
    topic = client.topic("t")
    other = Topic(client.another(), "t")
    old = topic.produce("old", "x" * 3_000, delay_ms=100)[0]
    assert len(waiting(other)["messages"]) == 2
    topic.delete()
    assert not [pk for pk, items in client.store._items.items() if items and "delay" in pk]
    assert not [pk for pk, items in client.store._items.items() if items and "payload" in pk]
    client.topic("t")
    group = topic.group("g")
    assert waiting(topic)["messages"] == []
    assert cancel(topic, old).problem == (404, "MessageNotFound")
    if has_heard:
        assert waiting(other)["messages"] == []
    made = [topic.produce(body, delay_ms=100)[0] for body in first] + other.produce("new", delay_ms=100)
    assert {each["message_id"] for each in waiting(topic)["messages"]} == {each["message_id"] for each in made}
    clock.sleep(100)
    assert sorted(bodies(group.drained())) == [*first, "new"]


def test_every_instance_refuses_a_delayed_message_for_a_deleted_topic(client: Client) -> None:
    topic = client.topic("t")
    other = Topic(client.another(), "t")
    other.produce("a", delay_ms=100)
    topic.delete()
    answer = other.client.post("/topics/t/messages", messages=[{"body": "b", "delay_ms": 100}])
    assert answer.problem == (404, "TopicNotFound")


# -- counting ---------------------------------------------------------------------------------------------------------


def counted(topic: Topic) -> tuple[int, list[int]]:
    answer = topic.client.get(f"{topic.path}/waiting")
    assert answer.status == 200, answer.json
    assert [queue["queue"] for queue in answer.json["queues"]] == [*range(len(answer.json["queues"]))]
    return answer.json["waiting"], [queue["waiting"] for queue in answer.json["queues"]]


def test_waiting_messages_are_counted_in_each_queue(client: Client, clock: Clock) -> None:
    topic = client.topic("wide", queues=3)
    group = topic.group("g")
    assert counted(topic) == (0, [0, 0, 0])
    topic.produce("now", queue=1)
    topic.produce("a", "b", queue=2, delay_ms=500)
    topic.produce("c", queue=0, delay_ms=10**6)
    assert counted(topic) == (3, [1, 0, 2])
    clock.sleep(500)
    assert counted(topic) == (3, [1, 0, 2])
    assert sorted(bodies(group.drained())) == ["a", "b", "now"]
    assert counted(topic) == (1, [1, 0, 0])


def test_a_cancelled_message_is_counted_no_more(topic: Topic) -> None:
    sent = topic.produce("a", "b", delay_ms=10**6)
    cancel(topic, sent[0])
    assert counted(topic) == (1, [1])


def test_a_message_is_counted_until_it_is_decided(topic: Topic, store: TroubledStore, clock: Clock) -> None:
    """A caller that dies between its decision and the removal leaves the item."""
    group = topic.group("g")
    topic.produce("a", delay_ms=10)
    clock.sleep(10)
    store.before = throttled_queue(0)
    assert group.client.post(f"{group.path}/pop").status == 503
    assert counted(topic) == (0, [0])
    store.before = unavailable()
    assert group.take_one()["body"] == "a"


@pytest.mark.parametrize(("cancelled", "left"), [(0, 3), (2, 3), (5, 2)])
def test_a_count_ends_at_the_most_that_was_asked_for(client: Client, topic: Topic, cancelled: int, left: int) -> None:
    for message in topic.produce(*"abcdefg", delay_ms=10**6)[:cancelled]:
        cancel(topic, message)
    service = client.api.service
    assert service.delays.messages.counts(service.env.catalogue.current_topic("orders"), most=3) == [left]


def test_a_pop_with_a_filter_promotes_on_past_what_it_does_not_want(topic: Topic, clock: Clock) -> None:
    group = topic.group("some", filter={"tags": ["wanted"]})
    topic.produce(*["x"] * PROMOTED_MAX, delay_ms=1_000)
    topic.produce({"body": "a", "tag": "wanted"}, delay_ms=1_001)
    clock.sleep(1_001)
    assert bodies(group.pop()["messages"]) == ["a"]


@pytest.mark.parametrize("late_ms", [0, 1])
def test_what_came_when_it_was_due_is_found_after_others(
    topic: Topic, group: Group, clock: Clock, late_ms: int
) -> None:
    came = []
    for _ in range(3):
        came += topic.produce("a", delay_ms=500)
        clock.sleep(500 + late_ms)
        group.take_one()
    assert [found(topic, message).status for message in came] == 3 * [200]
    assert [cancel(topic, message).problem for message in came] == 3 * [(409, "AlreadyDelivered")]
