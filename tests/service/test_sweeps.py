"""Sweeps do on a schedule what no caller triggers."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest
from chalice.test import Client

import app
from chalicelib import wiring
from chalicelib.api import Api
from chalicelib.core.base.errors import StoreUnavailable, TopicNotFound
from chalicelib.core.base.limits import EXPIRED_KEPT_MS, HOUR_MS, IDLE_CONSUMER_MS, MINUTE_MS, QUEUES_DEFAULT
from chalicelib.core.store import Range
from chalicelib.core.table import keys
from chalicelib.core.table.writes import Item, Key, Write
from chalicelib.core.upkeep import expiry, rounds
from chalicelib.core.upkeep.sweeps import SWEEP_MS
from local.memory.store import MemoryStore
from tests.store.strict import StrictStore
from tests.support.clock import Clock
from tests.support.instances import instance
from tests.support.orders import noise

GROUP = {"invisible_ms": 1_000, "max_attempts": 1}


def prepared(api: Api, topics: int = 1, queues: int = 1) -> None:
    for number in range(topics):
        api.put_topic(f"t{number}", {"queues": queues})
        api.put_group(f"t{number}", "g", GROUP)


def totals(api: Api, topic: str = "t0") -> tuple[int, int, int]:
    found = api.get_group(topic, "g")
    return found["ready"], found["in_flight"], found["dead"]


def produce(api: Api, *bodies: str, topic: str = "t0") -> None:
    api.produce(topic, {"messages": [{"body": body, "queue": 0} for body in bodies]})


def test_a_message_at_its_last_attempt_dies_though_nobody_pops() -> None:
    clock = Clock()
    api = instance(MemoryStore(), clock)
    prepared(api)
    produce(api, "a", "b", "c")
    api.pop("t0", "g", {"max_messages": 2})
    assert api.service.sweeps.revive().as_json() == {"seen": 1, "done": 0}
    clock.sleep(1_000)
    assert totals(api) == (3, 0, 0)
    assert api.service.sweeps.revive().as_json() == {"seen": 1, "done": 2}
    assert totals(api) == (1, 0, 2)
    assert api.service.sweeps.revive().as_json() == {"seen": 1, "done": 0}


def test_a_lease_that_may_be_tried_again_is_left_to_the_next_pop() -> None:
    clock = Clock()
    api = instance(MemoryStore(), clock)
    api.put_topic("t0", {"queues": 1})
    api.put_group("t0", "g", {**GROUP, "max_attempts": 2})
    produce(api, "a")
    api.pop("t0", "g", {})
    clock.sleep(1_000)
    assert api.service.sweeps.revive().as_json() == {"seen": 0, "done": 0}
    assert api.pop("t0", "g", {})["messages"][0]["attempt"] == 2


def test_sweeps_at_once_bury_a_message_once() -> None:
    clock, store = Clock(), MemoryStore()
    one, other = instance(store, clock, 1), instance(store, clock, 2)
    prepared(one)
    produce(one, *"abcdefgh")
    one.pop("t0", "g", {})
    clock.sleep(1_000)
    buried = one.service.sweeps.revive().done + other.service.sweeps.revive().done
    assert (buried, totals(one)) == (8, (0, 0, 8))


def test_a_sweep_that_ran_out_of_time_goes_on_where_it_stopped() -> None:
    class SlowClock(Clock):
        def now(self) -> int:
            self.ms += 1_000
            return self.ms

    store, clock, slow = MemoryStore(), Clock(), SlowClock()
    quick = instance(store, clock)
    prepared(quick, topics=250)
    for number in range(250):
        produce(quick, "a", topic=f"t{number}")
        quick.pop(f"t{number}", "g", {})
    slow.sleep(MINUTE_MS)
    api = instance(store, slow)
    buried = [api.service.sweeps.revive().done for _ in range(3)]
    assert sum(buried) == 250
    assert max(buried) < 250, f"one sweep of {SWEEP_MS} ms went through all"


def test_rounds_go_on_where_they_stopped_and_begin_again_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds, "_PAGE", 2)
    clock, store = Clock(), StrictStore()
    own = rounds.Rounds(instance(store, clock).service.env)
    store.put_all([{"pk": "p", "sk": name} for name in "abcde"])

    def seen(every_ms: int, until_ms: int = 0) -> list[str]:
        pages = own.pages(f"{every_ms}", ["p"], until_ms, last="x", every_ms=every_ms)
        return ["".join(item["sk"] for item in page) for page in pages]

    assert [seen(0) for _ in range(4)] == [["ab"], ["cd"], ["e"], ["ab"]]
    assert [seen(HOUR_MS) for _ in range(4)] == [["ab"], ["cd"], ["e"], []]
    clock.sleep(HOUR_MS)
    assert seen(HOUR_MS, clock.uptime()) == ["ab", "cd", "e"]
    for note in "xy":
        store.put_all([{**keys.sweep("0")._asdict(), "after": note, "at": clock.now()}])
        assert seen(0) == ["ab"]


class Tired(MemoryStore):
    """Has no strength to remove anything, for a while."""

    is_tired = True

    def remove_all(self, keys: Sequence[Key]) -> None:
        if self.is_tired:
            raise StoreUnavailable("tired")
        super().remove_all(keys)


def test_the_remains_of_a_deleted_topic_are_removed() -> None:
    store = Tired()
    api = instance(store, Clock())
    last = QUEUES_DEFAULT
    api.put_topic("t0", {"queues": last + 1})
    bodies = noise(3, 20_000)
    api.produce("t0", {"messages": [{"body": body, "queue": queue} for queue in (0, last) for body in bodies]})
    api.produce("t0", {"messages": [{"body": "a", "queue": last, "delay_ms": HOUR_MS}]})
    topic_id = store.read([Range("topics", " ", "~")])[0][0]["listed"]
    logs = [Range(f"log#{topic_id}#{queue}", " ", "~") for queue in (0, last)]
    api.delete_topic("t0")
    assert all(segment["entries"] for items in store.read(logs) for segment in items)
    store.is_tired = False
    assert api.service.sweeps.expire().as_json() == {"seen": 1, "done": 1}
    assert [[segment["entries"] for segment in items] for items in store.read(logs)] == [[[]], [[]]]
    assert not any(items for pk, items in store._items.items() if pk.startswith(("payload#", "delay#")))
    assert api.service.sweeps.expire().as_json() == {"seen": 0, "done": 0}


def test_consumers_of_a_broadcast_group_that_are_idle_are_forgotten() -> None:
    clock = Clock()
    api = instance(MemoryStore(), clock)
    api.put_topic("t0", {"queues": 1})
    api.put_group("t0", "g", {"mode": "broadcast"})
    produce(api, "a")
    for name in ("x", "y"):
        api.pop("t0", "g", {"consumer_id": name})
    assert api.service.sweeps.expire().as_json() == {"seen": 1, "done": 0}
    clock.sleep(IDLE_CONSUMER_MS // 2)
    api.pop("t0", "g", {"consumer_id": "y"})
    clock.sleep(IDLE_CONSUMER_MS // 2 + 1_000)
    assert api.service.sweeps.expire().as_json() == {"seen": 1, "done": 1}
    assert api.service.sweeps.expire().as_json() == {"seen": 0, "done": 0}, "the next look is in an hour"


def test_due_messages_are_delivered_though_nobody_pops() -> None:
    clock = Clock()
    api = instance(MemoryStore(), clock)
    prepared(api)
    api.produce("t0", {"messages": [{"body": f"{ms}", "delay_ms": ms} for ms in (100, 200, 5_000)]})
    assert api.service.sweeps.forward().as_json() == {"seen": 1, "done": 0}
    clock.sleep(200)
    assert api.service.sweeps.forward().as_json() == {"seen": 1, "done": 2}
    assert totals(api) == (2, 0, 0)
    assert api.service.sweeps.forward().as_json() == {"seen": 1, "done": 0}


@pytest.mark.parametrize("sweep", ["forward", "revive"])
def test_a_sweep_that_meets_trouble_does_the_rest_and_fails(sweep: str) -> None:
    clock, store = Clock(), MemoryStore()
    api = instance(store, clock)
    prepared(api, topics=2)
    for topic in ("t0", "t1"):
        api.produce(topic, {"messages": [{"body": "a", **({"delay_ms": 100} if sweep == "forward" else {})}]})
        api.pop(topic, "g", {"invisible_ms": 100})
    clock.sleep(100)
    first = store.read([Range(keys.topics(), keys.FIRST, keys.LAST)])[0][0]["listed"]
    alone, together = store.write, store.write_together

    def write(write: Write) -> Item:
        if first in write.key.pk:
            raise StoreUnavailable("throttled")
        return alone(write)

    def write_together(writes: Sequence[Write]) -> None:
        if any(first in write.key.pk for write in writes):
            raise StoreUnavailable("throttled")
        together(writes)

    store.write, store.write_together = write, write_together  # type: ignore[method-assign]
    with pytest.raises(StoreUnavailable, match="throttled"):
        getattr(api.service.sweeps, sweep)()
    ready, dead = (sum(each) for each in list(zip(totals(api, "t0"), totals(api, "t1"), strict=True))[::2])
    assert (ready, dead) == ((1, 0) if sweep == "forward" else (1, 1))


def test_messages_that_fall_due_during_a_sweep_are_left_to_consumers() -> None:
    clock, store = Clock(), MemoryStore()
    api = instance(store, clock)
    prepared(api)
    api.produce("t0", {"messages": [{"body": f"{ms}", "delay_ms": ms} for ms in range(10, 2_000, 10)]})
    clock.sleep(100)
    at_once = store.write

    def slow(write: Write) -> Item:
        clock.sleep(50)
        return at_once(write)

    store.write = slow  # type: ignore[method-assign]
    assert api.service.sweeps.forward().as_json() == {"seen": 1, "done": 10}
    assert totals(api) == (10, 0, 0)


def test_the_schedule_runs_them() -> None:
    wiring.use(instance(MemoryStore(), Clock()))
    try:
        with Client(app.app) as client:
            event = client.events.generate_cw_event("aws.events", "Scheduled Event", {}, [])
            for name in ("forward", "revive", "expire", "check", "move"):
                assert client.lambda_.invoke(name, event).payload == {"seen": 0, "done": 0}
    finally:
        wiring.use(None)


@pytest.fixture
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounds and removals go an item at a time, so that what is counted is of several pages."""
    monkeypatch.setattr(rounds, "_PAGE", 1)
    monkeypatch.setattr(expiry, "_PAGE", 2)


