"""An instance whose cache has a topic that was deleted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from chalicelib.api import Api
from chalicelib.core.base.errors import GroupNotFound, StoreUnavailable, TopicNotFound
from chalicelib.core.base.limits import GROUP_DETAILS_MAX
from chalicelib.core.consuming.view_reader import UNKNOWN_ITEMS_MAX
from chalicelib.core.log.segment import SEGMENT_FULL_BYTES
from chalicelib.core.store import Read
from chalicelib.core.table.writes import Item
from local.memory.store import MemoryStore
from tests.support.clock import Clock
from tests.support.instances import instance, with_messages
from tests.support.orders import noise
from tests.support.troubled_store import TroubledStore, from_request, unavailable


@pytest.fixture
def instances() -> tuple[Api, Api]:
    store, clock = MemoryStore(), Clock()
    one, other = instance(store, clock, 1), instance(store, clock, 2)
    one.put_topic("t", {"queues": 1})
    return one, other


def produce(api: Api, body: str) -> int:
    return int(api.produce("t", {"messages": [{"body": body}]})["messages"][0]["offset"])


@pytest.mark.parametrize("before", [0, 1, 2])
def test_a_stale_producer_produces_to_the_topic_that_was_made_again(instances: tuple[Api, Api], before: int) -> None:
    one, other = instances
    for number in range(before):
        produce(other, str(number))
    other.list_groups("t", {})
    one.delete_topic("t")
    one.put_topic("t", {"queues": 1})
    one.put_group("t", "g", {})
    assert produce(other, "new") == 0
    assert [each["body"] for each in one.pop("t", "g", {})["messages"]] == ["new"]


@pytest.mark.parametrize("before", [0, 1, 2])
def test_a_stale_producer_gets_topic_not_found(instances: tuple[Api, Api], before: int) -> None:
    one, other = instances
    for number in range(before):
        produce(other, str(number))
    other.list_groups("t", {})
    one.delete_topic("t")
    for ask in (lambda: produce(other, "new"), lambda: other.read_messages("t", {})):
        with pytest.raises(TopicNotFound):
            ask()


@pytest.mark.parametrize("by_reply", [False, True])
@pytest.mark.parametrize("settle_by", ["message", "receipt"])
def test_an_ack_goes_by_the_rule_of_the_group_made_again(settle_by: str, by_reply: bool) -> None:
    store, clock = MemoryStore(), Clock()
    one, other = instance(store, clock, 1), instance(store, clock, 2)
    one.put_topic("t", {"queues": 1})
    produce(other, "its instance knows the topic")
    one.delete_topic("t")
    one.put_topic("t", {"queues": 1})
    one.put_group("t", "g", {"settle_by": settle_by})
    one.request("t", {"body": "q", "wait_ms": 0})
    [first] = one.pop("t", "g", {"invisible_ms": 1_000})["messages"]
    clock.ms += 1_001
    [second] = one.pop("t", "g", {})["messages"]
    receipt = (first if settle_by == "message" else second)["receipt"]
    if by_reply:
        told = other.reply(first["correlation_id"], {"body": "a", "receipt": receipt})
    else:
        told = other.ack("t", "g", {"receipts": [receipt]})
    assert (told["acked"], told["failed"]) == (1, [])


def test_an_ack_of_a_group_that_is_gone_from_a_topic_made_again_finds_none() -> None:
    store, clock = MemoryStore(), Clock()
    one, other = instance(store, clock, 1), instance(store, clock, 2)
    one.put_topic("t", {"queues": 1})
    produce(other, "its instance knows the topic")
    one.delete_topic("t")
    one.put_topic("t", {"queues": 1})
    one.put_group("t", "g", {})
    produce(one, "a")
    [message] = one.pop("t", "g", {})["messages"]
    one.delete_group("t", "g")
    with pytest.raises(GroupNotFound):
        other.ack("t", "g", {"receipts": [message["receipt"]]})


def test_a_producer_that_filled_a_segment_sees_the_deletion_too() -> None:
    store, clock = MemoryStore(), Clock()
    one, other = instance(store, clock, 1), instance(store, clock, 2)
    one.put_topic("t", {"queues": 1})
    produce(other, *noise(1, SEGMENT_FULL_BYTES))
    one.delete_topic("t")
    with pytest.raises(TopicNotFound):
        produce(other, "lost")
    one.put_topic("t", {"queues": 1})
    assert produce(other, "new") == 0


def test_a_deletion_closes_the_queues_that_the_topic_got_meanwhile() -> None:
    store, clock = MemoryStore(), Clock()
    api, other = instance(store, clock), instance(store, clock, 1)
    api.put_topic("t", {"queues": 1})
    old = api.service.env.catalogue.current_topic("t")
    api.put_topic("t", {"queues": 2})
    other.produce("t", {"messages": [{"body": "a", "queue": 1}]})
    api.service.admin.topics.delete(old)
    with pytest.raises(TopicNotFound):
        other.produce("t", {"messages": [{"body": "b", "queue": 1}]})


def test_a_stale_producer_sees_a_deletion_behind_many_new_segments() -> None:
    store, clock = MemoryStore(), Clock()
    one, other = instance(store, clock, 1), instance(store, clock, 2)
    one.put_topic("t", {"queues": 1})
    produce(other, *noise(1, SEGMENT_FULL_BYTES))
    for body in noise(5, SEGMENT_FULL_BYTES):
        produce(one, body)
    one.delete_topic("t")
    clock.ms += 3_000
    with pytest.raises(TopicNotFound):
        produce(other, "lost")


def test_a_dedup_id_does_not_help_into_the_log_of_a_topic_that_is_gone() -> None:
    store, clock = MemoryStore(), Clock()
    one, other = instance(store, clock, 1), instance(store, clock, 2)
    one.put_topic("t", {"queues": 1})
    produce(other, *noise(1, SEGMENT_FULL_BYTES))
    one.delete_topic("t")
    with pytest.raises(TopicNotFound):
        other.produce("t", {"messages": [{"body": "lost", "dedup_id": "d"}]})


def with_groups(store: MemoryStore, clock: Clock, count: int, **settings: object) -> Api:
    api = instance(store, clock)
    api.put_topic("t", {"queues": 2})
    for number in range(count):
        api.put_group("t", f"g{number:04d}", settings)
    return api


@pytest.mark.parametrize("settings", [{}, {"mode": "broadcast"}])
def test_hundreds_of_groups_are_deleted_side_by_side(settings: dict[str, object]) -> None:
    store = MemoryStore()
    api = with_groups(store, Clock(), 300, **settings)
    before = store.meter.copy()
    api.delete_topic("t")
    spent = store.meter.since(before)
    assert spent.round_trips < 30
    assert spent.read_units < 5 * 300, "each of the four partitions of a group is read once"
    assert not any(items for pk, items in store._items.items() if pk.startswith("group"))


@pytest.mark.parametrize("settings", [{}, {"mode": "broadcast"}, {"alarm": {"ready": 5}, "rate_limit": 10}])
def test_hundreds_of_groups_are_listed_a_page_at_a_time_side_by_side(settings: dict[str, object]) -> None:
    store, clock = MemoryStore(), Clock()
    api = with_groups(store, clock, 250, **settings)
    api.produce("t", {"messages": [{"body": "ready"}]})
    clock.ms += 1
    for name in ("g0000", "g0249"):
        api.pop("t", name, {"max_messages": 1, "consumer_id": "c"})
    before = store.meter.copy()
    listed, token = list[dict[str, Any]](), None
    while token is not None or not listed:
        page = api.list_groups("t", {"limit": "1000", **({"next": token} if token else {})})
        assert len(page["groups"]) <= GROUP_DETAILS_MAX
        listed, token = listed + page["groups"], page["next"]
    assert [each["group"] for each in listed] == [f"g{number:04d}" for number in range(250)]
    assert [each["group"] for each in listed if each["in_flight"]] == ["g0000", "g0249"]
    assert {each["ready"] for each in listed[1:-1]} == {1}
    assert store.meter.since(before).round_trips <= 3 * 10


class Slow(MemoryStore):
    """Each request takes a while."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock
        self.ms = 0

    def read(self, reads: Sequence[Read]) -> list[list[Item]]:
        self._clock.ms += self.ms
        return super().read(reads)


