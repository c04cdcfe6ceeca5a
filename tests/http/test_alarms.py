"""A backlog over its thresholds sends one message, and one more when it is below them again."""

from __future__ import annotations

import json
from typing import Any

import pytest

from chalicelib.core.admin.groups import GroupDetails, Groups
from chalicelib.core.cursors.retries import RETRY_PAGE_LEASES
from tests.support.client import Client, Group, Json, Topic
from tests.support.clock import Clock
from tests.support.troubled_store import TroubledStore


class Desk:
    """A reader of the topic of alarms."""

    def __init__(self, client: Client) -> None:
        self.client = client

    def check(self) -> int:
        """How many alarms changed, a millisecond later: no two changes are of one instant."""
        self.client.clock.sleep(1)
        return int(self.client.api.service.sweeps.check().done)

    def messages(self) -> list[Json]:
        """All alarms that were sent, in the order of each group."""
        answer = self.client.get("/topics/decant.alarms")
        if answer.status == 404:
            return []
        found: list[Json] = []
        for queue in range(answer.json["queues"]):
            found += self.client.get("/topics/decant.alarms/messages", queue=queue, limit=1000).json["messages"]
        return found

    def told(self) -> list[str]:
        return [each["tag"] for each in self.messages()]


@pytest.fixture
def desk(client: Client) -> Desk:
    return Desk(client)


def settle(group: Group) -> None:
    while messages := group.pop(max_messages=256)["messages"]:
        group.ack(*messages)


def state(group: Group) -> Any:
    return group.progress()["alarm_state"]


def test_an_alarm_is_raised_at_the_threshold_and_cleared_below_it(topic: Topic, desk: Desk, clock: Clock) -> None:
    group = topic.group("billing", alarm={"ready": 3})
    topic.produce("a", "b")
    assert (desk.check(), desk.told(), state(group)) == (0, [], "cleared")
    topic.produce("c")
    clock.sleep(1_000)
    assert (desk.check(), desk.told(), state(group)) == (1, ["raised"], "raised")
    assert (desk.check(), desk.told()) == (0, ["raised"])
    group.ack(group.take_one())
    clock.sleep(1_000)
    assert (desk.check(), desk.told(), state(group)) == (1, ["raised", "cleared"], "cleared")
    assert (desk.check(), desk.told()) == (0, ["raised", "cleared"])


def test_an_alarm_says_what_about_and_when(topic: Topic, desk: Desk, clock: Clock) -> None:
    alarms = topic.client.topic("decant.alarms", queues=8)
    topic.group("billing", alarm={"ready": 2, "age_ms": 60_000})
    topic.produce("a", "b")
    clock.sleep(249)
    desk.check()
    [message] = desk.messages()
    assert json.loads(message["body"]) == {
        "topic": "orders",
        "group": "billing",
        "state": "raised",
        "ready": 2,
        "age_ms": 250,
        "thresholds": {"ready": 2, "age_ms": 60_000},
        "at_ms": clock.now(),
    }
    assert (message["key"], message["tag"]) == ("orders/billing", "raised")
    assert message["properties"] == {"topic": "orders", "group": "billing"}
    assert alarms.produce("x", key="orders/billing")[0]["queue"] == message["queue"]


def test_the_age_of_the_oldest_ready_message_raises_an_alarm_too(topic: Topic, desk: Desk, clock: Clock) -> None:
    group = topic.group("billing", alarm={"age_ms": 60_000})
    topic.produce("a")
    clock.sleep(59_998)
    assert desk.check() == 0
    assert (desk.check(), desk.told()) == (1, ["raised"])
    settle(group)
    topic.produce("b")
    assert (desk.check(), desk.told()) == (1, ["raised", "cleared"])


def test_the_oldest_ready_message_of_any_queue_raises_an_alarm(client: Client, desk: Desk, clock: Clock) -> None:
    topic = client.topic("wide", queues=2)
    topic.group("billing", alarm={"age_ms": 60_000})
    topic.produce("old", queue=0)
    clock.sleep(60_000)
    topic.produce("new", queue=1)
    assert desk.check() == 1


def test_by_a_clock_that_is_behind_a_backlog_has_no_age(topic: Topic, desk: Desk, clock: Clock) -> None:
    topic.group("billing", alarm={"ready": 1})
    topic.produce("a")
    clock.set_back_ms = 10_000
    desk.check()
    assert json.loads(desk.messages()[0]["body"])["age_ms"] == 0


def test_an_alarm_that_a_slow_check_sent_is_found_by_its_id(
    client: Client, store: TroubledStore, topic: Topic, desk: Desk, clock: Clock
) -> None:
    topic.group("billing", alarm={"ready": 1})
    topic.produce("a")
    store.before = lambda _verb, _about: clock.sleep(10)
    desk.check()
    [message] = desk.messages()
    assert client.get(f"/topics/decant.alarms/messages/{message['message_id']}").json == message