@pytest.mark.usefixtures("small_pages")
def test_a_sweep_counts_the_delayed_messages_of_all_topics() -> None:
    clock = Clock()
    api = instance(MemoryStore(), clock)
    prepared(api, topics=2, queues=2)
    for topic, counts in (("t0", (40, 2)), ("t1", (1, 3))):
        for queue, count in enumerate(counts):
            for _ in range(count):
                api.produce(topic, {"messages": [{"body": "a", "delay_ms": 100, "queue": queue}]})
    clock.sleep(100)
    assert api.service.sweeps.forward().as_json() == {"seen": 4, "done": 46}
    assert totals(api, "t0") == (42, 0, 0)


@pytest.mark.usefixtures("small_pages")
def test_a_sweep_counts_pushes_and_forgotten_consumers_of_all_topics() -> None:
    clock = Clock()
    api = instance(MemoryStore(), clock)
    prepared(api, topics=2)
    for topic in ("t0", "t1"):
        api.put_group(topic, "pushed", {"push": {"url": "https://example.com/hook"}})
        api.put_group(topic, "all", {"mode": "broadcast"})
        produce(api, "a", topic=topic)
        for consumer in ("x", "y"):
            api.pop(topic, "all", {"consumer_id": consumer})
    woken: list[str] = []
    assert api.service.sweeps.push(lambda name, _: woken.append(name)).as_json() == {"seen": 2, "done": 2}
    assert sorted(woken) == ["t0", "t1"]
    clock.sleep(IDLE_CONSUMER_MS + 1_000)
    assert api.service.sweeps.expire().as_json() == {"seen": 2, "done": 4}


