"""An entry gets into its log once, at its end, with any number of writers, and after anything was removed meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest

from chalicelib.api import Api
from chalicelib.core.base.errors import StoreUnavailable, TopicNotFound
from chalicelib.core.base.limits import DAY_MS, ENTRY_LATE_MS, MINUTE_MS
from chalicelib.core.base.message import Message
from chalicelib.core.catalogue.topic import Topic
from chalicelib.core.log.segment import Entry, Segment, append, leave
from chalicelib.core.log.writer import LogWriter, Tail
from chalicelib.core.store import Keys, Outcome, Read
from chalicelib.core.table import keys
from chalicelib.core.table.writes import Item, Write, key_of
from tests.store.strict import StrictStore
from tests.support.clock import Clock
from tests.support.instances import instance


class World:
    def __init__(self) -> None:
        self.store, self.clock, self.random = StrictStore(), Clock(), Random(1)
        self.api = instance(self.store, self.clock)
        self.api.put_topic("t", {"queues": 2, "index_keys": True})
        self.topic = self.known(self.api)

    def another(self) -> LogWriter:
        return instance(self.store, self.clock, self.random.randrange(99)).service.log.writer

    @staticmethod
    def known(api: Api) -> Topic:
        return api.service.env.catalogue.topic("t")

    def entry(self, size: int = 0, *message_keys: str | None) -> Entry:
        """With messages of these keys; those of one world are of one instant, until its clock moves."""
        body = self.random.randbytes(size // 2).hex() or "x"
        messages = [Message(body, None, key, None, {}) for key in message_keys or (None,)]
        return Entry.packed(self.random.randbytes(8), messages, self.clock.ms)

    def append(self, writer: LogWriter, *sizes: int, queue: int = 0) -> list[int | StoreUnavailable]:
        """One after the other."""
        return [writer.append(self.topic, [(queue, self.entry(size), ())])[0].first for size in sizes]

    def segments(self, queue: int = 0) -> list[Segment]:
        items = self.store._items.get(self.topic.logs[queue], {})
        return [Segment.of(items[sk]) for sk in sorted(items)]

    def lose_first(self, count: int = 1) -> None:
        self.store.remove_all([segment.key for segment in self.segments()[:count]])


@pytest.fixture
def world() -> World:
    return World()


def test_a_log_goes_on_in_its_last_segment(world: World) -> None:
    log = world.topic.logs[0]
    for base in (3, 7):
        world.store.write(append(log, base, world.entry(), True))
    assert world.another().tails.tail(world.topic, log).base == 7


def test_an_entry_is_found_however_far_behind_it_is(world: World) -> None:
    writer = world.another()
    world.append(writer, *[500] * 12)
    entry = world.entry()
    [appended] = writer.append(world.topic, [(0, entry, ())])
    world.append(writer, *[500] * 4)
    assert [segment.offset_of(entry.id) for segment in world.segments()[:4]] == [None] * 4
    for base in (0, world.segments()[1].base):
        assert world.another().append_from(world.topic, 0, entry, base) == appended.first
    assert sum(segment.offset_of(entry.id) is not None for segment in world.segments()) == 1


def test_an_entry_that_lands_while_it_is_searched_is_not_appended_again(world: World) -> None:
    """One read may show a segment as it was and the next, which was made later."""
    entry, true = world.entry(), world.store.read
    world.append(world.another(), 10)
    [[before]] = world.store.read([Keys([world.segments()[0].key])])
    world.another().append(world.topic, [(0, entry, ())])
    world.append(world.another(), *[500] * 3)
    assert len(world.segments()) > 1

    def torn(reads: Sequence[Read]) -> list[list[Item]]:
        assert all(read.strong for read in reads)  # a weak one may not show the entry
        return [[before if key_of(item) == key_of(before) else item for item in items] for items in true(reads)]

    world.store.read = torn  # type: ignore[method-assign]
    assert world.another().append_from(world.topic, 0, entry, 0) == 1
    assert sum(segment.offset_of(entry.id) is not None for segment in world.segments()) == 1


def test_an_entry_goes_to_the_end_where_the_beginning_is_gone(world: World) -> None:
    writer, old = world.another(), world.another()
    world.append(old, 10)
    world.append(writer, *[500] * 8)
    end = world.segments()[-1].end
    world.lose_first(2)
    assert world.another().append_from(world.topic, 0, world.entry(), 0) == end
    tail = Tail(0, may_create=False, seen_at_ms=0)
    assert world.another().append_at(world.topic, 0, world.entry(), tail) == end + 1
    assert world.append(old, 10) == [end + 2]
    assert world.segments()[0].base > 0


def test_nothing_is_appended_to_a_topic_that_is_gone_or_another(world: World) -> None:
    writer = world.another()
    world.append(writer, 10)
    world.api.delete_topic("t")
    world.clock.sleep(10 * DAY_MS)
    world.store.drop_expired(world.clock.ms)
    assert world.segments() == []
    for _ in range(2):
        with pytest.raises(TopicNotFound):
            world.append(world.another(), 10)
        with pytest.raises(TopicNotFound):
            writer.append_from(world.topic, 0, world.entry(), 0)
        world.api.put_topic("t", {"queues": 2})
    new = world.api.service.env.catalogue.current_topic("t")
    assert not any(world.store._items.get(log) for log in (*world.topic.logs, *new.logs))


def test_a_queue_that_left_a_deleted_topic_is_not_opened_for_another(world: World) -> None:
    sleeper = instance(world.store, Clock(), 7).service.log.writer  # for which no time passes
    world.append(sleeper, 10, queue=1)
    closing = leave(world.topic.logs[1], world.segments(1)[-1], by=2)
    world.store.write(closing)
    world.store.remove_all([world.topic.key])  # its deletion has not closed its logs yet
    world.api.put_topic("t", {"queues": 2})
    with pytest.raises(TopicNotFound):
        world.append(sleeper, 10, queue=1)


def test_an_entry_that_stands_is_not_taken_for_one_that_failed(world: World) -> None:
    sleeper, entry, other = world.another(), world.entry(300), world.entry()
    world.append(sleeper, 10)
    world.append(world.another(), *[500] * 3)

    def throttled(items: Sequence[Item]) -> None:
        raise StoreUnavailable("throttled")

    world.store.put_all = throttled  # type: ignore[method-assign]
    failed, stored = sleeper.append(world.topic, [(0, entry, ()), (1, other, ())])
    assert (isinstance(failed.first, StoreUnavailable), stored.first) == (True, 0)
    assert world.segments(1)[0].offset_of(other.id) == 0


def test_who_never_gets_a_place_gives_up_in_time(world: World) -> None:
    slow, quick, true = world.another(), world.another(), world.store.write_each

    def late(writes: Sequence[Write]) -> list[Outcome]:
        world.store.write_each = true  # type: ignore[method-assign]
        world.append(quick, 500)
        while not world.segments()[-1].is_sealed:
            world.append(quick, 500)
        world.clock.sleep(2_000)
        world.store.write_each = late  # type: ignore[method-assign]
        return true(writes)

    world.append(slow, 10)
    world.store.write_each = late  # type: ignore[method-assign]
    [failed] = world.append(slow, 10)
    assert isinstance(failed, StoreUnavailable)
    assert not failed.outcome_unknown


def test_the_time_of_an_append_is_told_where_it_is_alone(world: World) -> None:
    writer, true = world.another(), world.store.write_each
    world.append(writer, 10)
    world.append(world.another(), *[500] * 3)  # the first try meets a full segment

    def slow(writes: Sequence[Write]) -> list[Outcome]:
        world.clock.sleep(7)
        return true(writes)

    world.store.write_each = slow  # type: ignore[method-assign]
    assert [each.took_ms for each in writer.append(world.topic, [(0, world.entry(), ())])] == [14]
    two = [(queue, world.entry(), ()) for queue in range(2)]
    assert [each.took_ms for each in writer.append(world.topic, two)] == [0, 0]


@pytest.mark.parametrize(("early_ms", "is_gone"), [(0, False), (1, False), (0, True)])
def test_a_late_entry_is_noted_in_its_own_index_alone(world: World, early_ms: int, is_gone: bool) -> None:
    """One that lands half a minute later is late. `is_gone`: its index item expires just before the note."""
    first, late, writer = world.entry(0, "k"), world.entry(0, "k", None), world.another()
    message = [Message("x", None, "k", None, {})]
    writer.index(world.topic, [(0, first, message), (0, late, message)])
    writer.append(world.topic, [(0, first, ())])
    world.append(writer, *[500] * 4)
    base, true = world.segments()[-1].base, world.store.write_each
    index = keys.index(world.topic.id, "k")

    def expire(writes: Sequence[Write]) -> list[Outcome]:
        world.store.write_each = true  # type: ignore[method-assign]
        if is_gone:
            world.store.remove_all([write.key for write in writes])
        return true(writes)

    world.clock.sleep(ENTRY_LATE_MS - MINUTE_MS // 2 - early_ms)
    world.store.write_each = expire  # type: ignore[method-assign]
    world.another().append_from(world.topic, 0, late, 0)
    noted = {keys.indexed_entry(sk)[1]: item.get("late", False) for sk, item in world.store._items[index].items()}
    assert noted == ({first.id: False} if is_gone else {first.id: False, late.id: not early_ms})
    assert all(item["base"] == base for item in world.store._items[index].values() if "late" in item)
