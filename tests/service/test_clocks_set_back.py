"""Somebody sets the clock of a machine back while the service runs on it."""

from __future__ import annotations

import pytest

from chalicelib.api import Api
from chalicelib.core.base.errors import AlreadyDelivered
from chalicelib.core.base.limits import METADATA_AGE_MS_MAX
from local.memory.store import MemoryStore
from tests.support.clock import Bell, Clock
from tests.support.instances import instance

SET_BACK_MS = 20_000


class ClockSetBack(Clock):
    """The clock is set back during a sleep."""

    def sleep(self, ms: int, bell: Bell | None = None) -> None:
        super().sleep(ms, bell)
        self.set_back_ms = SET_BACK_MS


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def rated(store: MemoryStore, clock: Clock) -> Api:
    """A group that gets two messages a second, of six."""
    api = instance(store, clock)
    api.put_topic("t", {"queues": 1})
    api.put_group("t", "g", {"rate_limit": 2})
    api.produce("t", {"messages": [{"body": str(number)} for number in range(6)]})
    return api


def test_a_long_poll_takes_no_longer(store: MemoryStore) -> None:
    clock = ClockSetBack()
    api = instance(store, clock)
    api.put_topic("t", {})
    api.put_group("t", "g", {})
    began_ms = clock.ms
    assert api.pop("t", "g", {"wait_ms": 2_000})["messages"] == []
    assert clock.ms == began_ms + 2_000


def test_a_group_with_a_rate_goes_on_after_a_window(rated: Api, clock: Clock) -> None:
    assert len(rated.pop("t", "g", {})["messages"]) == 2
    clock.set_back_ms = SET_BACK_MS
    held = rated.pop("t", "g", {})
    assert (held["messages"], held["limited"], held["retry_after_ms"]) == ([], "rate", 1_000)
    clock.ms += 1_000
    assert len(rated.pop("t", "g", {})["messages"]) == 2
    assert rated.pop("t", "g", {})["messages"] == []
    clock.ms += 1_000
    assert len(rated.pop("t", "g", {})["messages"]) == 2


def test_a_clock_set_back_by_half_a_window_gives_no_more(rated: Api, clock: Clock) -> None:
    assert len(rated.pop("t", "g", {})["messages"]) == 2
    clock.set_back_ms = 500
    assert rated.pop("t", "g", {})["messages"] == []
    clock.ms += 1_000
    assert rated.pop("t", "g", {})["messages"] == []


@pytest.mark.parametrize("reads", range(1, 13))
def test_a_last_attempt_is_not_delivered_again_however_the_clock_moves(store: MemoryStore, reads: int) -> None:
    """The clock is set back after so many reads of it."""
    clock = Clock()
    api = instance(store, clock)
    api.put_topic("t", {"queues": 1})
    api.put_group("t", "g", {"max_attempts": 1, "invisible_ms": 1_000})
    api.produce("t", {"messages": [{"body": "once"}]})
    assert len(api.pop("t", "g", {})["messages"]) == 1
    clock.sleep(1_000)
    left = iter(range(reads))
    true = clock.now

    def now() -> int:
        return true() - (0 if next(left, None) is not None else 5)

    object.__setattr__(api.service.env.runtime, "now", now)
    assert api.pop("t", "g", {})["messages"] == []


@pytest.mark.parametrize("apart_ms", [1_100, 20_000, 60_000])
def test_a_rate_holds_between_two_instances_whose_clocks_are_far_apart(store: MemoryStore, apart_ms: int) -> None:
    clock, behind = Clock(), Clock()
    behind.set_back_ms = apart_ms
    api, other = instance(store, clock), instance(store, behind, 7)
    api.put_topic("t", {"queues": 1})
    api.put_group("t", "g", {"rate_limit": 2})
    api.produce("t", {"messages": [{"body": str(number)} for number in range(100)]})
    taken = 0
    for _ in range(100):
        taken += sum(len(each.pop("t", "g", {"max_messages": 1})["messages"]) for each in (api, other))
        clock.ms += 100
        behind.ms += 100
    assert 2 * 9 <= taken <= 2 * 11


def test_an_instance_sees_changed_settings_as_soon(store: MemoryStore) -> None:
    clock = Clock()
    api, other = instance(store, clock), instance(store, clock, 7)
    api.put_topic("t", {})
    api.produce("t", {"messages": [{"body": "not indexed", "key": "k"}]})
    other.put_topic("t", {"index_keys": True})
    clock.set_back_ms = SET_BACK_MS
    clock.ms += METADATA_AGE_MS_MAX + 1
    api.produce("t", {"messages": [{"body": "indexed", "key": "k"}]})
    assert [each["body"] for each in other.read_messages("t", {"key": "k"})["messages"]] == ["indexed"]


def test_a_message_is_known_as_delivered_though_a_cancel_was_timed_earlier(store: MemoryStore, clock: Clock) -> None:
    api = instance(store, clock)
    api.put_topic("t", {"queues": 1})
    delays = (100, 10_000, 200)
    sent = api.produce("t", {"messages": [{"body": "a", "delay_ms": delay_ms} for delay_ms in delays]})["messages"]
    clock.sleep(100)
    api.service.sweeps.forward()
    clock.set_back_ms = 50
    api.cancel_delayed("t", sent[1]["message_id"])
    clock.sleep(200)
    api.service.sweeps.forward()
    with pytest.raises(AlreadyDelivered):
        api.cancel_delayed("t", sent[0]["message_id"])


def test_a_message_is_known_as_delivered_though_its_time_has_not_come(store: MemoryStore, clock: Clock) -> None:
    """The caller that decided to deliver it had a clock that was ahead."""
    api = instance(store, clock)
    api.put_topic("t", {"queues": 1})
    delays = (100, 200, 1_000)
    sent = api.produce("t", {"messages": [{"body": "a", "delay_ms": delay_ms} for delay_ms in delays]})["messages"]
    assert api.service.delays.promoter.promote(api.service.env.catalogue.topic("t"), 0, clock.now() + 200) == 2
    clock.sleep(1_000)
    api.service.sweeps.forward()
    with pytest.raises(AlreadyDelivered):
        api.cancel_delayed("t", sent[1]["message_id"])