def test_a_long_deletion_stops_in_time_and_the_sweep_continues_it() -> None:
    clock = Clock()
    store = Slow(clock)
    api = with_groups(store, clock, 300)
    store.ms, began_ms = 3_000, clock.ms
    api.delete_topic("t")
    assert clock.ms - began_ms < 29_000
    assert any(items for pk, items in store._items.items() if pk.startswith("group"))
    for _ in range(3):
        api.service.sweeps.expire()
    assert not any(items for pk, items in store._items.items() if pk.startswith(("group", "graves")))


@pytest.mark.parametrize("mode", ["clustering", "broadcast"])
def test_a_pop_begins_where_the_group_made_again_was_reset_to(mode: str) -> None:
    """The instance knows a broadcast group of the name."""
    store, clock = MemoryStore(), Clock()
    one, other = instance(store, clock, 1), instance(store, clock, 2)
    one.put_topic("t", {"queues": 2})
    ask = {"consumer_id": "c", "max_messages": 2}
    one.put_group("t", "g", {"mode": "broadcast"})
    other.pop("t", "g", ask)
    one.delete_group("t", "g")
    one.produce("t", {"messages": [{"body": "a", "queue": 0}, {"body": "b", "queue": 0}]})
    one.put_group("t", "g", {"mode": mode, "start": "latest"})
    clock.ms += 1_000
    one.produce("t", {"messages": [{"body": "c", "queue": 1}]})
    one.pop("t", "g", ask)
    one.reset_group("t", "g", {"to": "earliest"})
    assert [each["body"] for each in other.pop("t", "g", ask)["messages"]] == ["a", "b"]


