"""Expired messages are removed a day later, from the beginning of each log; readable ones never are."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, ClassVar

import pytest

from chalicelib.api import Api
from chalicelib.core.base.errors import MessageNotFound, StoreUnavailable
from chalicelib.core.base.limits import DAY_MS, EXPIRED_KEPT_MS, HOUR_MS, METADATA_AGE_MS_MAX, MINUTE_MS
from chalicelib.core.log.segment import Segment
from chalicelib.core.store import Range, Read
from chalicelib.core.table.writes import Item, key_of
from chalicelib.core.telemetry.record import Record, recording
from chalicelib.core.upkeep import expiry
from local.memory.store import MemoryStore
from tests.store.strict import StrictStore
from tests.support.clock import Clock
from tests.support.instances import instance

KEPT_MS = 10 * HOUR_MS
GONE_MS = KEPT_MS + EXPIRED_KEPT_MS
BIG = Random(1).randbytes(1_500).hex()
"""Too big for a segment, however it is packed."""
PER_SEGMENT = 32


@dataclass
class World:
    """A topic of one queue with a group, whose messages are kept for ten hours."""

    store: MemoryStore = field(default_factory=MemoryStore)
    clock: Clock = field(default_factory=Clock)

    def __post_init__(self) -> None:
        self.api = self.another()
        self.api.put_topic("t", {"queues": 1, "retention_ms": KEPT_MS, "index_keys": True})
        self.group("g")

    def another(self) -> Api:
        return instance(self.store, self.clock, seed=len(self.store._items))

    def group(self, name: str, **settings: Any) -> None:
        self.api.put_group("t", name, settings)

    def produce(self, *bodies: str, **fields: Any) -> list[dict[str, Any]]:
        """Each in an entry of its own."""
        return [self.api.produce("t", {"messages": [{"body": body, **fields}]})["messages"][0] for body in bodies]

    def sweep(self) -> None:
        """The hourly sweep; then DynamoDB removes expired items."""
        self.clock.sleep(HOUR_MS)
        self.api.service.sweeps.expire()
        self.store.drop_expired(self.clock.ms)

    def items(self, prefix: str) -> list[Item]:
        return [item for pk, part in self.store._items.items() if pk.startswith(prefix) for item in part.values()]

    def take(self, count: int = 10, group: str = "g", api: Api | None = None) -> list[dict[str, Any]]:
        return list((api or self.api).pop("t", group, {"max_messages": count})["messages"])

    def ack(self, messages: list[dict[str, Any]]) -> None:
        receipts = [each["receipt"] for each in messages]
        assert self.api.ack("t", "g", {"receipts": receipts}) == {"acked": len(messages), "failed": []}

    def progress(self, group: str = "g") -> dict[str, Any]:
        return dict(self.api.get_group("t", group))


@pytest.fixture
def world() -> World:
    return World()


def unavailable(*_: object) -> None:
    raise StoreUnavailable("trouble")


def bodies(messages: list[dict[str, Any]]) -> list[str]:
    return [each["body"] for each in messages]


@pytest.mark.parametrize("page", [4, 100])
def test_segments_expired_a_day_ago_are_removed_and_the_log_goes_on(
    world: World, monkeypatch: pytest.MonkeyPatch, page: int
) -> None:
    monkeypatch.setattr(expiry, "_PAGE", page)
    world.produce(*["small"] * 3 * PER_SEGMENT, *[BIG] * 40, key="k")
    world.clock.sleep(GONE_MS)
    world.sweep()
    assert len(world.items("log#")) == 1
    assert world.items("payload#") == world.items("index#") == []
    assert world.produce("new")[0]["offset"] == 3 * PER_SEGMENT + 40
    assert bodies(world.take(group="g", api=world.another())) == ["new"]


def test_a_sweep_that_finds_another_has_removed_it_all_removes_nothing() -> None:
    class Beside(StrictStore):
        other: Api | None = None

        def read(self, reads: Sequence[Read]) -> list[list[Item]]:
            found = super().read(reads)
            if self.other and any(isinstance(read, Range) and read.pk.startswith("log#") for read in reads):
                other, self.other = self.other, None
                assert other.service.sweeps.expire().done > 0
            return found

    store = Beside()
    world = World(store)
    world.group("g", max_attempts=1)
    world.produce(*["small"] * 2 * PER_SEGMENT)
    world.api.nack("t", "g", {"receipts": [each["receipt"] for each in world.take(2 * PER_SEGMENT)]})
    world.clock.sleep(GONE_MS + HOUR_MS)
    store.other = world.another()
    assert world.api.service.sweeps.expire().done == 0
    assert store.other is None


@pytest.mark.parametrize("fields", [{}, {"dedup_id": "one"}])
def test_an_instance_that_slept_for_days_finds_the_end_of_a_log(world: World, fields: dict[str, str]) -> None:
    """Its time stood still: what it has cached seems fresh to it."""
    world.produce("small")
    other = world.another()
    for number in range(10):
        other.produce("t", {"messages": [{"body": Random(number).randbytes(400).hex()}]})
    world.clock.set_back_ms = -GONE_MS - HOUR_MS
    other.service.sweeps.expire()
    assert min(item["sk"] for item in world.items("log#")) > "0" * 15
    assert world.produce("new", **fields)[0]["offset"] == 11
    assert bodies(world.take(api=world.another())) == ["new"]


def test_nothing_goes_within_the_day_after_it_expired(world: World) -> None:
    world.produce(*["small"] * 3 * PER_SEGMENT, *[BIG] * 40, key="k")
    before = {prefix: len(world.items(prefix)) for prefix in ("log#", "payload#", "index#")}
    world.clock.sleep(GONE_MS - HOUR_MS - MINUTE_MS)
    world.sweep()
    assert {prefix: len(world.items(prefix)) for prefix in before} == before


def test_a_segment_stays_as_long_as_one_of_its_messages(world: World) -> None:
    world.produce(*["old"] * (PER_SEGMENT - 30))
    world.clock.sleep(GONE_MS)
    world.produce(*["new"] * 60)
    world.sweep()
    first = world.api.read_messages("t", {"queue": "0", "offset": "0"})["messages"][0]
    assert (first["offset"], first["body"]) == (PER_SEGMENT - 30, "new")
    assert len(world.items("log#")) > 1
    assert min(item["sk"] for item in world.items("log#")).endswith("0" * 15)


@pytest.mark.parametrize("count", [PER_SEGMENT, 5 * PER_SEGMENT, 60 * PER_SEGMENT])
@pytest.mark.parametrize("is_fresh", [True, False])
def test_a_group_that_lags_behind_the_beginning_goes_on_with_what_is_left(
    world: World, count: int, is_fresh: bool
) -> None:
    """However far behind it is, and whether it has a cursor or not; also for an instance that knows the old log."""
    world.produce(*["old"] * count)
    if not is_fresh:
        world.ack(world.take(7))
    world.clock.sleep(GONE_MS)
    world.produce(*["new"] * 2)
    world.sweep()
    assert world.progress()["ready"] == 2
    assert bodies(world.take(api=world.another())) == ["new", "new"]
    world.group("later")
    assert bodies(world.take(group="later")) == ["new", "new"]


def test_a_log_that_lost_most_messages_begins_with_the_first_unexpired(world: World) -> None:
    world.produce(*["gone"] * 5 * PER_SEGMENT)
    world.clock.sleep(GONE_MS)
    world.produce(*["expired"] * 5)
    world.sweep()
    world.clock.sleep(KEPT_MS)
    world.produce("new")
    assert bodies(world.api.read_messages("t", {})["messages"]) == ["new"]
    assert world.progress()["ready"] == 1


@pytest.mark.parametrize("removed", [(1,), (0, 2), (2, 3, 4, 5, 6, 7), (7,)])
def test_a_removal_that_failed_half_way_hides_nothing_behind_it(world: World, removed: tuple[int, ...]) -> None:
    """The segments of one request are removed in any order, so that a failure leaves a hole between expired ones."""
    world.produce(*["old"] * 4 * PER_SEGMENT)
    world.ack(world.take(7))
    world.clock.sleep(GONE_MS)
    world.produce(*["new"] * 2)
    segments = sorted(world.items("log#"), key=lambda item: item["sk"])
    assert len(segments) == 9
    world.store.remove_all([key_of(segments[number]) for number in removed])
    for api in (world.api, world.another()):
        assert bodies(api.read_messages("t", {})["messages"]) == ["new", "new"]
        assert bodies(api.read_messages("t", {"queue": "0", "offset": "0"})["messages"]) == ["new", "new"]
        assert api.get_topic("t")["queue_offsets"][0]["first_offset"] == 4 * PER_SEGMENT
        assert api.get_group("t", "g")["ready"] == 2
    assert bodies(world.take(api=world.another())) == ["new", "new"]
    world.group("later", start=world.clock.ms)
    assert bodies(world.take(group="later", api=world.another())) == ["new", "new"]


def test_a_reset_to_what_is_gone_begins_with_what_is_left(world: World) -> None:
    world.produce(*["old"] * 5 * PER_SEGMENT)
    world.clock.sleep(GONE_MS)
    world.produce("new")
    world.sweep()
    for to in ("earliest", {"at_ms": world.clock.ms - DAY_MS}):
        world.api.reset_group("t", "g", {"to": to})
        assert bodies(world.take()) == ["new"]
    assert world.api.get_topic("t")["queue_offsets"][0]["first_offset"] == 5 * PER_SEGMENT


@pytest.mark.parametrize("ends_with_segment", [False, True])
def test_a_retry_of_an_expired_message_is_settled_and_others_are_delivered(
    world: World, ends_with_segment: bool
) -> None:
    """The log then begins with a message of that time, or with the new one."""
    other = World()
    while len(other.items("log#")) < 2:
        other.produce("small")
    last_segment = max(other.items("log#"), key=lambda item: str(item["sk"]))
    fitting = int(last_segment["sk"])
    world.produce(*["small"] * fitting if ends_with_segment else [BIG, *["small"] * 2 * fitting])
    taken = world.take(3)
    receipts = [each["receipt"] for each in taken]
    assert world.api.nack("t", "g", {"receipts": receipts, "delay_ms": 2 * GONE_MS})["nacked"] == 3
    world.clock.sleep(2 * GONE_MS)
    world.produce("new")
    world.sweep()
    assert bodies(world.take(1, api=world.another())) == ["new"]
    found = world.progress()
    assert (found["ready"], found["in_flight"], found["retrying"], found["dead"]) == (0, 1, 0, 0)


def test_a_retry_of_what_is_removed_before_what_came_first_is_settled(world: World) -> None:
    """A removal may fail half way."""
    world.produce(*["old"] * 2 * PER_SEGMENT)
    _, second, *_ = sorted(world.items("log#"), key=lambda item: str(item["sk"]))
    taken = world.take(2 * PER_SEGMENT)
    [retry] = [each for each in taken if each["offset"] == int(second["sk"])]
    world.api.nack("t", "g", {"receipts": [retry["receipt"]], "delay_ms": 2 * GONE_MS})
    world.ack([each for each in taken if each is not retry])
    world.clock.sleep(2 * GONE_MS)
    world.produce("new")
    world.store.remove_all([key_of(second)])
    assert bodies(world.take(2, api=world.another())) == ["new"]
    found = world.progress()
    assert (found["ready"], found["in_flight"], found["retrying"], found["dead"]) == (0, 1, 0, 0)


def test_an_ordered_pop_settles_expired_messages_and_delivers_the_next(world: World) -> None:
    world.group("h", ordered=True)
    world.produce(BIG, *["small"] * 2 * PER_SEGMENT)
    taken = world.take(3, "h")
    world.api.nack("t", "h", {"receipts": [each["receipt"] for each in taken], "delay_ms": 1})
    world.clock.sleep(2 * GONE_MS)
    world.produce("new")
    world.sweep()
    assert bodies(world.take(1, "h", api=world.another())) == ["new"]


def counts(world: World, group: str) -> dict[tuple[str, str, str], int]:
    """The counts of a pop by which the group takes what it can."""
    with recording(record := Record("pop")):
        world.take(10, group, world.another())
    return {name: number for name, number in record.counts.items() if name[0] not in ("popped", "redelivered")}


def test_each_message_that_has_expired_is_counted_once_for_its_group(world: World) -> None:
    world.produce(BIG, *["small"] * 2 * PER_SEGMENT)
    receipts = [each["receipt"] for each in world.take(3)]
    world.api.nack("t", "g", {"receipts": receipts, "delay_ms": 2 * GONE_MS})
    world.clock.sleep(2 * GONE_MS)
    world.produce("new")
    world.sweep()
    assert counts(world, "g") == {("expired", "t", "g"): 1 + 2 * PER_SEGMENT}


def test_messages_that_expire_before_their_key_has_its_turn_are_counted(world: World) -> None:
    world.group("h", ordered="key")
    world.produce("a", "b", "c", key="k")
    assert bodies(world.take(2, "h")) == ["a", "b"]
    world.produce("x", key="other")
    world.clock.sleep(KEPT_MS + 1)
    world.produce("new", key="third")
    assert counts(world, "h") == {("expired", "t", "h"): 2}


def test_messages_that_wait_for_their_key_are_not_counted_as_expired(world: World) -> None:
    world.group("h", ordered="key")
    world.produce("held", key="k")
    assert bodies(world.take(1, "h")) == ["held"]
    world.produce("short", key="other", ttl_ms=1_000)
    world.produce("waits", key="k")
    world.produce("next", key="third")
    world.clock.sleep(1_000)
    assert counts(world, "h") == {("expired", "t", "h"): 1}


def test_messages_that_expire_behind_a_filter_by_key_are_counted(world: World) -> None:
    world.group("h", ordered="key", filter={"tags": ["x"]})
    world.produce("a", "b", key="k", tag="x")
    world.clock.sleep(KEPT_MS + 1)
    world.produce("new", key="k", tag="x")
    assert counts(world, "h") == {("expired", "t", "h"): 2}


def test_messages_that_a_pop_finds_without_attempts_are_counted_as_dead(world: World) -> None:
    world.group("g", max_attempts=1, invisible_ms=1_000)
    world.produce("a", "b")
    world.take(2)
    world.clock.sleep(1_000)
    assert counts(world, "g") == {("dead", "t", "g"): 2}


def test_a_dead_letter_goes_with_its_message(world: World) -> None:
    world.group("g", max_attempts=1)
    world.produce(*["bad"] * 2 * PER_SEGMENT)
    taken = world.take(2 * PER_SEGMENT)
    world.api.nack("t", "g", {"receipts": [each["receipt"] for each in taken]})
    world.clock.sleep(GONE_MS)
    world.sweep()
    [last_segment] = world.items("log#")
    assert world.progress()["dead"] == len(world.items("dead#")) == 2 * PER_SEGMENT - int(last_segment["sk"]) > 0


def test_a_message_that_waited_has_its_retention_from_its_delivery_on(world: World) -> None:
    [small, big] = [world.produce(body, delay_ms=30 * DAY_MS)[0]["message_id"] for body in ("small", BIG)]
    world.clock.sleep(29 * DAY_MS)
    world.sweep()
    world.clock.sleep(DAY_MS)
    world.api.service.sweeps.forward()
    world.clock.sleep(KEPT_MS - 1)
    assert set(bodies(world.take(api=world.another()))) == {"small", BIG}
    world.clock.sleep(GONE_MS)
    for message_id in (small, big):
        with pytest.raises(MessageNotFound):
            world.api.get_message("t", message_id)


def test_a_payload_that_waited_is_kept_as_long_as_the_longest_retention(world: World) -> None:
    world.api.put_topic("t", {"retention_ms": 365 * DAY_MS})
    world.produce(BIG, delay_ms=DAY_MS)
    world.clock.sleep(DAY_MS)
    assert world.api.service.sweeps.forward().done == 1
    world.clock.sleep(365 * DAY_MS - 2 * HOUR_MS)
    world.sweep()
    assert bodies(world.take(api=world.another())) == [BIG]


def test_the_newest_decision_about_delayed_messages_stays(world: World) -> None:
    for number in range(5):
        world.produce(*["small"] * PER_SEGMENT)
        world.produce(f"waited {number}", delay_ms=MINUTE_MS)
        world.clock.sleep(MINUTE_MS)
        assert world.api.service.sweeps.forward().done == 1
    assert len(world.items("promotions#")) == 5
    world.clock.sleep(GONE_MS)
    world.sweep()
    assert len(world.items("promotions#")) == 1
    found = world.produce("again", delay_ms=MINUTE_MS)[0]["message_id"]
    world.clock.sleep(MINUTE_MS)
    assert "again" in bodies(world.take())
    assert world.api.get_message("t", found)["body"] == "again"


def test_a_delivery_that_was_left_half_done_is_not_repeated_a_day_later(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By then its entry is not there to be found."""
    world.produce("waits", delay_ms=MINUTE_MS)
    world.clock.sleep(MINUTE_MS)
    monkeypatch.setattr(world.store, "remove_all", unavailable)
    with pytest.raises(StoreUnavailable):
        world.api.service.sweeps.forward()
    monkeypatch.undo()
    world.produce(*["small"] * 3 * PER_SEGMENT)
    world.clock.sleep(GONE_MS)
    world.sweep()
    assert len(world.items("log#")) == 1
    world.another().service.sweeps.forward()
    assert world.api.get_topic("t")["queue_offsets"][0]["end_offset"] == 1 + 3 * PER_SEGMENT