def test_an_alarm_clears_only_below_all_of_its_thresholds(topic: Topic, desk: Desk, clock: Clock) -> None:
    group = topic.group("billing", alarm={"ready": 3, "age_ms": 60_000})
    topic.produce("a", "b", "c")
    assert desk.check() == 1
    clock.sleep(60_000)
    message = group.take_one()
    assert desk.check() == 0, "two that are ready, but old"
    group.ack(message)
    settle(group)
    assert (desk.check(), desk.told()) == (1, ["raised", "cleared"])


def test_expired_messages_are_not_a_backlog(client: Client, desk: Desk, clock: Clock) -> None:
    client.put("/topics/short", queues=1, retention_ms=60_000)
    Topic(client, "short").group("g", alarm={"ready": 1})
    Topic(client, "short").produce("a")
    assert desk.check() == 1
    clock.sleep(60_001)
    assert (desk.check(), desk.told()) == (1, ["raised", "cleared"])


def test_a_filter_of_the_topic_of_alarms_tells_them_apart(client: Client, topic: Topic, desk: Desk) -> None:
    pages = client.topic("decant.alarms").group("pages", filter={"tags": ["raised"]})
    group = topic.group("billing", alarm={"ready": 1})
    for _ in range(2):
        topic.produce("a")
        desk.check()
        settle(group)
        desk.check()
    assert [each["tag"] for each in pages.pop()["messages"]] == ["raised", "raised"]
    assert len(desk.messages()) == 4


@pytest.mark.parametrize("mode", ["clustering", "broadcast"])
def test_due_retries_and_expired_leases_count_as_ready(topic: Topic, desk: Desk, clock: Clock, mode: str) -> None:
    group = topic.group("billing", alarm={"ready": 2}, mode=mode, invisible_ms=5_000)
    topic.produce("a", "b")
    messages = group.take(2, consumer_id="x")
    group.nack(messages[0], delay_ms=10_000)
    assert desk.check() == 0
    clock.sleep(5_000)
    assert (desk.check(), group.totals()[0]) == (0, 1)
    clock.sleep(5_000)
    assert (desk.check(), group.totals()[0]) == (1, 2)


def test_retries_in_pages_of_a_queue_count_once_they_are_due(client: Client, desk: Desk, clock: Clock) -> None:
    group = client.topic("wide", queues=2).group("billing", alarm={"ready": RETRY_PAGE_LEASES})
    group.nack_into_a_page(delay_ms=60_000, queue=1)
    assert desk.check() == 0
    clock.sleep(60_000)
    assert desk.check() == 1


# -- settings ---------------------------------------------------------------------------------------------------------


def test_a_group_shows_its_alarm_and_a_change_of_something_else_keeps_it(topic: Topic) -> None:
    plain, group = topic.group("plain"), topic.group("billing", alarm={"ready": 5, "age_ms": None})
    assert (plain.progress()["alarm"], state(plain)) == (None, None)
    assert (group.progress()["alarm"], state(group)) == ({"ready": 5}, "cleared")
    group.change(max_attempts=2, alarm=None)
    assert group.progress()["alarm"] == {"ready": 5}
    listed = topic.client.get(f"{topic.path}/groups").json["groups"]
    assert [(each["alarm"], each["alarm_state"]) for each in listed] == [({"ready": 5}, "cleared"), (None, None)]


def test_new_thresholds_replace_both_and_count_from_the_next_check_on(topic: Topic, desk: Desk) -> None:
    group = topic.group("billing", alarm={"ready": 2, "age_ms": 60_000})
    topic.produce("a", "b", "c")
    desk.check()
    group.change(alarm={"ready": 3})
    assert (desk.check(), group.progress()["alarm"]) == (0, {"ready": 3})
    group.change(alarm={"ready": 4})
    assert (desk.check(), desk.told()) == (1, ["raised", "cleared"])


