"""A request that arrives once more, long after its caller has gone on, undoes nothing."""

from __future__ import annotations

import pytest

from chalicelib.api import Api
from chalicelib.core.base.errors import ReplyTimeout
from chalicelib.core.base.limits import SECOND_MS
from chalicelib.core.base.message import Message
from chalicelib.core.log.segment import Entry
from chalicelib.core.requests import correlation
from chalicelib.core.table.writes import Refused
from local.memory.store import MemoryStore
from tests.support.clock import Clock
from tests.support.instances import instance
from tests.support.recording_store import RecordingStore


@pytest.fixture
def store() -> RecordingStore:
    return RecordingStore()


@pytest.fixture
def api(store: RecordingStore) -> Api:
    api = instance(store, Clock())
    api.put_topic("t", {"queues": 1})
    api.put_group("t", "g", {})
    return api


def arrive_again(store: RecordingStore) -> None:
    """The oldest last: nothing that is newer comes after it."""
    for write in store.sent[::-1]:
        try:
            MemoryStore.write(store, write)
        except Refused:
            pass


def test_a_change_of_a_group_does_not_undo_a_newer_one(api: Api, store: RecordingStore) -> None:
    for paused in (True, False):
        api.put_group("t", "g", {"paused": paused, "max_attempts": 5})
    api.put_group("t", "g", {"max_attempts": 7})
    arrive_again(store)
    found = api.get_group("t", "g")
    assert (found["paused"], found["max_attempts"]) == (False, 7)


def test_deleted_things_stay_deleted(api: Api, store: RecordingStore) -> None:
    api.produce("t", {"messages": [{"body": "a"}]})
    [message] = api.pop("t", "g", {})["messages"]
    api.ack("t", "g", {"receipts": [message["receipt"]]})
    api.put_group("t", "g", {"paused": True})
    api.delete_group("t", "g")
    api.delete_topic("t")
    arrive_again(store)
    assert api.list_topics({})["topics"] == []
    api.put_topic("t", {})
    assert api.list_groups("t", {})["groups"] == []


def test_a_change_whose_answer_was_lost_is_made_once(api: Api, store: RecordingStore) -> None:
    api.put_group("t", "g", {"paused": True})
    assert MemoryStore.write(store, store.sent[-1])["paused"] is True


def test_a_message_due_soon_comes_once(store: RecordingStore) -> None:
    """Once another one is delivered after it, nothing is left that would stop a second write of its item."""
    api = instance(store, clock := Clock())
    api.put_topic("t", {"queues": 1})
    api.put_group("t", "g", {})
    for _ in range(2):
        api.produce("t", {"messages": [{"body": "a", "delay_ms": SECOND_MS}]})
        clock.ms += SECOND_MS
        assert len(api.pop("t", "g", {})["messages"]) == 1
    arrive_again(store)
    assert api.pop("t", "g", {})["messages"] == []


def test_a_late_mark_of_a_cancel_makes_nothing_that_pops_meet(store: RecordingStore) -> None:
    api = instance(store, clock := Clock())
    api.put_topic("t", {"queues": 1})
    api.put_group("t", "g", {})
    [sent] = api.produce("t", {"messages": [{"body": "a", "delay_ms": SECOND_MS}]})["messages"]
    api.cancel_delayed("t", sent["message_id"])
    marks = [write for write in store.sent if write.key.pk.startswith("delay#")]
    clock.ms += SECOND_MS
    assert api.pop("t", "g", {})["messages"] == []  # and removes it
    for write in marks:
        with pytest.raises(Refused):
            MemoryStore.write(store, write)
    assert marks


def test_units_of_a_rate_are_given_back_once(api: Api, store: RecordingStore) -> None:
    api.put_group("t", "slow", {"rate_limit": 5, "filter": {"tags": ["x"]}})
    api.produce("t", {"messages": [{"body": "a"}] * 3})
    assert api.pop("t", "slow", {})["messages"] == []
    arrive_again(store)
    api.produce("t", {"messages": [{"body": "b", "tag": "x"}] * 20})
    assert len(api.pop("t", "slow", {"max_messages": 20})["messages"]) == 5


def test_no_late_write_changes_what_a_caller_was_told(api: Api, store: RecordingStore) -> None:
    """Neither a reply after the time-out, nor a time-out after the reply, nor a second reply after the first."""
    clock = api.service.env.runtime
    answered, timed_out = (api.request("t", {"body": "a", "wait_ms": 0})["correlation_id"] for _ in range(2))
    api.reply(answered, {"body": "first"})
    clock.sleep(3_000)
    with pytest.raises(ReplyTimeout):
        api.get_reply(timed_out)
    one, other = (api.service.requests.correlation(each) for each in (answered, timed_out))
    entry = Entry.packed(b"12345678", [Message("late", None, None, None, {})], clock.now())
    store.sent += [correlation.store(each, entry, b"late", None) for each in (one, other)] + [
        correlation.time_out(one, clock.now())
    ]
    arrive_again(store)
    assert api.get_reply(answered)["reply"]["body"] == "first"
    with pytest.raises(ReplyTimeout):
        api.get_reply(timed_out)