@pytest.mark.parametrize("seed", range(8))
def test_a_message_is_readable_for_its_retention_unless_that_was_lowered(seed: int) -> None:
    """However often the retention changes, whether messages lie in the log or in payload items, and also after
    DynamoDB has removed those whose time is over."""
    world, random, kept_ms = World(), Random(seed), KEPT_MS
    stored_at_ms, ends, readable = dict[str, int](), dict[str, int](), list[str]()
    for number in range(60):
        world.clock.sleep(random.randrange(1, 8 * HOUR_MS))
        if not random.randrange(3):
            kept_ms = random.randrange(1, 100) * HOUR_MS
            world.api.put_topic("t", {"retention_ms": kept_ms})
            ends = {body: min(end, stored_at_ms[body] + kept_ms) for body, end in ends.items()}
        body = f"{number} {random.choice(['', BIG])}"
        world.produce(body, key="k")
        stored_at_ms[body] = world.clock.ms
        ends[body] = world.clock.ms + kept_ms
        world.sweep()
        readable = [body for body, end in ends.items() if end > world.clock.ms]
        assert bodies(world.api.read_messages("t", {"limit": "100"})["messages"]) == readable
        assert bodies(world.api.read_messages("t", {"key": "k", "limit": "100"})["messages"]) == readable
        assert world.progress()["ready"] == len(readable)
    assert bodies(world.take(256, api=world.another())) == readable
    assert world.progress()["dead"] == 0