def test_a_check_leaves_another_group_of_the_name_to_the_next(
    client: Client, topic: Topic, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = topic.group("billing", alarm={"ready": 1})
    topic.produce("a")
    assert desk.check() == 1
    other = client.another()
    read, details = client.api.service.sweeps._alarms._groups, Groups.details

    def meanwhile(*asked: Any) -> GroupDetails:
        monkeypatch.undo()
        group.seen_by(other).delete()
        other.put(group.path, start="latest", alarm={"ready": 1})
        client.api.service.env.catalogue.groups(client.api.service.env.catalogue.current_topic("orders"))
        calm = details(read, *asked)
        topic.produce("b")
        assert Desk(other).check() == 1
        return calm

    monkeypatch.setattr(read, "details", meanwhile)
    assert (desk.check(), desk.told()) == (0, ["raised", "raised"])


@pytest.mark.parametrize("nothing", [{}, {"ready": None, "age_ms": None}])
def test_an_alarm_that_is_taken_away_clears_if_it_was_raised(topic: Topic, desk: Desk, nothing: Json) -> None:
    group = topic.group("billing", alarm={"ready": 1})
    topic.produce("a")
    desk.check()
    group.change(alarm=nothing)
    assert (group.progress()["alarm"], state(group)) == (None, None)
    assert (desk.check(), desk.told()) == (1, ["raised", "cleared"])
    assert json.loads(desk.messages()[1]["body"])["thresholds"] is None
    assert desk.check() == 0


def test_a_group_without_an_alarm_sends_nothing(topic: Topic, desk: Desk) -> None:
    topic.group("billing", alarm={})
    topic.produce("a")
    assert desk.client.api.service.sweeps.check().as_json() == {"seen": 0, "done": 0}


@pytest.mark.parametrize("forgets", ["group", "topic"])
def test_an_alarm_goes_with_its_group(client: Client, topic: Topic, desk: Desk, forgets: str) -> None:
    group = topic.group("billing", alarm={"ready": 1})
    topic.produce("a")
    desk.check()
    if forgets == "topic":
        topic.delete()
        topic = client.topic("orders")
        topic.produce("a")
    else:
        group.delete()
    assert (desk.check(), desk.told()) == (0, ["raised"])
    group = topic.group("billing", alarm={"ready": 1})
    assert state(group) == "cleared"
    assert (desk.check(), desk.told()) == (1, ["raised", "raised"])


# -- the topic of alarms ----------------------------------------------------------------------------------------------


def test_the_topic_of_alarms_is_made_when_it_is_first_needed(client: Client, topic: Topic, desk: Desk) -> None:
    topic.group("billing", alarm={"ready": 1})
    desk.check()
    assert client.get("/topics/decant.alarms").status == 404
    topic.produce("a")
    desk.check()
    assert client.get("/topics/decant.alarms").json["queues"] == 4


def test_a_topic_of_alarms_that_was_made_before_is_used_as_it_is(client: Client, topic: Topic, desk: Desk) -> None:
    client.put("/topics/decant.alarms", queues=2, index_keys=True)
    topic.group("billing", alarm={"ready": 1})
    topic.produce("a")
    desk.check()
    assert client.get("/topics/decant.alarms").json["queues"] == 2
    found = client.get("/topics/decant.alarms/messages", key="orders/billing").json["messages"]
    assert [each["tag"] for each in found] == ["raised"]


def test_a_topic_of_alarms_that_was_deleted_is_made_again(client: Client, topic: Topic, desk: Desk) -> None:
    group = topic.group("billing", alarm={"ready": 1})
    topic.produce("a")
    desk.check()
    client.delete("/topics/decant.alarms")
    settle(group)
    assert (desk.check(), desk.told()) == (1, ["cleared"])


@pytest.mark.parametrize(
    ("part", "step", "is_changed"), [("_delays", "waiting", False), ("_promoter", "_decide", True)]
)
def test_a_check_goes_on_when_the_topic_of_alarms_is_deleted_meanwhile(
    client: Client, topic: Topic, desk: Desk, monkeypatch: pytest.MonkeyPatch, part: str, step: str, is_changed: bool
) -> None:
    """A message that was stored by then is deleted with it."""
    group = topic.group("billing", alarm={"ready": 1})
    topic.produce("a")
    used = getattr(client.api.service.sweeps._alarms, part)
    ask = getattr(used, step)

    def meanwhile(*asked: Any) -> Any:
        monkeypatch.undo()
        client.delete("/topics/decant.alarms")
        return ask(*asked)

    monkeypatch.setattr(used, step, meanwhile)
    assert desk.check() == is_changed
    assert desk.check() != is_changed
    assert (state(group), desk.told()) == ("raised", [] if is_changed else ["raised"])


def test_a_backlog_of_alarms_sends_one_alarm_and_no_loop(client: Client, desk: Desk, clock: Clock) -> None:
    alarms = client.topic("decant.alarms")
    group = alarms.group("pages", alarm={"ready": 1})
    alarms.produce("a")
    for _ in range(5):
        clock.sleep(60_000)
        desk.check()
    assert desk.told().count("raised") == 1
    for _ in range(5):
        settle(group)
        for _ in range(2):
            clock.sleep(60_000)
            desk.check()
    assert (desk.told().count("raised"), desk.told().count("cleared"), state(group)) == (1, 0, "cleared")
