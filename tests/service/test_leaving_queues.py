"""Requests that arrive late at a queue that is leaving, has left, or has returned."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

import pytest

from chalicelib.api import Api
from chalicelib.core.admin.draining import DELAYED_LATE_MS
from chalicelib.core.base.errors import StoreUnavailable
from chalicelib.core.base.limits import ENTRY_LATE_MS, HEARD_MS, METADATA_AGE_MS_MAX, SECOND_MS
from chalicelib.core.base.message import Message
from chalicelib.core.catalogue.topic import Topic
from chalicelib.core.delays.decision import wait
from chalicelib.core.log import segment
from chalicelib.core.log.segment import Entry, Segment
from chalicelib.core.producing.produce import queue_of_key
from chalicelib.core.store import Outcome
from chalicelib.core.table.writes import Item, Refused, Write
from local.memory.store import MemoryStore
from tests.support.clock import Clock
from tests.support.instances import instance
from tests.support.recording_store import RecordingStore
from tests.support.troubled_store import TroubledStore, from_request, unavailable

KEY = next(str(number) for number in range(100) if queue_of_key(str(number), 2) == 1)
"""A key of queue 1 of two."""


class Table(RecordingStore):
    """Remembers transactions too."""

    def __init__(self) -> None:
        super().__init__()
        self.together: list[Sequence[Write]] = []

    def write_together(self, writes: Sequence[Write]) -> None:
        self.together.append(writes)
        super().write_together(writes)


@pytest.fixture
def store() -> Table:
    return Table()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def api(store: Table, clock: Clock) -> Api:
    api = instance(store, clock)
    api.put_topic("t", {"queues": 2})
    api.put_group("t", "g", {})
    return api


def stored(api: Api) -> Topic:
    """The topic as an instance has read it that is then stopped for long."""
    return api.service.env.catalogue.current_topic("t")


def shrink(api: Api, clock: Clock) -> None:
    api.put_topic("t", {"queues": 1})
    clock.ms += HEARD_MS + DELAYED_LATE_MS + SECOND_MS
    api.service.sweeps.check()


def produce_and_settle(api: Api, count: int = 1) -> None:
    api.produce("t", {"messages": [{"body": "settled", "queue": 1}] * count})
    api.ack("t", "g", {"receipts": [each["receipt"] for each in api.pop("t", "g", {})["messages"]]})


def left(api: Api) -> bool:
    return stored(api).readers == 1


def last_of(store: MemoryStore, topic: Topic) -> Item:
    return list(store._items[topic.logs[1]].values())[-1]


def append_of(topic: Topic, base: int, clock: Clock) -> Write:
    """An append that was sent long ago and has not arrived."""
    entry = Entry.packed(b"late....", [Message("late", None, None, None, {})], clock.now())
    return segment.append(topic.logs[1], base, entry, may_create=True)


@pytest.mark.parametrize("count", [0, 1, 40])
def test_no_late_append_gets_into_a_queue_that_has_left(store: Table, api: Api, clock: Clock, count: int) -> None:
    topic = stored(api)
    late = append_of(topic, 0, clock)
    for _ in range(count):
        produce_and_settle(api)
    shrink(api, clock)
    assert left(api)
    with pytest.raises(Refused):
        store.write(late)
    assert last_of(store, topic)["end"] == count


def test_a_late_append_of_before_does_not_get_in_behind_the_return(store: Table, api: Api, clock: Clock) -> None:
    produce_and_settle(api)
    late = append_of(stored(api), 0, clock)
    shrink(api, clock)
    api.put_topic("t", {"queues": 2})
    assert api.produce("t", {"messages": [{"body": "new", "queue": 1}]})["messages"][0]["offset"] == 1
    with pytest.raises(Refused):
        store.write(late)


@pytest.mark.parametrize("count", [0, 1])
def test_a_late_closing_does_not_close_a_queue_that_returned(store: Table, api: Api, clock: Clock, count: int) -> None:
    topic = stored(api)
    for _ in range(count):
        produce_and_settle(api)
    shrink(api, clock)
    closing, leaving = store.together[-1]
    api.put_topic("t", {"queues": 2})
    with pytest.raises(Refused):
        store.write(leaving)
    api.produce("t", {"messages": [{"body": "new", "queue": 1}]})
    with pytest.raises(Refused):
        MemoryStore.write_together(store, [closing, leaving])
    assert "closed" not in last_of(store, topic)


@pytest.mark.parametrize("count", [0, 1])
def test_a_late_opening_does_not_open_a_queue_that_left_again(store: Table, api: Api, clock: Clock, count: int) -> None:
    topic = stored(api)
    for _ in range(count):
        produce_and_settle(api)
    shrink(api, clock)
    late = segment.reopen(segment.Segment.of(last_of(store, topic)))
    api.put_topic("t", {"queues": 2})
    shrink(api, clock)
    assert left(api)
    with pytest.raises(Refused):
        store.write(late)
    assert last_of(store, topic)["closed"]


def test_a_message_that_comes_just_before_the_closing_keeps_the_queue(store: Table, api: Api, clock: Clock) -> None:
    topic = stored(api)
    produce_and_settle(api)
    api.put_topic("t", {"queues": 1})
    clock.ms += HEARD_MS + ENTRY_LATE_MS
    together = MemoryStore.write_together

    def after_an_append(writes: Sequence[Write]) -> None:
        with suppress(Refused):
            store.write(append_of(topic, 0, clock))
        together(store, writes)

    store.write_together = after_an_append  # type: ignore[method-assign]
    api.service.sweeps.check()
    assert not left(api)
    [message] = api.pop("t", "g", {})["messages"]
    assert (message["body"], message["queue"], message["offset"]) == ("late", 1, 1)


def reset(api: Api) -> None:
    api.reset_group("t", "g", {"to": "earliest"})


def create(api: Api) -> None:
    api.put_group("t", "new", {})


@pytest.mark.parametrize(("act", "group"), [(reset, "g"), (create, "new")])
def test_a_queue_does_not_leave_a_group_that_just_got_its_messages(
    store: Table, api: Api, clock: Clock, act: Callable[[Api], None], group: str
) -> None:
    produce_and_settle(api)
    api.put_topic("t", {"queues": 1})
    clock.ms += HEARD_MS + ENTRY_LATE_MS
    together = MemoryStore.write_together

    def after_the_group(writes: Sequence[Write]) -> None:
        store.write_together = lambda writes: together(store, writes)  # type: ignore[method-assign]
        act(api)
        together(store, writes)

    store.write_together = after_the_group  # type: ignore[method-assign]
    instance(store, clock, 1).service.sweeps.check()
    assert not left(api)
    assert [message["queue"] for message in api.pop("t", group, {})["messages"]] == [1]


def test_a_reset_that_began_before_its_queue_left_brings_it_back(store: Table, api: Api, clock: Clock) -> None:
    produce_and_settle(api)
    api.put_topic("t", {"queues": 1})
    clock.ms += HEARD_MS + ENTRY_LATE_MS
    old = stored(api)
    instance(store, clock, 1).service.sweeps.check()
    assert left(api)
    api.service.admin.groups.reset(old, "g", "earliest")
    assert not left(api)
    assert [message["queue"] for message in api.pop("t", "g", {})["messages"]] == [1]


def test_a_queue_that_leaves_in_the_middle_of_a_reset_returns(store: Table, api: Api, clock: Clock) -> None:
    produce_and_settle(api)
    api.put_topic("t", {"queues": 1})
    clock.ms += HEARD_MS + ENTRY_LATE_MS
    true, gone = store.write_each, []

    def after_it_left(writes: Sequence[Write]) -> list[Outcome]:
        store.write_each = true  # type: ignore[method-assign]
        instance(store, clock, 1).service.sweeps.check()
        gone.append(left(api))
        return true(writes)

    store.write_each = after_it_left  # type: ignore[method-assign]
    reset(api)
    assert gone == [True]
    assert not left(api)
    assert [message["queue"] for message in api.pop("t", "g", {})["messages"]] == [1]


@pytest.mark.parametrize("more", [{}, {"dedup_id": "d"}])
@pytest.mark.parametrize("place", [{"queue": 1}, {"key": KEY}])
def test_a_call_with_old_settings_stores_nothing_in_a_queue_that_left(
    store: Table, api: Api, clock: Clock, place: dict[str, object], more: dict[str, str]
) -> None:
    old = stored(api)
    shrink(api, clock)
    message = [{"body": "a", **place, **more}]
    with pytest.raises(StoreUnavailable, match="has no queue 1 any more") as raised:
        api.service.producing.produce(old, message)
    assert raised.value.outcome_unknown == bool(more)
    assert last_of(store, old)["end"] == 0
    if "key" in place:
        clock.ms -= HEARD_MS + DELAYED_LATE_MS + SECOND_MS  # one that is behind would still place it by the old number
        assert api.service.producing.produce(stored(api), [{"body": "b", "key": KEY}])[0].queue == 0


def test_what_a_closed_log_refused_may_still_be_stored_once_it_is_open(store: Table, api: Api, clock: Clock) -> None:
    """A late repeat of the first request may be: seed 82007650 of a run."""
    shrink(api, clock)
    api.put_topic("t", {"queues": 2})
    true, sent = store.write_each, []

    def throttled_then(writes: Sequence[Write]) -> list[Outcome]:
        sent.append(writes)
        return true(writes) if len(sent) == 1 else [StoreUnavailable("throttled") for _ in writes]

    store.write_each = throttled_then  # type: ignore[method-assign]
    with pytest.raises(StoreUnavailable) as raised:
        instance(store, clock, 1).service.producing.produce(stored(api), [{"body": "a", "queue": 1}])
    assert raised.value.outcome_unknown
    [[late], _] = sent
    assert store.write(late)["end"] == 1


def test_a_full_segment_met_behind_a_closed_one_leaves_the_outcome_unknown(
    store: Table, api: Api, clock: Clock
) -> None:
    shrink(api, clock)
    api.put_topic("t", {"queues": 2})
    topic, true, sent = stored(api), store.write_each, list[Sequence[Write]]()

    def met_then(writes: Sequence[Write]) -> list[Outcome]:
        sent.append(writes)
        if len(sent) == 2:
            store.write_each = true  # type: ignore[method-assign]
            while not Segment.of(last_of(store, topic)).is_sealed:
                api.produce("t", {"messages": [{"body": "x" * 500, "queue": 1}]})
            store.write_each = met_then  # type: ignore[method-assign]
        return true(writes) if len(sent) < 3 else [StoreUnavailable("throttled") for _ in writes]

    store.write_each = met_then  # type: ignore[method-assign]
    with pytest.raises(StoreUnavailable) as raised:
        instance(store, clock, 1).service.producing.produce(topic, [{"body": "a", "queue": 1}])
    assert raised.value.outcome_unknown


def test_a_call_with_old_settings_puts_a_message_without_key_elsewhere(store: Table, api: Api, clock: Clock) -> None:
    old = stored(api)
    shrink(api, clock)
    results = [instance(store, clock, seed).service.producing.produce(old, [{"body": "a"}])[0] for seed in range(8)]
    assert {result.queue for result in results} == {0}


def test_a_check_counts_the_queues_that_leave(api: Api, clock: Clock) -> None:
    api.put_topic("t", {"queues": 1})
    assert api.service.sweeps.check().as_json() == {"seen": 1, "done": 0}
    clock.ms += HEARD_MS + DELAYED_LATE_MS + SECOND_MS
    assert api.service.sweeps.check().as_json() == {"seen": 1, "done": 1}


def test_a_delayed_message_that_comes_too_late_brings_its_queue_back(store: Table, api: Api, clock: Clock) -> None:
    topic = stored(api)
    api.produce("t", {"messages": [{"body": "soon", "delay_ms": 1, "queue": 0}]})
    shrink(api, clock)
    assert left(api)
    entry = Entry.packed(b"late....", [Message("late", None, None, None, {}, clock.ms)], clock.now())
    store.write(wait(topic.id, 1, clock.ms, entry))
    api.service.sweeps.forward()
    api.service.sweeps.check()
    clock.ms += METADATA_AGE_MS_MAX + 1
    bodies = [each["body"] for _ in range(2) for each in api.pop("t", "g", {})["messages"]]
    assert sorted(bodies) == ["late", "soon"]


def test_a_queue_that_came_back_leaves_though_another_check_saw_nothing(store: Table, api: Api, clock: Clock) -> None:
    topic = stored(api)
    api.produce("t", {"messages": [{"body": "soon", "delay_ms": 1, "queue": 0}]})
    shrink(api, clock)
    write_each = store.write_each

    def after_a_check_that_saw_more(writes: Sequence[Write]) -> list[Outcome]:
        if writes:
            store.write_each = write_each  # type: ignore[method-assign]
            entry = Entry.packed(b"late....", [Message("late", None, None, None, {}, clock.ms)], clock.now())
            store.write(wait(topic.id, 1, clock.ms, entry))
            api.service.sweeps.check()
        return write_each(writes)

    store.write_each = after_a_check_that_saw_more  # type: ignore[method-assign]
    instance(store, clock, 1).service.sweeps.check()
    assert not left(api)
    clock.ms += HEARD_MS + DELAYED_LATE_MS
    while got := api.pop("t", "g", {})["messages"]:
        api.ack("t", "g", {"receipts": [each["receipt"] for each in got]})
    api.service.sweeps.check()
    assert left(api)


def test_a_queue_leaves_although_its_check_is_killed_anywhere(clock: Clock) -> None:
    requests = 0
    while True:
        store = TroubledStore()
        api = instance(store, clock)
        api.put_topic("t", {"queues": 2})
        api.put_group("t", "g", {})
        produce_and_settle(api)
        api.put_topic("t", {"queues": 1})
        clock.ms += HEARD_MS + ENTRY_LATE_MS
        sweeper = instance(store, clock, 1)
        store.after = from_request(requests)
        is_over = True
        try:
            sweeper.service.sweeps.check()
        except StoreUnavailable:
            is_over = False
        store.after = unavailable()
        api.service.sweeps.check()
        assert left(api)
        assert api.produce("t", {"messages": [{"body": "b", "key": KEY}]})["messages"][0]["queue"] == 0
        assert [each["body"] for each in api.pop("t", "g", {})["messages"]] == ["b"]
        if is_over:
            break
        requests += 1
    assert requests > 5


def test_two_checks_at_once_let_a_queue_leave_once(store: Table, api: Api, clock: Clock) -> None:
    produce_and_settle(api)
    other = instance(store, clock, 1)
    api.put_topic("t", {"queues": 1})
    changed = stored(api).version
    clock.ms += HEARD_MS + ENTRY_LATE_MS
    together = MemoryStore.write_together

    def after_another(writes: Sequence[Write]) -> None:
        store.write_together = lambda writes: together(store, writes)  # type: ignore[method-assign]
        other.service.sweeps.check()
        together(store, writes)

    store.write_together = after_another  # type: ignore[method-assign]
    api.service.sweeps.check()
    assert left(api)
    assert stored(api).version == changed + 1