def test_messages_stored_before_a_raise_is_known_are_not_taken_for_lost(world: World) -> None:
    unaware = world.another()
    unaware.produce("t", {"messages": [{"body": BIG}]})
    world.api.put_topic("t", {"retention_ms": 20 * DAY_MS})
    world.clock.sleep(METADATA_AGE_MS_MAX)
    unaware.produce("t", {"messages": [{"body": BIG}]})
    world.produce("known")
    world.clock.sleep(GONE_MS)
    world.sweep()
    assert bodies(world.take()) == ["known"]
    assert (world.progress()["in_flight"], world.progress()["dead"]) == (1, 0)


def test_a_long_poll_promotes_with_a_retention_raised_meanwhile(world: World) -> None:
    started_ms = world.clock.ms
    sent = [Random(number).randbytes(400).hex() for number in range(4)]  # together too big for a segment
    world.api.produce("t", {"messages": [{"body": body, "delay_ms": 19_000} for body in sent]})
    another = world.another()
    world.clock.at(started_ms + 500, lambda: another.put_topic("t", {"retention_ms": 20 * DAY_MS}))
    assert len(world.api.pop("t", "g", {"wait_ms": 20_000})["messages"]) > 0
    world.group("late")
    world.clock.sleep(GONE_MS)
    world.sweep()
    assert bodies(world.take(group="late", api=world.another())) == sent