def test_a_pop_finds_its_cursor_among_those_that_deleted_groups_have_left(instances: tuple[Api, Api]) -> None:
    one, _ = instances
    produce(one, "a")
    one.put_group("t", "g", {"start": "latest"})
    one.pop("t", "g", {})
    one.reset_group("t", "g", {"to": "earliest"})
    known = one.service.env.catalogue.group(one.service.env.catalogue.topic("t"), "g")
    left = [known.cursor_key(queue)._replace(sk=f"cursor#~{queue:03d}") for queue in range(UNKNOWN_ITEMS_MAX)]
    assert all(key.sk > known.cursor_key(0).sk for key in left)
    store = one.service.env.store
    store.put_all([{**key._asdict(), **_cursor()} for key in left])
    assert len(one.pop("t", "g", {})["messages"]) == 1


def _cursor() -> Item:
    return {"epoch": 0, "next": [0], "leases": {}, "dead": 0, "claims": 0}


def test_receipts_of_an_older_topic_of_the_name_fail_alone(instances: tuple[Api, Api]) -> None:
    one, other = instances
    popped: list[str] = []
    for api in (other, one):
        api.put_group("t", "g", {})
        produce(api, "a")
        popped += [each["receipt"] for each in api.pop("t", "g", {})["messages"]]
        known = other.service.env.catalogue.topic("t")
        if api is other:
            one.delete_topic("t")
            one.put_topic("t", {"queues": 1})
    failed = other.service.consuming.ack(known, "g", popped)
    assert [(each.receipt, each.code) for each in failed] == [(popped[0], "ReceiptInvalid")]


def test_a_repeated_ack_in_a_deleted_group_ends() -> None:
    """The instance has seen a lease of which others have acked the rest, and could not remove it."""
    store, clock = TroubledStore(), Clock()
    one, other = with_messages(store, clock, 2), instance(store, clock, 2)
    first, second = [each["receipt"] for each in one.pop("t", "g", {"max_messages": 2})["messages"]]
    other.ack("t", "g", {"receipts": [first]})
    store.before = from_request(1)
    with pytest.raises(StoreUnavailable):
        one.ack("t", "g", {"receipts": [second]})
    store.before = unavailable()
    other.delete_group("t", "g")
    with pytest.raises(GroupNotFound):
        one.ack("t", "g", {"receipts": [second]})
