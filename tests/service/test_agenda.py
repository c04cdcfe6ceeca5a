"""A round of the sweeps costs what is due, and forgets nothing that will be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from chalicelib.api import Api
from chalicelib.base.errors import StoreUnavailable
from chalicelib.base.limits import HOUR_MS, MINUTE_MS, STORED_LATE_MS_MAX
from chalicelib.store import Range
from chalicelib.table import keys
from chalicelib.table.writes import Item, Key, RemoveItem, Write
from local.memory.store import MemoryStore
from tests.support.clock import Clock
from tests.support.instances import instance

AGENDAS = ("revive", "forward", "check", "push")


def appointments(store: MemoryStore) -> list[tuple[str, str]]:
    """Of all sweeps: the sweep, and the topic or group."""
    pages = store.read([Range(keys.agenda(sweep), keys.FIRST, keys.LAST) for sweep in AGENDAS])
    return [(sweep, keys.subject_of(item["sk"])) for sweep, items in zip(AGENDAS, pages, strict=True) for item in items]


def sweep(api: Api) -> int:
    """Runs all of them. Returns the changes that they made."""
    sweeps = api.service.sweeps
    swept = [sweeps.revive(), sweeps.forward(), sweeps.expire(), sweeps.check(), sweeps.push(lambda *_: None)]
    return sum(each.done for each in swept)


def minutes(api: Api, clock: Clock, count: int) -> None:
    for _ in range(count):
        clock.sleep(MINUTE_MS)
        sweep(api)


def forget(store: MemoryStore) -> None:
    for agenda in AGENDAS:
        for item in store.read([Range(keys.agenda(agenda), keys.FIRST, keys.LAST)])[0]:
            store.write(Write(Key(item["pk"], item["sk"]), (), (RemoveItem(),)))


def delayed(api: Api, delay_ms: int, body: str = "a") -> None:
    api.produce("t", {"messages": [{"body": body, "delay_ms": delay_ms, "queue": 0}]})


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def api(store: MemoryStore, clock: Clock) -> Api:
    made = instance(store, clock)
    made.put_topic("t", {"queues": 1})
    made.put_group("t", "g", {"max_attempts": 1, "invisible_ms": 20_000})
    return made


def with_idle_topics(api: Api, store: MemoryStore, topics: int) -> None:
    """More topics like `t`, which had messages and delayed ones once."""
    api.produce("t", {"messages": [{"body": "a"}]})
    delayed(api, 1)
    [topic] = store.read([Range(keys.topics(), keys.FIRST, keys.LAST)])[0]
    own = [
        item
        for pk in list(store._items)
        if topic["id"] in pk
        for item in store.read([Range(pk, keys.FIRST, keys.LAST)])[0]
    ]
    for number in range(1, topics):
        name = f"{number:08d}"
        store.put_all([{**item, "pk": item["pk"].replace(topic["id"], name)} for item in own])
        store.put_all([{**topic, "sk": f"t{name}", "id": name}])


def idle_round(topics: int) -> tuple[float, float, int]:
    """What a minute's round costs where nobody does anything: read units, write units, round trips."""
    store, clock = MemoryStore(), Clock()
    api = instance(store, clock)
    api.put_topic("t", {"queues": 4})
    api.put_group("t", "g", {"max_attempts": 1})
    with_idle_topics(api, store, topics)
    minutes(api, clock, 40)
    meter = store.meter
    before = meter.read_units, meter.write_units, meter.round_trips
    minutes(api, clock, 1)
    return (
        meter.read_units - before[0],
        meter.write_units - before[1],
        meter.round_trips - before[2],
    )


def test_an_idle_round_costs_the_same_for_ten_topics_and_ten_thousand() -> None:
    assert idle_round(10) == idle_round(1_000) == idle_round(10_000) == (5.0, 0, 10)


