"""Appends to a log where many write: what a refusal costs, and that nobody tries for long."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from chalicelib.core.base.deadline import within
from chalicelib.core.base.errors import StoreUnavailable
from chalicelib.core.base.limits import SECOND_MS
from chalicelib.core.log.writer import LogWriter, Tail
from chalicelib.core.store import Outcome, Range, Read, Throttled
from chalicelib.core.table import keys
from chalicelib.core.table.writes import Item, Write, key_of
from tests.service.test_appends import World

TRIES_MAX = 7


@pytest.fixture
def world() -> World:
    return World()


def fill(world: World, segments: int, writer: LogWriter | None = None) -> None:
    """Others append until the log has so many segments more."""
    writer, before = writer or world.another(), len(world.segments())
    while len(world.segments()) < before + segments:
        world.append(writer, 500)


def requests(world: World, act: Callable[[], object]) -> tuple[float, float]:
    """The write and read units that it takes."""
    before = world.store.meter.copy()
    act()
    cost = world.store.meter.since(before)
    return cost.write_units, cost.read_units


def answering(world: World, answer: Callable[[Write], Outcome | None]) -> list[Write]:
    """Answers appends in place of the store; None: the store does. Returns the list of them."""
    true, seen = world.store.write_each, list[Write]()

    def write_each(writes: Sequence[Write]) -> list[Outcome]:
        seen.extend(writes)
        return [answer(write) or true([write])[0] for write in writes]

    world.store.write_each = write_each  # type: ignore[method-assign]
    return seen


def always_throttled(_: Write) -> Throttled:
    return Throttled("the store throttles")


def test_an_append_is_refused_once_however_far_others_have_gone(world: World) -> None:
    sleeper = world.another()
    world.append(sleeper, 10)
    fill(world, 12)
    end, began_ms = world.segments()[-1].end, world.clock.ms
    assert requests(world, lambda: world.append(sleeper, 10)) == (2, 0.5)
    assert (world.segments()[-1].end, world.clock.ms) == (end + 1, began_ms)


def test_who_was_outrun_looks_before_it_appends_until_it_is_alone(world: World) -> None:
    sleeper, quick = world.another(), world.another()
    world.append(sleeper, 10)
    for segments, cost in ((3, (2, 0.5)), (3, (1, 0.5)), (3, (1, 0.5))):
        fill(world, segments, quick)
        assert requests(world, lambda: world.append(sleeper, 10)) == cost
    costs = [requests(world, lambda: world.append(sleeper, 10)) for _ in range(5)]
    assert costs == [(1, 0.5)] * 3 + [(1, 0)] * 2


def test_ends_of_several_logs_are_read_in_one_round_trip(world: World) -> None:
    before = world.store.meter.copy()
    world.another().append(world.topic, [(queue, world.entry(), ()) for queue in range(2)])
    assert world.store.meter.since(before).round_trips == 2


def test_a_read_of_an_older_end_costs_a_refusal_and_no_more(world: World) -> None:
    sleeper, true = world.another(), world.store.read
    world.append(sleeper, 10)
    fill(world, 2)
    [old] = true([Range(world.topic.logs[0], keys.FIRST, keys.LAST, limit=1)])
    fill(world, 3)

    def late(reads: Sequence[Read]) -> list[list[Item]]:
        return [items if read.strong else old for read, items in zip(reads, true(reads), strict=True)]

    world.store.read = late  # type: ignore[method-assign]
    end = world.segments()[-1].end
    appends = answering(world, lambda _: None)
    assert world.append(sleeper, 10) == [end]
    assert len(appends) == 3


def test_an_append_that_is_always_refused_gives_up_within_a_second(world: World) -> None:
    slow, quick = world.another(), world.another()
    world.append(slow, 10)
    true = world.store.write_each

    def outrun(_: Write) -> None:
        own, world.store.write_each = world.store.write_each, true  # type: ignore[method-assign]
        fill(world, 1, quick)
        world.store.write_each = own  # type: ignore[method-assign]

    appends = answering(world, outrun)
    began_ms = world.clock.ms
    [failed] = world.append(slow, 10)
    assert isinstance(failed, StoreUnavailable)
    assert not failed.outcome_unknown
    assert len(appends) == TRIES_MAX
    assert world.clock.ms - began_ms < SECOND_MS


def test_a_throttled_append_waits_longer_each_time_and_gives_up(world: World) -> None:
    writer = world.another()
    world.append(writer, 10)
    appends, world.clock.slept[:] = answering(world, always_throttled), []
    [failed] = world.append(writer, 10)
    assert isinstance(failed, StoreUnavailable)
    assert not isinstance(failed, Throttled)
    assert not failed.outcome_unknown
    assert len(appends) == TRIES_MAX
    assert len(world.clock.slept) == TRIES_MAX - 1
    assert all(0 < ms <= 10 << number for number, ms in enumerate(world.clock.slept))


@pytest.mark.parametrize("left_ms", [0, 5, 30, 100])
def test_an_append_never_waits_beyond_the_time_of_its_call(world: World, left_ms: int) -> None:
    writer = world.another()
    world.append(writer, 10)
    answering(world, always_throttled)
    began_ms = world.clock.ms
    with within(world.clock.uptime() + left_ms):
        [failed] = world.append(writer, 10)
    assert isinstance(failed, StoreUnavailable)
    assert world.clock.ms - began_ms <= left_ms


def test_an_append_that_can_go_elsewhere_is_throttled_once(world: World) -> None:
    writer = world.another()
    world.append(writer, 10)
    appends = answering(world, always_throttled)
    [failed] = writer.append(world.topic, [(0, world.entry(), ())], may_leave=True)
    assert isinstance(failed.first, StoreUnavailable)
    assert len(appends) == 1


def test_a_throttled_append_goes_on_where_the_log_ends_by_then(world: World) -> None:
    writer, quick = world.another(), world.another()
    world.append(writer, 10)
    world.append(quick, 10)
    true = world.store.write_each

    def once(_: Write) -> Outcome | None:
        world.store.write_each = true  # type: ignore[method-assign]
        fill(world, 4, quick)
        return Throttled("the store throttles")

    answering(world, once)
    assert requests(world, lambda: world.append(writer, 10))[1] == 0.5
    assert world.segments()[-1].entries[-1].count == 1


@pytest.mark.parametrize("before", [0, 5])
def test_an_entry_that_another_appended_is_found_on_the_way(world: World, before: int) -> None:
    """`before`: segments that the log had before it."""
    start, entry = Tail(0, may_create=True, seen_at_ms=0), world.entry()
    fill(world, 1 + before)
    first = world.another().append_at(world.topic, 0, entry, start)
    fill(world, 70)
    assert world.another().append_at(world.topic, 0, entry, start) == first
    assert sum(segment.offset_of(entry.id) is not None for segment in world.segments()) == 1


def test_an_entry_is_not_missed_in_a_segment_made_during_the_read(world: World) -> None:
    """A read of a range may lack an item and show another behind it that was made later."""
    start, entry, true = Tail(0, may_create=True, seen_at_ms=0), world.entry(), world.store.read
    fill(world, 3)
    first = world.another().append_at(world.topic, 0, entry, start)
    with_it = next(segment.key for segment in world.segments() if segment.offset_of(entry.id) is not None)
    fill(world, 2)

    def torn(reads: Sequence[Read]) -> list[list[Item]]:
        found = true(reads)
        lacking = [[item for item in items if key_of(item) != with_it] for items in found]
        if lacking != found:
            world.store.read = true  # type: ignore[method-assign]
        return lacking

    world.store.read = torn  # type: ignore[method-assign]
    assert world.another().append_from(world.topic, 0, entry, 0) == first
    assert sum(segment.offset_of(entry.id) is not None for segment in world.segments()) == 1
