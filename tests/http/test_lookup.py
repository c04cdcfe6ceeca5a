"""Reading messages without leasing them: by queue and offset, by time, by id."""

from __future__ import annotations

from typing import Any

import pytest

from chalicelib.core.base.limits import MIB, OFFSET_MAX, RESPONSE_JSON_BYTES_MAX
from tests.support.client import Client, Group, Topic, bodies, offsets
from tests.support.clock import START_MS, Clock


@pytest.fixture
def spread(client: Client, clock: Clock) -> Topic:
    """Three queues and 60 messages, one every 10 ms, of which body and number in time are the same."""
    topic = client.topic("orders", queues=3)
    for number in range(60):
        topic.produce(str(number), queue=(number * number) % 3)
        clock.sleep(10)
    return topic


def all_pages(topic: Topic, **query: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    while True:
        page = topic.read(**query)
        found += page["messages"]
        if page["next"] is None:
            return found
        assert page["messages"]
        query["next"] = page["next"]


# -- by queue and offset ----------------------------------------------------------------------------------------------


def test_a_message_is_read_with_all_its_fields(topic: Topic) -> None:
    given = {"body": "a", "key": "k", "tag": "t", "properties": {"p": "q"}}
    stored = topic.produce(given)[0]
    assert topic.read() == {
        "messages": [{**stored, **given, "topic": "orders", "stored_at_ms": START_MS}],
        "next": None,
    }


@pytest.mark.parametrize(("offset", "limit"), [(0, 1), (0, 100), (17, 32), (99, 1), (31, 33), (98, 1000)])
def test_a_queue_is_read_from_an_offset_on(topic: Topic, offset: int, limit: int) -> None:
    for first in range(0, 100, 5):
        topic.produce(*[str(number) for number in range(first, first + 5)])
    page = topic.read(queue=0, offset=offset, limit=limit)
    assert offsets(page["messages"]) == list(range(offset, min(offset + limit, 100)))
    assert bodies(page["messages"]) == [str(number) for number in offsets(page["messages"])]
    assert (page["next"] is None) == (offset + limit >= 100)


@pytest.mark.parametrize("offset", [100, 101, 10_000, OFFSET_MAX])
def test_at_or_behind_the_end_there_is_nothing(topic: Topic, offset: int) -> None:
    topic.produce(*["a"] * 100)
    assert topic.read(queue=0, offset=offset) == {"messages": [], "next": None}


def test_a_queue_alone_is_read_from_its_start(spread: Topic) -> None:
    assert bodies(all_pages(spread, queue=0)) == [str(number) for number in range(0, 60, 3)]


def test_a_page_has_100_messages_unless_asked_otherwise(topic: Topic) -> None:
    topic.produce(*["a"] * 101)
    page = topic.read()
    assert len(page["messages"]) == 100
    assert offsets(topic.read(next=page["next"])["messages"]) == [100]


@pytest.mark.parametrize("limit", [1, 7, 20, 60])
def test_pages_of_a_queue_hold_every_message_once(spread: Topic, limit: int) -> None:
    assert offsets(all_pages(spread, queue=1, limit=limit)) == list(range(40))
    assert offsets(all_pages(spread, queue=1, offset=13, limit=limit)) == list(range(13, 40))


def test_reading_takes_nothing_from_any_group(topic: Topic, group: Group) -> None:
    topic.produce("a", "b")
    taken = group.take_one()
    before = group.progress()
    assert offsets(topic.read()["messages"]) == [0, 1]
    topic.client.get(f"{topic.path}/messages/{taken['message_id']}")
    assert group.progress() == before


def test_messages_that_every_group_has_settled_can_still_be_read(topic: Topic, group: Group) -> None:
    topic.produce("a")
    group.ack(group.take_one())
    assert bodies(topic.read()["messages"]) == ["a"]


# -- by time ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [1, 2, 7, 59, 60, 61])
def test_all_queues_are_read_by_when_messages_were_stored(spread: Topic, limit: int) -> None:
    assert bodies(all_pages(spread, limit=limit)) == [str(number) for number in range(60)]


@pytest.mark.parametrize(
    ("at_ms", "first"), [(0, 0), (1, 1), (9, 1), (10, 1), (11, 2), (305, 31), (590, 59), (591, 60)]
)
def test_reading_begins_at_an_instant_in_all_queues(spread: Topic, at_ms: int, first: int) -> None:
    found = all_pages(spread, at_ms=START_MS + at_ms, limit=9)
    assert bodies(found) == [str(number) for number in range(first, 60)]


@pytest.mark.parametrize(("at_ms", "first"), [(0, 0), (1, 3), (300, 30), (301, 33), (571, 60)])
def test_reading_begins_at_an_instant_in_one_queue(spread: Topic, at_ms: int, first: int) -> None:
    found = all_pages(spread, queue=0, at_ms=START_MS + at_ms, limit=4)
    assert bodies(found) == [str(number) for number in range(first, 60, 3)]


def test_an_instant_is_found_in_a_log_of_many_segments(topic: Topic, clock: Clock) -> None:
    for number in range(400):
        topic.produce(str(number))
        clock.sleep(1)
    for number in (0, 1, 31, 32, 33, 199, 398, 399):
        assert topic.read(at_ms=START_MS + number, limit=1)["messages"][0]["body"] == str(number)


def test_messages_of_one_instant_are_all_found(topic: Topic) -> None:
    topic.produce("a", "b")
    topic.produce("c")
    assert bodies(topic.read(at_ms=START_MS)["messages"]) == ["a", "b", "c"]
    assert topic.read(at_ms=START_MS + 1)["messages"] == []


def test_in_a_queue_its_own_order_wins_over_clocks_that_differ(client: Client) -> None:
    topic = client.topic("orders", queues=2)
    slow = Client(client.store, seed=5)
    slow.clock.ms -= 200
    topic.produce("first", queue=0)
    Topic(slow, topic.name).produce("second", queue=0)
    client.clock.sleep(1)
    topic.produce("other", queue=1)
    assert bodies(all_pages(topic, limit=1)) == ["first", "second", "other"]


# -- paging -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("query", [{}, {"queue": 0}, {"queue": 0, "offset": 0}, {"at_ms": 0}])
def test_paging_while_producing_neither_repeats_nor_skips(client: Client, query: dict[str, Any]) -> None:
    topic = client.topic("orders", queues=3)
    for number in range(10):
        topic.produce(f"old {number}", queue=number % 3)
    found, token = [], dict[str, str]()
    for number in range(12):
        page = topic.read(limit=2, **query, **token)
        found += [(each["queue"], each["offset"]) for each in page["messages"]]
        if page["next"] is None:
            break
        token = {"next": page["next"]}
        if number < 3:
            topic.produce("new", queue=number % 3)
            topic.produce("new", queue=0)
    ends = [each["end_offset"] for each in topic.details()["queue_offsets"]]
    queues = [0] if "queue" in query else [0, 1, 2]
    assert len(found) == len(set(found))
    assert set(found) == {(queue, offset) for queue in queues for offset in range(ends[queue])}


def test_a_page_that_ends_at_the_end_says_so(topic: Topic) -> None:
    topic.produce(*"ab")
    assert topic.read(limit=2)["next"] is None
    assert topic.read(limit=1)["next"] is not None


def test_a_next_goes_on_whatever_place_it_is_asked_with(spread: Topic) -> None:
    token = spread.read(queue=1, offset=5, limit=2)["next"]
    assert offsets(spread.read(queue=1, offset=5, limit=2, next=token)["messages"]) == [7, 8]
    assert offsets(spread.read(limit=2, next=token)["messages"]) == [7, 8]


def test_an_empty_topic_has_one_empty_page(client: Client) -> None:
    topic = client.topic("orders", queues=128)
    assert topic.read() == {"messages": [], "next": None}
    assert topic.read(queue=127, offset=0) == {"messages": [], "next": None}


def test_messages_too_large_for_one_response_are_read_page_by_page(client: Client) -> None:
    topic = client.topic("orders", queues=2)
    texts = [str(number) * (MIB + MIB // 2) for number in range(6)]
    for number, text in enumerate(texts):
        topic.produce(text, queue=number % 2)
        client.clock.sleep(1)
    assert bodies(all_pages(topic)) == texts


def test_no_page_is_larger_than_a_response_may_be(topic: Topic) -> None:
    for _ in range(4):
        topic.produce("\x01" * 400_000)
    token: dict[str, Any] = {}
    seen = 0
    while seen < 4:
        answer = topic.client.get(f"{topic.path}/messages", **token)
        assert len(answer.raw) <= RESPONSE_JSON_BYTES_MAX
        seen += len(answer.json["messages"])
        token = {"next": answer.json["next"]}


def test_1000_messages_are_read_in_one_page(topic: Topic) -> None:
    for _ in range(4):
        topic.produce(*["a"] * 250)
    assert offsets(topic.read(limit=1_000)["messages"]) == list(range(1_000))


def test_a_next_of_a_wider_topic_is_refused(client: Client) -> None:
    wide, narrow = client.topic("wide", queues=4), client.topic("narrow", queues=2)
    wide.produce("a", "b", queue=3)
    token = wide.read(limit=1)["next"]
    assert client.get(f"{narrow.path}/messages", next=token).problem == (400, "InvalidField")


# -- by id ------------------------------------------------------------------------------------------------------------


def test_every_message_is_found_by_its_id(spread: Topic) -> None:
    for message in all_pages(spread):
        answer = spread.client.get(f"{spread.path}/messages/{message['message_id']}")
        assert (answer.status, answer.json) == (200, message)


def test_every_message_of_a_batch_is_found_by_its_id(topic: Topic) -> None:
    for number, stored in enumerate(topic.produce(*[f"m{number}" for number in range(256)])):
        assert topic.client.get(f"{topic.path}/messages/{stored['message_id']}").json["body"] == f"m{number}"


@pytest.mark.parametrize(
    "message_id",
    [
        *["x", "0", "-", "%20", "é", "%00", "%F0%9F%8E%89", "zzzzzzzzzzzzzzzz000"],
        *["0" * 16, "0" * 18, "0" * 19, "0" * 20, "0" * 5_000, "f" * 30, "f" * 200, "f" * 2_000],
        *["0123456789abcdef000", "0123456789abcdef0_0", "0123456789abcdef+00"],
    ],
)
def test_an_invalid_message_id_is_404(topic: Topic, message_id: str) -> None:
    topic.produce("a")
    answer = topic.client.get(f"{topic.path}/messages/{message_id}")
    assert answer.problem == (404, "MessageNotFound")
    assert len(answer.raw) < 1_000


def test_an_id_far_behind_the_end_of_the_log_is_404(topic: Topic) -> None:
    stored = topic.produce("a")[0]["message_id"]
    for digits in (1, 12, 13, 100, 900, 4_000):
        answer = topic.client.get(f"{topic.path}/messages/{stored[:18]}{'f' * digits}")
        assert answer.problem == (404, "MessageNotFound")


def test_an_id_that_was_altered_is_404(topic: Topic) -> None:
    topic.produce("a")
    stored = topic.produce("b")[0]["message_id"]
    altered = [stored[:place] + "0" + stored[place + 1 :] for place in range(len(stored)) if stored[place] != "0"]
    altered += [stored.upper(), stored + "0", "0" + stored, stored[:-1]]
    for message_id in altered:
        if message_id != stored:
            assert topic.client.get(f"{topic.path}/messages/{message_id}").problem == (404, "MessageNotFound")


def test_an_id_of_another_topic_is_404(client: Client) -> None:
    one, two = client.topic("one"), client.topic("two")
    stored = one.produce("a")[0]["message_id"]
    two.produce("b")
    assert client.get(f"{two.path}/messages/{stored}").problem == (404, "MessageNotFound")


def test_an_id_in_a_queue_that_the_topic_does_not_have_is_404(client: Client) -> None:
    wide = client.topic("wide", queues=4)
    stored = wide.produce("a", queue=3)[0]["message_id"]
    assert client.get(f"{client.topic('narrow').path}/messages/{stored}").problem == (404, "MessageNotFound")


def test_a_next_of_another_queue_is_refused(spread: Topic) -> None:
    token = spread.read(queue=1, limit=2)["next"]
    answer = spread.client.get(f"{spread.path}/messages", queue=2, next=token)
    assert answer.problem == (400, "InvalidField")