@pytest.mark.usefixtures("small_pages")
def test_a_sweep_counts_the_queues_that_left_all_topics() -> None:
    clock = Clock()
    api = instance(MemoryStore(), clock)
    prepared(api, topics=2, queues=2)
    for topic in ("t0", "t1"):
        api.put_topic(topic, {"queues": 1})
    clock.sleep(HOUR_MS)
    assert api.service.sweeps.check().as_json() == {"seen": 2, "done": 2}


@pytest.mark.usefixtures("small_pages")
def test_a_sweep_counts_the_remains_of_all_deleted_topics() -> None:
    store = Tired()
    api = instance(store, Clock())
    prepared(api, topics=2)
    for topic in ("t0", "t1"):
        produce(api, "a", topic=topic)
        api.delete_topic(topic)
    store.is_tired = False
    assert api.service.sweeps.expire().as_json() == {"seen": 2, "done": 2}


@pytest.mark.usefixtures("small_pages")
def test_a_sweep_counts_what_has_expired_in_all_queues() -> None:
    clock, store = Clock(), MemoryStore()
    api = instance(store, clock)
    api.put_topic("t0", {"queues": 2, "retention_ms": HOUR_MS})
    for group in ("g", "h"):
        api.put_group("t0", group, GROUP)
    for queue in (0, 1):
        for body in noise(8, 20_000):
            api.produce("t0", {"messages": [{"body": body, "queue": queue}]})
            api.produce("t0", {"messages": [{"body": "later", "queue": queue, "delay_ms": 1}]})
            clock.sleep(10)
            api.service.sweeps.forward()
    for group in ("g", "h"):
        while got := api.pop("t0", group, {"max_messages": 100})["messages"]:
            api.nack("t0", group, {"receipts": [each["receipt"] for each in got]})
    clock.sleep(HOUR_MS + EXPIRED_KEPT_MS)
    kinds = ("log#", "promotions#", "dead#")
    before = items_of(store, *kinds)
    done = api.service.sweeps.expire().done
    assert done == before - items_of(store, *kinds) > 40


