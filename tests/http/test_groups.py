"""Groups over HTTP: create, change, look at, list, delete; where they begin."""

from __future__ import annotations

from typing import Any

import pytest

from chalicelib.core.base.limits import BACKOFF_MS
from tests.support.client import FRESH_QUEUE, Client, Group, Topic, bodies, failed
from tests.support.clock import START_MS, Clock

DEFAULTS = {
    "start": "earliest",
    "mode": "clustering",
    "invisible_ms": 30_000,
    "max_attempts": 16,
    "max_in_flight": 1_000,
    "backoff_ms": list(BACKOFF_MS),
    "paused": False,
    "ordered": False,
    "delay_ms": 0,
    "settle_by": "receipt",
    "rate_limit": None,
    "filter": None,
    "alarm": None,
    "alarm_state": None,
    "push": None,
    "dead_letters": None,
}
NOTHING = {"ready": 0, "in_flight": 0, "retrying": 0, "delayed": 0, "dead": 0, "lag": 0}


# -- create, change, delete --------------------------------------------------------------------------------------------


def test_a_new_group_is_201_with_the_defaults_and_its_progress(topic: Topic) -> None:
    answer = topic.client.put(f"{topic.path}/groups/billing")
    assert answer.status == 201
    assert answer.json == {
        "group": "billing",
        "topic": "orders",
        **DEFAULTS,
        "created_at_ms": START_MS,
        "purged_at_ms": None,
        **NOTHING,
        "queues": [FRESH_QUEUE],
    }


def test_a_group_is_created_with_the_settings_given(topic: Topic) -> None:
    given = {"start": "latest", "invisible_ms": 1, "max_attempts": 1_000, "max_in_flight": 20_000, "paused": True}
    made = topic.group("billing", **given).progress()
    assert {name: made[name] for name in given} == given


def test_a_change_is_200_and_changes_only_what_is_given(topic: Topic, group: Group, clock: Clock) -> None:
    clock.sleep(1_000)
    answer = group.client.put(group.path, max_attempts=5, paused=True)
    assert answer.status == 200
    changed = {**DEFAULTS, "max_attempts": 5, "paused": True}
    assert {name: answer.json[name] for name in changed} == changed
    assert answer.json["created_at_ms"] == START_MS
    assert group.progress() == answer.json
    assert group.client.put(group.path).json == answer.json
    assert group.client.put(group.path, paused=None, invisible_ms=None).json == answer.json


def test_null_takes_the_end_of_attempts_away_until_it_is_changed(topic: Topic, group: Group) -> None:
    endless = group.client.put(group.path, max_attempts=None).json
    assert endless == group.progress() == group.client.put(group.path, paused=False).json
    assert {name: endless[name] for name in DEFAULTS} == {**DEFAULTS, "max_attempts": None}
    assert topic.group("made", max_attempts=None).progress()["max_attempts"] is None
    assert topic.group("plain").progress()["max_attempts"] == 16
    assert group.client.put(group.path, max_attempts=3).json["max_attempts"] == 3


@pytest.mark.parametrize("wrong", [0, 1_001, 2**31 - 1, "null", False])
def test_a_wrong_number_of_attempts_is_told_what_is_right(group: Group, wrong: object) -> None:
    answer = group.client.put(group.path, max_attempts=wrong)
    assert answer.problem == (400, "InvalidField")
    assert answer.json["detail"].startswith("field 'max_attempts' must be an integer from 1 to 1000 or null; it is ")


def test_a_change_is_seen_by_every_instance_at_once(topic: Topic, group: Group) -> None:
    topic.produce("a", "b")
    other = group.seen_by(group.client.another())
    assert other.take_one()["invisible_until_ms"] == START_MS + 30_000
    group.change(invisible_ms=5)
    assert other.take_one()["invisible_until_ms"] == START_MS + 5


def test_start_counts_at_creation_only(topic: Topic, group: Group) -> None:
    topic.produce("a")
    group.change(start="latest")
    assert group.progress()["start"] == "earliest"
    assert bodies(group.take(1)) == ["a"]


def test_a_deleted_group_is_gone(topic: Topic, group: Group) -> None:
    topic.produce("a")
    taken = group.take_one()
    group.delete()
    client = topic.client
    assert client.get(group.path).problem == (404, "GroupNotFound")
    assert client.delete(group.path).problem == (404, "GroupNotFound")
    assert client.post(f"{group.path}/pop").problem == (404, "GroupNotFound")
    for verb, rest in (("ack", {}), ("nack", {}), ("extend", {"invisible_ms": 1})):
        answer = client.post(f"{group.path}/{verb}", receipts=[taken["receipt"]], **rest)
        assert answer.problem == (404, "GroupNotFound")
    assert topic.details()["groups"] == []
    assert client.get(f"{topic.path}/groups").json["groups"] == []


def test_a_group_made_again_starts_over_and_refuses_old_receipts(topic: Topic, group: Group) -> None:
    topic.produce("a", "b", "c")
    old = group.take(3)
    group.ack(old[0])
    group.nack(old[1])
    group.delete()
    again = topic.group("billing")
    assert again.totals() == (3, 0, 0, 0)
    taken = again.take(3)
    assert [each["attempt"] for each in taken] == [1, 1, 1]
    for verb in (again.ack, again.nack, again.extend):
        assert failed(verb(*old)) == ["ReceiptInvalid"] * 3
    assert again.totals() == (0, 3, 0, 0)


