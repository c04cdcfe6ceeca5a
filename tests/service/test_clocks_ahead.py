"""A machine whose clock is far ahead delivers delayed messages: what others deliver by their clocks is found, as theirs
is."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest

from chalicelib.api import Api
from chalicelib.core.base.errors import AlreadyDelivered, MessageNotFound
from chalicelib.core.base.limits import DAY_MS, MINUTE_MS
from chalicelib.core.delays.decision import PROMOTED_MAX
from local.memory.store import MemoryStore
from tests.support.clock import Clock
from tests.support.instances import instance
from tests.support.stopping import Stage, die_after, finish, requests_of, stop_after

AHEAD_MS = 16 * MINUTE_MS
"""Further than a message may come late."""


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def api(store: MemoryStore, clock: Clock) -> Api:
    api = instance(store, clock)
    api.put_topic("t", {"queues": 1})
    return api


def delivered(api: Api, clock: Clock, count: int = 1) -> list[str]:
    """The ids of so many messages that this instance was sent and has delivered, by its own clock."""
    batch = [{"body": "a", "delay_ms": 100}] * count
    sent = api.produce("t", {"messages": batch})["messages"]
    clock.sleep(100)
    while api.service.delays.promoter.promote(api.service.env.catalogue.topic("t"), 0):
        pass
    return [each["message_id"] for each in sent]


def found(api: Api, ids: list[str]) -> list[int]:
    """The offset of each of these messages, which no cancel reaches any more."""
    for message_id in ids:
        with pytest.raises(AlreadyDelivered):
            api.cancel_delayed("t", message_id)
    return [api.get_message("t", message_id)["offset"] for message_id in ids]


def test_messages_are_known_as_delivered_after_a_clock_that_was_ahead(api: Api, clock: Clock) -> None:
    first = delivered(api, clock)
    clock.set_back_ms = AHEAD_MS
    ids = first + delivered(api, clock) + delivered(api, clock)
    assert found(api, ids) == [0, 1, 2]


@pytest.mark.parametrize("ahead_ms", [AHEAD_MS, 400 * DAY_MS])
def test_two_clocks_however_far_apart_hide_nothing_from_each_other(
    api: Api, store: MemoryStore, clock: Clock, ahead_ms: int
) -> None:
    ahead = Clock()
    ahead.ms += ahead_ms
    other = instance(store, ahead, seed=1)
    ids = list[str]()
    for _ in range(5):
        ids += delivered(other, ahead, PROMOTED_MAX + 3)
        ids += delivered(api, clock, PROMOTED_MAX + 3)
    assert found(api, ids) == [*range(len(ids))]


def test_a_cancel_by_a_clock_that_was_ahead_hides_nothing(api: Api, clock: Clock) -> None:
    [cancelled] = api.produce("t", {"messages": [{"body": "a", "delay_ms": DAY_MS}]})["messages"]
    api.cancel_delayed("t", cancelled["message_id"])
    clock.set_back_ms = AHEAD_MS
    ids = delivered(api, clock) + delivered(api, clock)
    assert found(api, ids) == [0, 1]
    with pytest.raises(MessageNotFound):
        api.cancel_delayed("t", cancelled["message_id"])


def test_a_repeated_commit_names_its_offsets_after_a_clock_that_was_ahead(api: Api, clock: Clock) -> None:
    delivered(api, clock)
    clock.set_back_ms = AHEAD_MS

    def commit() -> tuple[str, dict[str, Any]]:
        begun = api.begin_transaction("t", {"messages": [{"body": "a"}, {"body": "b"}]})["transaction_id"]
        return begun, api.commit_transaction("t", begun)

    made = [commit() for _ in range(3)]
    assert [[each["offset"] for each in answer["messages"]] for _, answer in made] == [[1, 2], [3, 4], [5, 6]]
    assert [api.commit_transaction("t", begun) for begun, _ in made] == [answer for _, answer in made]


class Scene(Stage):
    """A message that a clock which was ahead has delivered, and several that are due by the clock as it is."""

    def __init__(self) -> None:
        super().__init__()
        api = Api(self.instance())
        api.put_topic("t", {"queues": 1})
        self.now += AHEAD_MS
        self.send(api, 1)
        self.promote(lambda: None)
        self.now -= AHEAD_MS
        self.ids = self.send(api, 3)

    def send(self, api: Api, messages: int) -> list[str]:
        sent = api.produce("t", {"messages": [{"body": "a", "delay_ms": 100}] * messages})["messages"]
        self.now += 100
        return [each["message_id"] for each in sent]

    def promote(self, stop: Any) -> None:
        service = self.instance(stop)
        service.delays.promoter.promote(service.env.catalogue.topic("t"), 0)

    def offsets(self) -> list[int]:
        """Where these messages are found when others have been delivered since."""
        api = Api(self.instance())
        for _ in range(2):
            self.promote(lambda: None)
            self.send(api, 1)
        self.promote(lambda: None)
        return found(api, self.ids)


def test_a_delivery_that_stops_after_any_request_leaves_its_messages_found() -> None:
    scene = Scene()
    for request in range(1, requests_of(scene.copy().promote) + 1):
        fresh = scene.copy()
        die_after(fresh.promote, request)
        assert fresh.offsets() == [1, 2, 3], f"dead after request {request}"
        fresh = scene.copy()
        first = stop_after(fresh.promote, request)
        assert fresh.offsets() == [1, 2, 3], f"stopped after request {request}"
        finish(first, goes_on=True)
        assert found(Api(fresh.instance()), fresh.ids) == [1, 2, 3], f"late after request {request}"


def test_a_search_costs_the_same_however_much_was_delivered_since(api: Api, store: MemoryStore, clock: Clock) -> None:
    delivered(api, clock)
    clock.set_back_ms = DAY_MS
    costs = list[float]()
    ids = list[str]()
    for _ in count():
        ids += delivered(api, clock)
        if len(ids) in (33, 330):
            before = store.meter.copy()
            found(api, ids[16:17])
            costs.append(store.meter.since(before).read_units)
        if len(ids) == 330:
            break
    assert costs[1] <= costs[0] + 8  # a binary search of ten times as much
