"""A round of the sweeps costs what is due, and forgets nothing that will be."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from chalicelib.api import Api
from chalicelib.core.base.errors import StoreUnavailable
from chalicelib.core.base.limits import DAY_MS, HOUR_MS, MINUTE_MS, STORED_LATE_MS_MAX
from chalicelib.core.store import Keys, Range, Read
from chalicelib.core.table import keys
from chalicelib.core.table.writes import Item, Key, RemoveItem, Write
from local.memory.store import MemoryStore
from tests.store.strict import StrictStore
from tests.support.clock import Clock
from tests.support.instances import instance
from tests.support.orders import noise

AGENDAS = ("revive", "forward", "check", "push")


def appointments(store: MemoryStore) -> list[tuple[str, str]]:
    """The appointments of all sweeps: the sweep, and the topic or group."""
    return [(sweep, keys.subject_of(item["sk"])) for sweep in AGENDAS for item in items_of(store, sweep)]


def items_of(store: MemoryStore, sweep: str) -> list[Item]:
    pages = store.read([Range(pk, keys.FIRST, keys.LAST) for pk in keys.agendas(sweep)])
    return [item for items in pages for item in items]


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
        for item in items_of(store, agenda):
            store.write(Write(Key(item["pk"], item["sk"]), (), (RemoveItem(),)))


def delayed(api: Api, delay_ms: int, body: str = "a") -> None:
    api.produce("t", {"messages": [{"body": body, "delay_ms": delay_ms, "queue": 0}]})


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store() -> MemoryStore:
    return StrictStore()


@pytest.fixture
def api(store: MemoryStore, clock: Clock) -> Api:
    made = instance(store, clock)
    made.put_topic("t", {"queues": 1})
    made.put_group("t", "g", {"max_attempts": 1, "invisible_ms": 20_000})
    return made


def with_idle_topics(api: Api, store: MemoryStore, topics: int) -> None:
    """More topics like `t`."""
    [topic] = store.read([Keys([keys.topic("t")])])[0]
    own = [
        item
        for pk in list(store._items)
        if topic["id"] in pk
        for item in store.read([Range(pk, keys.FIRST, keys.LAST)])[0]
    ]
    for number in range(1, topics):
        name = f"{number:08d}"
        store.put_all([{**item, "pk": item["pk"].replace(topic["id"], name)} for item in own])
        store.put_all([{**topic, **keys.topic(f"t{name}")._asdict(), "id": name}])
        store.put_all([{**keys.listed_topic(f"t{name}")._asdict(), "listed": name}])


def idle_round(topics: int) -> tuple[float, float, int]:
    """The cost of a minute's round when nobody is active any more: read units, write units, round trips. Each topic
    once had more queues, delays, last attempts, and has a pushed group with an alarm."""
    store, clock = MemoryStore(), Clock()
    api = instance(store, clock)
    api.put_topic("t", {"queues": 4})
    api.put_group("t", "g", {"max_attempts": 1})
    api.produce("t", {"messages": [{"body": "a"}]})
    api.produce("t", {"messages": [{"body": "a", "delay_ms": 1}]})
    api.pop("t", "g", {"max_messages": 1})
    minutes(api, clock, 1)
    while messages := api.pop("t", "g", {})["messages"]:
        api.ack("t", "g", {"receipts": [message["receipt"] for message in messages]})
    api.put_group(
        "t", "called", {"start": "latest", "push": {"url": "https://example.com/hook"}, "alarm": {"ready": 1}}
    )
    api.put_topic("t", {"queues": 1})
    minutes(api, clock, 20)
    assert (api.get_topic("t").get("draining"), appointments(store)) == (None, [])
    with_idle_topics(api, store, topics)
    minutes(api, clock, 10)
    meter = store.meter
    before = meter.read_units, meter.write_units, meter.round_trips
    minutes(api, clock, 1)
    return (
        meter.read_units - before[0],
        meter.write_units - before[1],
        meter.round_trips - before[2],
    )


def test_an_idle_round_costs_the_same_for_ten_topics_and_ten_thousand() -> None:
    assert idle_round(10) == idle_round(1_000) == idle_round(10_000) == (13.5, 0, 12)


@pytest.mark.parametrize(("settings", "most"), [({}, 3.1), ({"alarm": {"ready": 1}}, 5.1)], ids=str)
def test_an_idle_topic_costs_a_few_reads_a_day(settings: dict[str, Any], most: float) -> None:
    """At 0.125 dollars for a million reads a million topics cost 0.39 or 0.64 dollars."""
    store, clock = MemoryStore(), Clock()
    api = instance(store, clock)
    api.put_topic("t", {})
    api.put_group("t", "g", settings)
    minutes(api, clock, 10)
    with_idle_topics(api, store, 1_000)
    minutes(api, clock, 10)
    before = store.meter.copy()
    clock.sleep(DAY_MS)
    sweep(api)
    minutes(api, clock, 60)
    cost, idle_stage = store.meter.since(before), 61 * 13.5
    assert cost.read_units - idle_stage <= most * 1_000
    assert cost.write_units <= 1


@pytest.mark.parametrize("delay_ms", [1, 30_000, 90_000, 10 * MINUTE_MS, 3 * HOUR_MS])
def test_a_delayed_message_comes_within_a_minute_though_nobody_polls(api: Api, clock: Clock, delay_ms: int) -> None:
    delayed(api, delay_ms)
    minutes(api, clock, delay_ms // MINUTE_MS + 1)
    assert api.get_group("t", "g")["ready"] == 1


@pytest.mark.parametrize("calls", [1, 5])
def test_each_of_many_delays_comes_in_its_minute_though_nobody_polls(api: Api, clock: Clock, calls: int) -> None:
    messages = [{"body": "a", "delay_ms": minute * MINUTE_MS - 1, "queue": 0} for minute in (7, 3, 30, 5, 4)]
    minutes(api, clock, 1)  # this round looks at all topics
    for call in range(calls):
        api.produce("t", {"messages": messages[call::calls]})
    arrived: list[int] = []
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


@pytest.mark.parametrize("is_forgotten", [False, True])
def test_what_is_due_first_in_any_queue_comes_in_its_minute(
    api: Api, store: MemoryStore, clock: Clock, is_forgotten: bool
) -> None:
    """`is_forgotten`: the hourly sweep of all topics makes the appointments again."""
    api.put_topic("t", {"queues": 3})
    for queue, minute in enumerate((80, 95, 110)):
        api.produce("t", {"messages": [{"body": "a", "queue": queue}]})
        assert api.pop("t", "g", {"invisible_ms": minute * MINUTE_MS - 1})["messages"]
        api.produce("t", {"messages": [{"body": "a", "queue": queue, "delay_ms": (minute - 10) * MINUTE_MS - 1}]})
    if is_forgotten:
        forget(store)
        api = instance(store, clock, 2)
    seen: dict[tuple[int, int], int] = {}
    for minute in range(1, 111):
        minutes(api, clock, 1)
        group = api.get_group("t", "g")
        seen.setdefault((group["ready"], group["dead"]), minute)
    assert seen == {(0, 0): 1, (1, 0): 70, (1, 1): 80, (2, 1): 85, (2, 2): 95, (3, 2): 100, (3, 3): 110}


@pytest.mark.parametrize(("invisible_ms", "minute"), [(30_000, 1), (10 * MINUTE_MS, 10)])
@pytest.mark.parametrize("is_known", [True, False])
def test_an_extended_last_attempt_ends_at_its_new_time(
    api: Api, store: MemoryStore, clock: Clock, is_known: bool, invisible_ms: int, minute: int
) -> None:
    api.produce("t", {"messages": [{"body": "a"}]})
    [message] = api.pop("t", "g", {"invisible_ms": 5 * MINUTE_MS})["messages"]
    clock.sleep(20_000)
    other = api if is_known else instance(store, clock, 2)
    other.extend("t", "g", {"receipts": [message["receipt"]], "invisible_ms": invisible_ms})
    passed = 0
    while passed <= minute and not api.get_group("t", "g")["dead"]:
        minutes(api, clock, 1)
        passed += 1
    assert passed == minute


def test_leases_that_a_changed_group_makes_the_last_end_in_time(api: Api, clock: Clock) -> None:
    api.put_group("t", "g", {"max_attempts": 3})
    api.produce("t", {"messages": [{"body": "a"}]})
    api.pop("t", "g", {"invisible_ms": 10 * MINUTE_MS - 1})
    api.put_group("t", "g", {"max_attempts": 1})
    minutes(api, clock, 10)
    assert api.get_group("t", "g")["dead"] == 1


def test_leases_of_a_group_that_gets_an_end_of_attempts_end_in_time(api: Api, store: MemoryStore, clock: Clock) -> None:
    api.put_group("t", "g", {"max_attempts": None})
    minutes(api, clock, 20)
    api.produce("t", {"messages": [{"body": "a"}]})
    api.pop("t", "g", {"invisible_ms": 10 * MINUTE_MS - 1})
    assert appointments(store) == []
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


def test_appointments_of_a_deleted_group_end(api: Api, store: MemoryStore, clock: Clock) -> None:
    api.produce("t", {"messages": [{"body": "a"}]})
    api.pop("t", "g", {"max_messages": 1})
    api.delete_group("t", "g")
    assert appointments(store) == [("revive", "t#g")]
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


def test_what_has_work_left_stays_on_the_agenda(api: Api, store: MemoryStore, clock: Clock) -> None:
    api.put_group("t", "watched", {"alarm": {"ready": 1}})
    api.put_group("t", "called", {"push": {"url": "https://example.com/hook"}})
    minutes(api, clock, 10)
    assert appointments(store) == []
    api.produce("t", {"messages": [{"body": "a"}]})
    minutes(api, clock, 10)
    assert appointments(store) == [("check", "t"), ("push", "t")]
    api.put_group("t", "watched", {"alarm": {}})
    api.put_topic("t", {"queues": 2})
    api.put_topic("t", {"queues": 1})
    minutes(api, clock, 4)
    assert appointments(store) == [("check", "t"), ("push", "t")]
    api.delete_group("t", "called")
    api.put_topic("beside", {"queues": 2})
    api.put_group("beside", "g", {"alarm": {"ready": 9}, "invisible_ms": HOUR_MS})
    api.produce("beside", {"messages": [{"body": "a", "queue": 1}]})
    api.pop("beside", "g", {})
    minutes(api, clock, 10)
    assert (api.get_topic("t").get("draining"), appointments(store)) == (None, [("check", "beside")])


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


def test_an_outbox_of_a_delayed_message_is_swept_however_late(api: Api, store: MemoryStore, clock: Clock) -> None:
    """It may be sent a quarter of an hour after the message is due."""
    delayed(api, 10 * MINUTE_MS)
    item = api.outbox_item("t", {"body": "a", "delay_ms": 10 * MINUTE_MS})
    minutes(api, clock, 10 + STORED_LATE_MS_MAX // MINUTE_MS)
    store.put_all([item])
    minutes(api, clock, 1)
    assert api.get_group("t", "g")["ready"] == 2


def test_appointments_do_not_pile_up_while_something_is_due(api: Api, store: MemoryStore, clock: Clock) -> None:
    for _ in range(30):
        delayed(api, 2 * MINUTE_MS - 1)
        minutes(api, clock, 1)
    assert len(appointments(store)) <= 6


def test_what_was_cancelled_in_a_queue_that_left_ends_with_it(api: Api, store: MemoryStore, clock: Clock) -> None:
    api.put_topic("t", {"queues": 2})
    clock.sleep(MINUTE_MS)
    sent = api.produce("t", {"messages": [{"body": "a", "delay_ms": HOUR_MS, "queue": 1}]})["messages"]
    api.cancel_delayed("t", sent[0]["message_id"])
    api.put_topic("t", {"queues": 1})
    minutes(api, clock, 70)
    assert appointments(store) == []


@pytest.mark.parametrize("knows", [True, False])
def test_a_message_redriven_in_a_queue_that_left_brings_it_back(
    api: Api, store: MemoryStore, clock: Clock, knows: bool
) -> None:
    """Even if it left after the call that redrives the message had read the topic."""
    api.put_topic("t", {"queues": 2})
    clock.sleep(MINUTE_MS)
    api.produce("t", {"messages": [{"body": "a", "queue": 1}]})
    [message] = api.pop("t", "g", {})["messages"]
    api.bury("t", "g", {"receipts": [message["receipt"]]})
    api.put_topic("t", {"queues": 1})
    catalogue = api.service.env.catalogue
    read_before = catalogue.current_topic("t")
    minutes(api, clock, 30)
    assert (api.get_topic("t").get("draining"), appointments(store)) == (None, [])
    api.service.dead_letters.redrive.all(catalogue.current_topic("t") if knows else read_before, "g")
    minutes(api, clock, 1)
    [again] = api.pop("t", "g", {})["messages"]
    api.ack("t", "g", {"receipts": [again["receipt"]]})
    minutes(api, clock, 30)
    assert (again["body"], api.get_topic("t").get("draining"), appointments(store)) == ("a", None, [])


def test_a_check_that_meets_trouble_is_made_again(api: Api, store: MemoryStore, clock: Clock) -> None:
    api.put_topic("t", {"queues": 2})
    api.produce("t", {"messages": [{"body": "a", "queue": 1}]})
    [message] = api.pop("t", "g", {})["messages"]
    api.bury("t", "g", {"receipts": [message["receipt"]]})
    api.put_topic("t", {"queues": 1})
    minutes(api, clock, 30)
    api.redrive_dead("t", "g", {})
    clock.sleep(10 * MINUTE_MS)
    true = store.read

    def read(reads: Sequence[Read]) -> list[list[Item]]:
        if any(isinstance(asked, Range) and asked.pk.startswith("log#") for asked in reads):
            raise StoreUnavailable("throttled")
        return true(reads)

    store.read = read  # type: ignore[method-assign]
    with pytest.raises(StoreUnavailable):
        api.service.sweeps.check()
    store.read = true  # type: ignore[method-assign]
    api.service.sweeps.check()
    assert [each["body"] for each in instance(store, clock, 2).pop("t", "g", {})["messages"]] == ["a"]


def test_a_delayed_message_stored_in_a_queue_that_left_brings_it_back(
    api: Api, store: MemoryStore, clock: Clock
) -> None:
    api.put_topic("t", {"queues": 2})
    clock.sleep(MINUTE_MS)
    item = api.outbox_item("t", {"body": "a", "delay_ms": 10 * MINUTE_MS, "queue": 1})
    api.put_topic("t", {"queues": 1})
    minutes(api, clock, 40)
    assert (api.get_topic("t").get("draining"), appointments(store)) == (None, [])
    store.put_all([item])
    api.service.env.agenda.appoint("forward", "t", clock.now())
    assert api.service.sweeps.forward().as_json() == {"seen": 1, "done": 0}
    minutes(api, clock, 3)
    assert [each["body"] for each in api.pop("t", "g", {})["messages"]] == ["a"]


def with_a_topic_whose_log_is_throttled(api: Api, store: MemoryStore) -> None:
    """It comes before all others."""
    api.put_topic("a", {"queues": 1})
    [topic_id] = [item["id"] for item in store.read([Keys([keys.topic("a")])])[0]]
    api.produce("a", {"messages": [{"body": "a", "delay_ms": 1}]})
    true = store.write

    def but_to_the_log(write: Write) -> Item:
        if write.key.pk == keys.log(topic_id, 0):
            raise StoreUnavailable("throttled")
        return true(write)

    store.write = but_to_the_log  # type: ignore[method-assign]


def test_a_topic_in_trouble_stops_the_sweep_of_no_other(api: Api, store: MemoryStore, clock: Clock) -> None:
    with_a_topic_whose_log_is_throttled(api, store)
    clock.sleep(2 * MINUTE_MS)
    delayed(api, 1)
    clock.sleep(MINUTE_MS)
    with pytest.raises(StoreUnavailable):
        api.service.sweeps.forward()
    assert api.get_group("t", "g")["ready"] == 1


def test_a_grave_in_trouble_leaves_no_appointment_missing(api: Api, store: MemoryStore, clock: Clock) -> None:
    api.put_topic("a", {"queues": 1})
    true = store.remove_all

    def throttled(keys: Sequence[Key]) -> None:
        raise StoreUnavailable("throttled")

    store.remove_all = throttled  # type: ignore[method-assign]
    api.produce("a", {"messages": [{"body": body} for body in noise(3, 20_000)]})
    api.delete_topic("a")
    delayed(api, 5)
    forget(store)
    clock.sleep(HOUR_MS)
    with pytest.raises(StoreUnavailable):
        instance(store, clock, 2).service.sweeps.expire()
    store.remove_all = true  # type: ignore[method-assign]
    assert appointments(store) == [("forward", "t")]


def test_many_due_messages_of_one_topic_hold_up_no_other(api: Api, store: MemoryStore, clock: Clock) -> None:
    api.put_topic("a", {"queues": 1})
    for _ in range(60):
        api.produce("a", {"messages": [{"body": "a", "delay_ms": 1}] * 100})
    delayed(api, 2)
    clock.sleep(MINUTE_MS)
    true = store.write

    def slow(write: Write) -> Item:
        clock.ms += 1_000 if write.key.pk.startswith("log#") else 0
        return true(write)

    store.write = slow  # type: ignore[method-assign]
    swept = api.service.sweeps.forward()
    assert api.get_group("t", "g")["ready"] == 1
    assert swept.done < 6_001, "there was no time for all"


def test_a_note_of_an_earlier_release_stops_no_sweep(api: Api, store: MemoryStore, clock: Clock) -> None:
    """Then sweeps went through topics, and noted the name of one."""
    store.put_all([{**keys.sweep(agenda)._asdict(), "after": "orders", "at": clock.now()} for agenda in AGENDAS])
    delayed(api, 5)
    minutes(api, clock, 1)
    assert api.get_group("t", "g")["ready"] == 1


def test_what_has_no_appointment_is_found_within_a_day(api: Api, store: MemoryStore, clock: Clock) -> None:
    """A table of an earlier release has none at all."""
    api.put_topic("a", {"queues": 1})
    for name in ("shrunk", "redriven"):
        api.put_topic(name, {"queues": 2})
        api.put_group(name, "g", {"max_attempts": 1})
    api.produce("redriven", {"messages": [{"body": "a", "queue": 1}]})
    [message] = api.pop("redriven", "g", {})["messages"]
    api.bury("redriven", "g", {"receipts": [message["receipt"]]})
    api.put_topic("redriven", {"queues": 1})
    clock.sleep(HOUR_MS)
    api.service.sweeps.check()
    api.service.sweeps.revive()
    api.redrive_dead("redriven", "g", {})
    api.put_topic("shrunk", {"queues": 1})
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
    clock.sleep(DAY_MS)
    instance(store, clock, 3).service.sweeps.expire()
    assert appointments(store) == made


def test_a_raised_alarm_without_an_appointment_is_cleared_within_a_day(
    api: Api, store: MemoryStore, clock: Clock
) -> None:
    api.put_group("t", "g", {"alarm": {"ready": 1}})
    api.produce("t", {"messages": [{"body": "a"}]})
    minutes(api, clock, 1)
    receipts = [message["receipt"] for message in api.pop("t", "g", {})["messages"]]
    api.ack("t", "g", {"receipts": receipts})
    forget(store)
    assert api.get_group("t", "g")["alarm_state"] == "raised"
    clock.sleep(DAY_MS)
    minutes(instance(store, clock, 2), clock, 2)
    assert api.get_group("t", "g")["alarm_state"] == "cleared"


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


@pytest.mark.parametrize("settle_by", ["delivery", "message"])
def test_a_heartbeat_that_ends_nothing_sooner_makes_no_appointment(
    api: Api, store: MemoryStore, clock: Clock, settle_by: str
) -> None:
    """At an instance that has not seen the lease."""
    api.put_group("t", "g", {"settle_by": settle_by, "max_attempts": 16})
    api.produce("t", {"messages": [{"body": "a"}]})
    [message] = api.pop("t", "g", {})["messages"]
    forget(store)
    told = instance(store, clock).extend("t", "g", {"receipts": [message["receipt"]], "invisible_ms": 60_000})
    assert (told["failed"], appointments(store)) == ([], [])


def test_an_extension_where_an_older_group_is_known_makes_its_appointment(
    api: Api, store: MemoryStore, clock: Clock
) -> None:
    """Attempts had no end in the older one."""
    other = instance(store, clock, 2)
    api.put_group("t", "g", {"max_attempts": None})
    other.pop("t", "g", {})
    api.delete_group("t", "g")
    api.put_group("t", "g", {"max_attempts": 1})
    api.produce("t", {"messages": [{"body": "a"}]})
    [message] = api.pop("t", "g", {})["messages"]
    forget(store)
    other.extend("t", "g", {"receipts": [message["receipt"]], "invisible_ms": 1_000})
    assert appointments(store) == [("revive", keys.subject("t", "g"))]


def test_one_of_several_extended_leases_that_ends_sooner_is_appointed(
    api: Api, store: MemoryStore, clock: Clock
) -> None:
    """The other one, which ends later than it did, may be tried again."""
    api.put_group("t", "g", {"max_attempts": 2})
    minutes(api, clock, 20)
    api.produce("t", {"messages": [{"body": "a"}]})
    [first] = api.pop("t", "g", {})["messages"]
    api.nack("t", "g", {"receipts": [first["receipt"]], "delay_ms": 0})
    [last] = api.pop("t", "g", {"invisible_ms": HOUR_MS})["messages"]
    api.produce("t", {"messages": [{"body": "b"}]})
    [other] = api.pop("t", "g", {"invisible_ms": MINUTE_MS})["messages"]
    receipts = [last["receipt"], other["receipt"]]
    assert api.extend("t", "g", {"receipts": receipts, "invisible_ms": 5 * MINUTE_MS})["failed"] == []
    minutes(api, clock, 5)
    assert api.get_group("t", "g")["dead"] == 1


def test_an_extension_where_older_settings_are_known_makes_its_appointment(
    api: Api, store: MemoryStore, clock: Clock
) -> None:
    """Attempts had no end then."""
    api.put_group("t", "g", {"max_attempts": None})
    api.produce("t", {"messages": [{"body": "a"}]})
    [message] = api.pop("t", "g", {"invisible_ms": 10 * HOUR_MS})["messages"]
    other = instance(store, clock, 2)
    other.put_group("t", "g", {"max_attempts": 1})
    minutes(other, clock, 20)
    api.extend("t", "g", {"receipts": [message["receipt"]], "invisible_ms": 5 * MINUTE_MS})
    minutes(other, clock, 5)
    assert other.get_group("t", "g")["dead"] == 1
