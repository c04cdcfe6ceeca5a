"""A message can be read for the topic's retention after it was stored, and not longer."""

from __future__ import annotations

import pytest

from chalicelib.core.base.limits import BATCH_MESSAGES_MAX, PASSED_AT_ONCE_MAX
from chalicelib.core.catalogue.topic import RAISES_MAX
from tests.support.client import Client, Group, Topic, bodies, offsets
from tests.support.clock import Clock

KEPT_MS = 60_000


@pytest.fixture
def brief(client: Client) -> Topic:
    """A topic of one queue that keeps messages for a minute."""
    assert client.put("/topics/brief", queues=1, retention_ms=KEPT_MS).status == 201
    return Topic(client, "brief")


@pytest.fixture
def group(brief: Topic) -> Group:
    return brief.group("billing")


def test_a_message_is_there_until_its_retention_has_passed(brief: Topic, group: Group, clock: Clock) -> None:
    message_id = brief.produce("a")[0]["message_id"]
    path = f"{brief.path}/messages/{message_id}"
    clock.sleep(KEPT_MS - 1)
    assert brief.client.get(path).status == 200
    assert len(brief.read()["messages"]) == 1
    assert group.totals() == (1, 0, 0, 0)
    clock.sleep(1)
    assert brief.client.get(path).problem == (404, "MessageNotFound")
    assert brief.read()["messages"] == []
    assert brief.read(queue=0, offset=0)["messages"] == []
    assert group.totals() == (0, 0, 0, 0)
    assert group.pop()["messages"] == []
    assert brief.details()["queue_offsets"] == [{"queue": 0, "first_offset": 1, "end_offset": 1}]


def test_a_pop_passes_what_has_expired(brief: Topic, group: Group, clock: Clock) -> None:
    brief.produce("a", "b")
    clock.sleep(KEPT_MS)
    brief.produce("c")
    assert group.totals() == (1, 0, 0, 0)
    assert bodies(group.take(1)) == ["c"]
    assert group.queue()["next_offset"] == 3
    assert brief.details()["queue_offsets"][0]["first_offset"] == 2
    assert offsets(brief.read(queue=0, offset=0)["messages"]) == [2]


def test_a_pop_passes_any_number_of_expired_messages_at_once(brief: Topic, group: Group, clock: Clock) -> None:
    for _ in range(30):
        brief.produce(*["old"] * 256)
    clock.sleep(KEPT_MS)
    brief.produce("new")
    assert group.totals() == (1, 0, 0, 0)
    assert bodies(group.take(1)) == ["new"]
    assert group.totals() == (0, 1, 0, 0)


def test_nothing_behind_expired_messages_is_passed(brief: Topic, group: Group, clock: Clock) -> None:
    for _ in range(PASSED_AT_ONCE_MAX // BATCH_MESSAGES_MAX - 1):
        brief.produce(*["old"] * BATCH_MESSAGES_MAX)
    clock.sleep(KEPT_MS)
    for _ in range(2):
        brief.produce(*["new"] * BATCH_MESSAGES_MAX)
    taken = [message for _ in range(2) for message in group.take(BATCH_MESSAGES_MAX)]
    assert {*bodies(taken)} == {"new"}
    group.ack(*taken[:BATCH_MESSAGES_MAX])
    group.ack(*taken[BATCH_MESSAGES_MAX:])
    brief.produce("old")
    clock.sleep(KEPT_MS)
    assert group.pop()["messages"] == []
    brief.produce("last")
    assert bodies(group.take(1)) == ["last"]


def test_a_longer_retention_holds_for_what_is_stored_from_then_on(brief: Topic, group: Group, clock: Clock) -> None:
    brief.produce("a")
    clock.sleep(1)
    assert brief.client.put(brief.path, retention_ms=2 * KEPT_MS).json["retention_ms"] == 2 * KEPT_MS
    brief.produce("b")
    clock.sleep(KEPT_MS - 2)
    assert bodies(brief.read()["messages"]) == ["a", "b"]
    clock.sleep(1)
    assert bodies(brief.read()["messages"]) == ["b"]
    clock.sleep(KEPT_MS)
    assert bodies(group.take(1)) == ["b"]
    clock.sleep(1)
    assert brief.read()["messages"] == []


def test_a_shorter_retention_holds_for_what_is_stored_already(brief: Topic, clock: Clock) -> None:
    brief.client.put(brief.path, retention_ms=2 * KEPT_MS)
    brief.produce("a")
    clock.sleep(KEPT_MS)
    assert bodies(brief.read()["messages"]) == ["a"]
    assert brief.client.put(brief.path, retention_ms=KEPT_MS).status == 200
    assert brief.read()["messages"] == []
    assert brief.client.put(brief.path, retention_ms=2 * KEPT_MS).status == 200
    assert brief.read()["messages"] == []


def test_a_retention_that_is_raised_too_often_is_refused(brief: Topic, clock: Clock) -> None:
    for n in range(1, RAISES_MAX + 1):
        assert brief.client.put(brief.path, retention_ms=KEPT_MS + n).status == 200
    answer = brief.client.put(brief.path, retention_ms=2 * KEPT_MS)
    assert answer.problem == (400, "InvalidField")
    assert brief.client.put(brief.path, retention_ms=KEPT_MS + RAISES_MAX).status == 200
    clock.sleep(2 * KEPT_MS)
    assert brief.client.put(brief.path, retention_ms=2 * KEPT_MS).status == 200


def test_a_reset_goes_no_further_back_than_the_first_message(brief: Topic, group: Group, clock: Clock) -> None:
    brief.produce("a", "b")
    clock.sleep(KEPT_MS)
    brief.produce("c")
    answer = brief.client.post(f"{group.path}/reset", to={"queue": 0, "offset": 1})
    assert answer.problem == (400, "InvalidField")
    group.reset("earliest")
    assert bodies(group.take(1)) == ["c"]