def test_a_topic_that_was_raised_by_an_older_version_can_be_read(world: World) -> None:
    [item] = world.items("topic#t")
    world.store.put_all([{**item, "raised_at_ms": world.clock.ms, "lapsed_at_ms": 1}])
    assert world.another().get_topic("t")["retention_ms"] == KEPT_MS


def test_trimming_what_is_idle_costs_half_a_read_unit_a_queue_once_a_day() -> None:
    world = World()
    world.api.put_topic("wide", {"queues": 100, "retention_ms": KEPT_MS})
    world.clock.sleep(GONE_MS)
    world.api.service.sweeps.expire()
    before = world.store.meter.read_units
    world.clock.sleep(DAY_MS)
    world.api.service.sweeps.expire()
    first = world.store.meter.read_units - before
    world.api.service.sweeps.expire()
    again = world.store.meter.read_units - before - first
    assert (first, again) == (57.0, 3.5)
    assert again <= 4


def test_the_last_segment_stays_though_it_is_full(world: World) -> None:
    while not Segment.of(world.items("log#")[-1]).is_sealed if world.items("log#") else True:
        end = world.produce("old")[0]["offset"]
    world.clock.sleep(GONE_MS)
    world.sweep()
    assert len(world.items("log#")) == 1
    assert (
        instance(world.store, world.clock, 9).produce("t", {"messages": [{"body": "new"}]})["messages"][0]["offset"]
        == end + 1
    )


def test_a_segment_that_was_read_as_it_once_was_stays() -> None:
    class LaggingStore(MemoryStore):
        """Reads that are not strong show some items as they were."""

        old: ClassVar[dict[str, Item]] = {}

        def read(self, reads: Sequence[Read]) -> list[list[Item]]:
            found = super().read(reads)
            for read, items in zip(reads, found, strict=True):
                if not read.strong:
                    items[:] = [self.old.get(item["pk"] + item["sk"], item) for item in items]
            return found

    world = World(LaggingStore())
    world.produce("old")
    LaggingStore.old = {item["pk"] + item["sk"]: copy.deepcopy(item) for item in world.items("log#")}
    world.clock.sleep(GONE_MS)
    world.produce(*["new"] * PER_SEGMENT)
    world.sweep()
    LaggingStore.old = {}
    assert len(world.api.read_messages("t", {"queue": "0", "offset": "0"})["messages"]) == PER_SEGMENT
