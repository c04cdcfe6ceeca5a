"""Each crossing sends one message, however many check, and whenever a write arrives; and what a check costs."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import suppress

import pytest

from chalicelib.api import Api
from chalicelib.core.base.errors import DecantError
from chalicelib.core.catalogue.group_forms import RAISED, AlarmState
from chalicelib.core.delays.promoter import Promoter
from chalicelib.core.table.writes import Item, Key, Refused, Write
from chalicelib.core.upkeep.alarms import change
from local.memory.store import MemoryStore
from tests.support.clock import Clock
from tests.support.instances import instance as instance_of


def told(api: Api, topic: str) -> list[str]:
    """The messages of alarms of the topic's groups, in order."""
    try:
        queues = api.get_topic("decant.alarms")["queues"]
    except DecantError:
        return []
    found: list[str] = []
    for queue in range(queues):
        offset = 0
        while page := api.read_messages("decant.alarms", {"queue": str(queue), "offset": str(offset)})["messages"]:
            found += [each["tag"] for each in page if json.loads(each["body"])["topic"] == topic]
            offset = page[-1]["offset"] + 1
    return found


def test_a_crossing_is_told_once_however_many_check(instance: Callable[[], Api], topic: str) -> None:
    one, other = instance(), instance()
    one.put_topic(topic, {"queues": 2})
    one.put_group(topic, "g", {"alarm": {"ready": 2, "age_ms": 3_600_000}})
    one.produce(topic, {"messages": [{"body": "a", "queue": 0}, {"body": "b", "queue": 1}]})
    for _ in range(2):
        one.service.sweeps.check()
        other.service.sweeps.check()
    assert (told(one, topic), one.get_group(topic, "g")["alarm_state"]) == (["raised"], "raised")
    while messages := one.pop(topic, "g", {})["messages"]:
        one.ack(topic, "g", {"receipts": [each["receipt"] for each in messages]})
    for _ in range(2):
        other.service.sweeps.check()
        one.service.sweeps.check()
    assert (told(one, topic), one.get_group(topic, "g")["alarm_state"]) == (["raised", "cleared"], "cleared")
    one.put_group(topic, "g", {"alarm": {}})


def test_a_change_of_an_alarm_knows_its_own_retry() -> None:
    changing = change(Key("group", "alarm"), AlarmState(2, RAISED, 1), b"mine")
    states: tuple[Item, ...] = ({}, {"by": b"mine"}, {"by": b"another's"})
    assert [changing.landed(before) for before in states] == [False, True, False]
    first, store = change(Key("group", "alarm"), AlarmState(1, RAISED, 1), b"mine"), MemoryStore()
    assert store.write(first) == store.write(first)


class Late(MemoryStore):
    """Keeps its transactions, to apply one again later, as if its token were forgotten."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: list[Sequence[Write]] = []

    def write_together(self, writes: Sequence[Write]) -> None:
        self.kept.append(writes)
        super().write_together(writes)


def test_a_transaction_that_comes_again_after_an_hour_does_nothing() -> None:
    store, clock = Late(), Clock()
    api = instance_of(store, clock)
    api.put_topic("t", {"queues": 1})
    api.put_group("t", "g", {"alarm": {"ready": 1}})
    api.produce("t", {"messages": [{"body": "a"}]})
    api.service.sweeps.check()
    raising = store.kept[-1]
    clock.sleep(3_600_000)
    with suppress(Refused):
        store.write_together(raising)
    messages = api.pop("t", "g", {})["messages"]
    api.ack("t", "g", {"receipts": [each["receipt"] for each in messages]})
    api.service.sweeps.check()
    with suppress(Refused):
        store.write_together(raising)
    api.service.sweeps.forward()
    api.service.sweeps.check()
    assert told(api, "t") == ["raised", "cleared"]


def test_clocks_that_differ_do_not_change_the_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """If neither check survives to deliver its stored message."""
    monkeypatch.setattr(Promoter, "promote", lambda *_: 0)
    store, ahead, behind = MemoryStore(), Clock(), Clock()
    behind.ms -= 10_000
    one, other = instance_of(store, ahead, 1), instance_of(store, behind, 2)
    one.put_topic("t", {"queues": 1})
    one.put_group("t", "g", {"alarm": {"ready": 1}})
    one.produce("t", {"messages": [{"body": "a"}]})
    one.service.sweeps.check()
    messages = one.pop("t", "g", {})["messages"]
    one.ack("t", "g", {"receipts": [each["receipt"] for each in messages]})
    other.service.sweeps.check()
    monkeypatch.undo()
    ahead.sleep(1_000)
    one.service.sweeps.forward()
    assert told(one, "t") == ["raised", "cleared"]


# -- what it costs ----------------------------------------------------------------------------------------------------


def idle(store: MemoryStore, alarm: dict[str, int], topics: int, queues: int) -> tuple[float, float, dict[str, int]]:
    """Read and write units of a check, and what it answers."""
    api = instance_of(store, Clock())
    for number in range(topics):
        api.put_topic(f"t{number}", {"queues": queues})
        api.put_group(f"t{number}", "g", {"alarm": alarm})
    reads, writes = store.meter.read_units, store.meter.write_units
    answer = api.service.sweeps.check().as_json()
    return store.meter.read_units - reads, store.meter.write_units - writes, answer


@pytest.mark.parametrize(("topics", "queues"), [(20, 100), (500, 4)])
def test_a_check_of_two_thousand_idle_queues_is_cheap(topics: int, queues: int) -> None:
    reads, writes, answer = idle(MemoryStore(), {"ready": 1, "age_ms": 1_000}, topics, queues)
    assert (answer["seen"], writes) == (topics, 0)
    assert reads < 2_000


def test_groups_without_an_alarm_cost_a_check_nothing() -> None:
    with_none, with_some = (idle(MemoryStore(), alarm, 100, 4)[0] for alarm in ({}, {"ready": 1}))
    assert with_none == 2.5
    assert with_some <= 3 * 0.5 * 100 + 0.5 * 400 + 10


def test_a_crossing_costs_some_units_once() -> None:
    store = MemoryStore()
    api = instance_of(store, Clock())
    api.put_topic("t", {"queues": 4})
    api.put_topic("decant.alarms", {})
    api.put_group("t", "g", {"alarm": {"ready": 1}})
    api.produce("t", {"messages": [{"body": "a"}]})
    spent: list[tuple[float, float]] = []
    for _ in range(2):
        reads, writes = store.meter.read_units, store.meter.write_units
        api.service.sweeps.check()
        spent.append((store.meter.read_units - reads, store.meter.write_units - writes))
    assert spent[0][0] <= 25
    assert spent[0][1] <= 10
    assert spent[1][0] <= 20
    assert spent[1][1] == 0