@pytest.mark.parametrize("delay_ms", [1, 30_000, 90_000, 10 * MINUTE_MS, 3 * HOUR_MS])
def test_a_delayed_message_comes_within_a_minute_though_nobody_polls(api: Api, clock: Clock, delay_ms: int) -> None:
    delayed(api, delay_ms)
    minutes(api, clock, delay_ms // MINUTE_MS + 1)
    assert api.get_group("t", "g")["ready"] == 1


def test_each_of_many_delays_comes_in_its_minute_though_nobody_polls(api: Api, clock: Clock) -> None:
    for minute in (7, 3, 30, 5, 4):
        delayed(api, minute * MINUTE_MS - 1)
    arrived = []
    for minute in range(1, 31):
        minutes(api, clock, 1)
        arrived += [minute] * (api.get_group("t", "g")["ready"] - len(arrived))
    assert arrived == [3, 4, 5, 7, 30]


def test_a_last_attempt_ends_within_a_minute_though_nobody_polls(api: Api, clock: Clock) -> None:
    api.produce("t", {"messages": [{"body": "a"}]})
    api.pop("t", "g", {"invisible_ms": 5 * MINUTE_MS - 1})
    minutes(api, clock, 4)
    assert api.get_group("t", "g")["dead"] == 0
    minutes(api, clock, 1)
    assert api.get_group("t", "g")["dead"] == 1


@pytest.mark.parametrize(("invisible_ms", "minute"), [(30_000, 1), (10 * MINUTE_MS, 10)])
def test_an_extended_last_attempt_ends_at_its_new_time(
    api: Api, store: MemoryStore, clock: Clock, invisible_ms: int, minute: int
) -> None:
    api.produce("t", {"messages": [{"body": "a"}]})
    [message] = api.pop("t", "g", {"invisible_ms": 5 * MINUTE_MS})["messages"]
    clock.sleep(20_000)
    instance(store, clock, 2).extend("t", "g", {"receipts": [message["receipt"]], "invisible_ms": invisible_ms})
    died = [ended for ended in range(1, 13) if minutes(api, clock, 1) or api.get_group("t", "g")["dead"]]
    assert died[0] == minute


def test_leases_that_a_changed_group_makes_the_last_end_in_time(api: Api, clock: Clock) -> None:
    api.put_group("t", "g", {"max_attempts": 3})
    api.produce("t", {"messages": [{"body": "a"}]})
    api.pop("t", "g", {"invisible_ms": 10 * MINUTE_MS - 1})
    api.put_group("t", "g", {"max_attempts": 1})
    minutes(api, clock, 10)
    assert api.get_group("t", "g")["dead"] == 1


def test_a_message_of_an_outbox_that_is_sent_late_comes_soon_after(api: Api, store: MemoryStore, clock: Clock) -> None:
    item = api.outbox_item("t", {"body": "a"})
    minutes(api, clock, STORED_LATE_MS_MAX // MINUTE_MS - 1)
    store.put_all([item])
    minutes(api, clock, 1)
    assert api.get_group("t", "g")["ready"] == 1


def test_a_write_that_lands_a_minute_late_is_swept_soon_after(api: Api, store: MemoryStore, clock: Clock) -> None:
    held: list[Callable[[], Any]] = []
    true = store.write_together
    store.write_together = lambda writes: held.append(lambda: true(writes))  # type: ignore[method-assign]
    delayed(api, 1)
    store.write_together = true  # type: ignore[method-assign]
    minutes(api, clock, 1)
    held[0]()
    minutes(api, clock, 1)
    assert api.get_group("t", "g")["ready"] == 1


def test_an_instance_makes_one_appointment_a_minute(api: Api, store: MemoryStore, clock: Clock) -> None:
    delayed(api, 5)
    before = store.meter.write_units
    delayed(api, 5)
    plain = store.meter.write_units - before
    clock.sleep(MINUTE_MS - 1)
    delayed(api, 5)
    assert store.meter.write_units - before == 2 * plain
    clock.sleep(2)
    delayed(api, 5)
    assert store.meter.write_units - before == 3 * plain + 1


def test_an_appointment_ends_when_nothing_is_left(api: Api, store: MemoryStore, clock: Clock) -> None:
    delayed(api, 5)
    api.produce("t", {"messages": [{"body": "a"}]})
    api.pop("t", "g", {"max_messages": 1})
    assert appointments(store) == [("revive", "t#g"), ("forward", "t")]
    minutes(api, clock, 5)
    assert appointments(store) == []


def test_appointments_of_a_deleted_topic_and_group_end(api: Api, store: MemoryStore, clock: Clock) -> None:
    delayed(api, 5)
    api.produce("t", {"messages": [{"body": "a"}]})
    api.pop("t", "g", {"max_messages": 1})
    api.put_group("t", "watched", {"alarm": {"ready": 1}})
    api.put_group("t", "called", {"push": {"url": "https://example.com/hook"}})
    api.put_topic("t", {"queues": 2})
    api.put_topic("t", {"queues": 1})
    assert [agenda for agenda, _ in appointments(store)] == [*AGENDAS]
    api.delete_topic("t")
    minutes(api, clock, 5)
    assert appointments(store) == []


def test_alarms_pushes_and_leaving_queues_stay_on_the_agenda(api: Api, store: MemoryStore, clock: Clock) -> None:
    api.put_group("t", "watched", {"alarm": {"ready": 1}})
    api.put_group("t", "called", {"push": {"url": "https://example.com/hook"}})
    minutes(api, clock, 10)
    assert appointments(store) == [("check", "t"), ("push", "t")]
    api.put_group("t", "watched", {"alarm": {}})
    api.put_topic("t", {"queues": 2})
    api.put_topic("t", {"queues": 1})
    minutes(api, clock, 10)
    assert appointments(store) == [("check", "t"), ("push", "t")]


def test_an_alarm_set_while_its_appointment_ends_is_checked(api: Api, store: MemoryStore, clock: Clock) -> None:
    api.put_group("t", "g", {"alarm": {"ready": 1}})
    api.put_group("t", "g", {"alarm": {}})
    minutes(api, clock, 2)
    api.produce("t", {"messages": [{"body": "a"}]})
    other, true = instance(store, clock, 2), store.write_each

    def between(writes: Any) -> Any:
        store.write_each = true  # type: ignore[method-assign]
        other.put_group("t", "g", {"alarm": {"ready": 1}})
        return true(writes)

    store.write_each = between  # type: ignore[method-assign]
    minutes(api, clock, 1)
    assert store.write_each == true, "the sweep ended it"
    minutes(api, clock, 1)
    assert api.get_group("t", "g")["alarm_state"] == "raised"


def test_what_has_no_appointment_is_found_within_an_hour(api: Api, store: MemoryStore, clock: Clock) -> None:
    """A table of an earlier release has none at all."""
    delayed(api, 5)
    api.produce("t", {"messages": [{"body": "a"}]})
    api.pop("t", "g", {"max_messages": 1})
    api.put_group("t", "watched", {"alarm": {"ready": 1}})
    api.put_group("t", "called", {"push": {"url": "https://example.com/hook"}})
    made = appointments(store)
    forget(store)
    clock.sleep(1_000)
    fresh = instance(store, clock, 2)
    fresh.service.sweeps.expire()
    assert appointments(store) == made
    forget(store)
    clock.sleep(HOUR_MS)
    instance(store, clock, 3).service.sweeps.expire()
    assert appointments(store) == made


def test_a_message_is_not_stored_where_its_appointment_cannot_be(api: Api, store: MemoryStore) -> None:
    true = store.write

    def full(write: Write) -> Item:
        if write.key.pk.startswith("agenda"):
            raise StoreUnavailable("throttled")
        return true(write)

    store.write = full  # type: ignore[method-assign]
    with pytest.raises(StoreUnavailable):
        delayed(api, 5)
    store.write = true  # type: ignore[method-assign]
    assert not api.list_delayed("t", {})["messages"]


def test_an_overdue_agenda_is_caught_up(api: Api, clock: Clock) -> None:
    """The schedule was switched off for a day."""
    delayed(api, 5)
    clock.sleep(24 * HOUR_MS)
    api.service.sweeps.forward()
    assert api.get_group("t", "g")["ready"] == 1
