"""Senders of one dedup id by clocks that differ, while others overtake them, and records that arrive late."""

from __future__ import annotations

from chalicelib.api import Api
from chalicelib.core.base.limits import DAY_MS, DEDUP_MS
from chalicelib.core.table.writes import Item, Refused, Write
from local.memory.store import MemoryStore
from tests.support.clock import START_MS, Clock
from tests.support.instances import instance as at_a_virtual_time
from tests.support.recording_store import RecordingStore
from tests.support.troubled_store import TroubledStore, unavailable


def send(api: Api, body: str) -> object:
    """The offset it gets, with the id `x`."""
    return api.produce("t", {"messages": [{"body": body, "dedup_id": "x"}]})["messages"][0]["offset"]


def test_a_record_that_arrives_late_changes_nothing() -> None:
    """While a newer one stands it is refused; where there is none any more it is born too old to stand."""
    store, clock = RecordingStore(), Clock()
    api = at_a_virtual_time(store, clock)
    api.put_topic("t", {"queues": 1})
    assert send(api, "a") == 0
    [late] = [write for write in store.sent if write.key.sk == "record"]
    clock.ms += DEDUP_MS
    assert send(api, "b") == 1
    try:
        MemoryStore.write(store, late)
    except Refused:
        pass
    assert send(api, "c") == 1
    clock.ms += DEDUP_MS
    store.remove_all([late.key])
    MemoryStore.write(store, late)
    assert send(api, "d") == 2
    assert len(api.read_messages("t", {})["messages"]) == 3


def test_a_repeat_that_is_refused_as_the_time_ends_gets_the_first_place() -> None:
    """The record that the store has shown counts: a repeat that took it for expired would be stored without one."""
    clock = Clock()

    class SlowToRefuse(MemoryStore):
        def write(self, write: Write) -> Item:
            try:
                return super().write(write)
            except Refused:
                clock.ms += 1
                raise

    api = at_a_virtual_time(SlowToRefuse(), clock)
    api.put_topic("t", {"queues": 1})
    assert send(api, "a") == 0
    clock.ms += DEDUP_MS - 1
    assert send(api, "b") == 0
    assert len(api.read_messages("t", {})["messages"]) == 1


def test_a_sender_that_others_overtake_gets_the_place_they_found() -> None:
    """After its record another instance stores the message, and its own goes on to the next segment."""
    store, clock = TroubledStore(), Clock()
    api, other = at_a_virtual_time(store, clock), at_a_virtual_time(store, clock, 1)
    api.put_topic("t", {"queues": 1})
    message = {"messages": [{"body": "a", "dedup_id": "x"}]}
    between = []

    def overtake(_verb: str, about: object) -> None:
        if isinstance(about, Write) and about.key.sk == "record":
            store.after = unavailable()
            between.append(other.produce("t", message))
            for number in range(40):
                api.produce("t", {"messages": [{"body": str(number)}]})

    store.after = overtake
    assert [api.produce("t", message)] == between


def test_clocks_that_differ_store_nothing_twice_within_the_time() -> None:
    store = MemoryStore()
    ahead, behind = Clock(), Clock()
    ahead.ms += 250
    apis = [at_a_virtual_time(store, ahead, 1), at_a_virtual_time(store, behind, 2)]
    apis[0].put_topic("t", {"queues": 1})
    for step in (0, 100, DEDUP_MS - 600):
        ahead.ms += step
        behind.ms += step
        for api in apis:
            assert api.produce("t", {"messages": [{"body": "a", "dedup_id": "x"}]})["messages"][0]["offset"] == 0


def test_a_batch_may_have_ids_of_every_age() -> None:
    """One id is long gone, one is no longer valid, one is valid, and one is new. Only the third is a repeat."""
    store, clock = MemoryStore(), Clock()
    slept, asked = at_a_virtual_time(store, clock), {"gone": 0, "old": 2 * DAY_MS, "young": 2 * DAY_MS + DEDUP_MS}
    slept.put_topic("t", {"queues": 1})
    first = {}
    for dedup_id, at_ms in asked.items():
        clock.sleep(START_MS + at_ms - clock.ms)
        store.drop_expired(clock.ms)
        first[dedup_id] = slept.produce("t", {"messages": [{"body": dedup_id, "dedup_id": dedup_id}]})["messages"][0]
    clock.sleep(1_000)
    store.drop_expired(clock.ms)
    batch = {"messages": [{"body": "again", "dedup_id": dedup_id} for dedup_id in (*asked, "new")]}
    for api in (slept, at_a_virtual_time(store, clock, 1)):
        got = api.produce("t", batch)["messages"]
        assert [each["offset"] for each in got] == [3, 4, first["young"]["offset"], 5]