def test_two_groups_see_every_message_and_nothing_of_each_other(topic: Topic, clock: Clock) -> None:
    one, two = topic.group("one", max_attempts=2), topic.group("two")
    topic.produce(*"abcd")
    first = one.take(4)
    one.ack(first[0])
    one.nack(first[1], delay_ms=0)
    assert two.totals() == (4, 0, 0, 0)
    assert [(each["body"], each["attempt"]) for each in two.take(4)] == [("a", 1), ("b", 1), ("c", 1), ("d", 1)]
    clock.sleep(30_000)
    one.take(3)
    clock.sleep(30_000)
    one.pop()
    one.reset("latest")
    one.change(paused=True)
    assert one.totals() == (0, 0, 0, 3)
    assert [each["attempt"] for each in two.take(4)] == [2, 2, 2, 2]
    one.delete()
    clock.sleep(30_000)
    assert len(two.pop()["messages"]) == 4


# -- where a group begins ----------------------------------------------------------------------------------------------


def test_a_group_begins_with_the_earliest_message_unless_asked_otherwise(topic: Topic) -> None:
    topic.produce("a", "b")
    for name, given in (
        ("one", {}),
        ("two", {"start": "earliest"}),
        ("three", {"start": None}),
        ("four", {"start": 0}),
    ):
        assert bodies(topic.group(name, **given).take(2)) == ["a", "b"]


def test_a_group_that_begins_with_the_latest_sees_only_what_comes_after_it(client: Client) -> None:
    topic = client.topic("orders", queues=3)
    for queue in range(3):
        topic.produce("old", queue=queue)
    group = topic.group("billing", start="latest")
    assert group.totals() == (0, 0, 0, 0)
    assert group.pop()["messages"] == []
    for queue in range(3):
        topic.produce("new", queue=queue)
    assert [bodies(group.pop()["messages"]) for _ in range(3)] == [["new"]] * 3


@pytest.mark.parametrize(
    ("start", "first"), [(0, 0), (-1, 0), (1, 1), (10, 1), (11, 2), (450, 45), (990, 99), (991, 100)]
)
def test_a_group_that_starts_at_an_instant_sees_messages_stored_since(
    topic: Topic, clock: Clock, start: int, first: int
) -> None:
    for number in range(100):
        topic.produce(str(number))
        clock.sleep(10)
    group = topic.group("billing", start=START_MS + start)
    assert group.progress()["start"] == START_MS + start
    assert group.queue()["committed_offset"] == first
    assert bodies(group.pop(max_messages=256)["messages"]) == [str(number) for number in range(first, 100)]


def test_a_group_may_begin_in_the_future(topic: Topic) -> None:
    topic.produce("a")
    assert topic.group("billing", start=START_MS + 1).totals() == (0, 0, 0, 0)


# -- lists -------------------------------------------------------------------------------------------------------------


def test_groups_are_listed_with_their_settings_and_totals(client: Client) -> None:
    topic = client.topic("orders", queues=2)
    one = topic.group("one", max_attempts=7)
    topic.group("two", start="latest")
    for queue in (0, 1):
        topic.produce("a", "b", "c", queue=queue)
    one.ack(one.take_one())
    one.nack(one.take_one(), delay_ms=60_000)
    one.take_one()
    listed = client.get(f"{topic.path}/groups").json
    assert listed == {
        "groups": [
            {
                **DEFAULTS,
                "group": "one",
                "topic": "orders",
                "max_attempts": 7,
                "created_at_ms": START_MS,
                "purged_at_ms": None,
                "ready": 3,
                "in_flight": 1,
                "retrying": 1,
                "delayed": 0,
                "dead": 0,
                "lag": 4,
            },
            {
                **DEFAULTS,
                "group": "two",
                "topic": "orders",
                "start": "latest",
                "created_at_ms": START_MS,
                "purged_at_ms": None,
                **NOTHING,
                "ready": 6,
                "lag": 6,
            },
        ],
        "next": None,
    }


@pytest.mark.parametrize("limit", [1, 2, 4, 5, 6, 1_000])
def test_pages_of_any_size_hold_every_group_once(topic: Topic, limit: int) -> None:
    names = ["A", "a", "a-b", "a.b", "b" * 100]
    for name in names:
        topic.group(name)
    found: list[str] = []
    query: dict[str, Any] = {"limit": limit}
    while True:
        page = topic.client.get(f"{topic.path}/groups", **query).json
        assert len(page["groups"]) <= limit
        found += [each["group"] for each in page["groups"]]
        if page["next"] is None:
            break
        query["next"] = page["next"]
    assert found == names


def test_paging_while_groups_come_and_go_neither_repeats_nor_skips(topic: Topic) -> None:
    for name in ("b", "d", "f", "h"):
        topic.group(name)
    path = f"{topic.path}/groups"
    first = topic.client.get(path, limit=2).json
    for name in ("a", "c", "e"):
        topic.group(name)
    topic.client.delete(f"{path}/d")
    topic.client.delete(f"{path}/h")
    rest = topic.client.get(path, limit=9, next=first["next"]).json
    assert [each["group"] for each in first["groups"] + rest["groups"]] == ["b", "d", "e", "f"]


def test_groups_of_one_topic_are_not_those_of_another(client: Client) -> None:
    client.topic("one").group("a")
    other = client.topic("two").group("b")
    assert other.topic.details()["groups"] == ["b"]
    assert [each["group"] for each in client.get("/topics/two/groups").json["groups"]] == ["b"]