def items_of(store: MemoryStore, *prefixes: str) -> int:
    return sum(len(items) for pk, items in store._items.items() if pk.startswith(prefixes))


def test_a_sweep_of_a_topic_that_is_deleted_meanwhile_counts_nothing() -> None:
    clock = Clock()
    api = instance(MemoryStore(), clock)
    prepared(api, queues=2)
    api.put_topic("t0", {"queues": 1})
    api.produce("t0", {"messages": [{"body": "a", "delay_ms": 100}]})
    clock.sleep(100)

    def gone(*_: object) -> int:
        raise TopicNotFound("t0")

    sweeps = api.service.sweeps
    sweeps._promoter.promote = gone  # type: ignore[method-assign, assignment]
    sweeps._expiry.trim = gone  # type: ignore[method-assign, assignment]
    sweeps._admin.draining.step = gone  # type: ignore[method-assign, assignment]
    assert (sweeps.forward().done, sweeps.check().done, sweeps.expire().done) == (0, 0, 0)


def told(api: Api) -> list[dict[str, object]]:
    """The log lines from now on."""
    lines: list[dict[str, object]] = []
    api.service.telemetry.log_to(lambda line: lines.append(json.loads(line)), "decant")
    return lines


def test_a_sweep_tells_what_it_did_beside_what_it_is() -> None:
    clock = Clock()
    api = instance(MemoryStore(), clock)
    prepared(api)
    produce(api, "a")
    api.pop("t0", "g", {})
    clock.sleep(MINUTE_MS)
    lines = told(api)
    api.service.sweeps.revive()
    assert [(line["sweep"], line["seen"], line["done"]) for line in lines] == [("revive", 1, 1)]


def test_a_check_tells_the_backlog_of_a_calm_group() -> None:
    clock = Clock()
    api = instance(MemoryStore(), clock)
    prepared(api)
    api.put_group("t0", "g", {**GROUP, "alarm": {"ready": 9}})
    produce(api, "a", "b")
    got = api.pop("t0", "g", {"max_messages": 2})["messages"]
    api.nack("t0", "g", {"receipts": [each["receipt"] for each in got]})
    clock.sleep(MINUTE_MS)
    lines = told(api)
    assert api.service.sweeps.check().as_json() == {"seen": 1, "done": 0}
    [backlog] = [line for line in lines if line["operation"] == "backlog"]
    assert (backlog["ready"], backlog["dead_letters"], backlog["oldest_age_ms"]) == (0, 2, 0)
    assert [line["AlarmsRaised"] for line in lines if line["operation"] == "sweep"] == [0]


def test_a_check_tells_the_dead_letters_of_a_queue_that_has_left_too() -> None:
    clock = Clock()
    api = instance(MemoryStore(), clock)
    prepared(api, queues=2)
    api.put_group("t0", "g", {**GROUP, "alarm": {"ready": 1}})
    for queue, count in enumerate((1, 2)):
        api.produce("t0", {"messages": [{"body": "a", "queue": queue}] * count})
    while got := api.pop("t0", "g", {"max_messages": 9})["messages"]:
        api.nack("t0", "g", {"receipts": [each["receipt"] for each in got]})
    api.put_topic("t0", {"queues": 1})
    clock.sleep(HOUR_MS)
    api.service.sweeps.check()
    produce(api, "b")
    lines = told(api)
    api.service.sweeps.check()
    [backlog] = [line for line in lines if line["operation"] == "backlog"]
    assert (len(api.get_group("t0", "g")["queues"]), backlog["ready"], backlog["dead_letters"]) == (1, 1, 3)


@pytest.mark.parametrize("meanwhile", ["another check raises it", "the group is deleted"])
def test_a_check_that_raises_no_alarm_counts_none(meanwhile: str) -> None:
    clock, store = Clock(), MemoryStore()
    api, other = instance(store, clock), instance(store, clock, 1)
    prepared(api)
    api.put_group("t0", "g", {**GROUP, "alarm": {"ready": 1}})
    produce(api, "a", "b")
    api.service.sweeps.check()
    api.service.sweeps.check()
    clock.sleep(MINUTE_MS)
    got = api.pop("t0", "g", {"max_messages": 2})["messages"]
    api.ack("t0", "g", {"receipts": [each["receipt"] for each in got]})
    clock.sleep(MINUTE_MS)
    groups, details = api.service.sweeps._alarms._groups, api.service.sweeps._alarms._groups.details

    def late(*arguments: object) -> object:
        if meanwhile == "the group is deleted":
            other.delete_group("t0", "g")
        else:
            assert other.service.sweeps.check().done == 1
        return details(*arguments)  # type: ignore[arg-type]

    groups.details = late  # type: ignore[method-assign, assignment]
    assert api.service.sweeps.check().as_json() == {"seen": 1, "done": 0}
