"""The reader finds exactly what the table holds of a log, however much of it is cached."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from random import Random

import pytest

from chalicelib.core.base.limits import EXPIRED_KEPT_MS, HOUR_MS, MINUTE_MS
from chalicelib.core.base.message import Message
from chalicelib.core.consuming.request import Pop
from chalicelib.core.log.reader import SeenSegments, Want, entry_at, stored_at, wire_bytes, within_reach
from chalicelib.core.log.segment import Entry, Segment, empty
from chalicelib.core.store import Range, Read
from chalicelib.core.table import keys
from chalicelib.core.table.writes import Item, key_of
from local.memory.store import MemoryStore
from tests.store.strict import StrictStore
from tests.support.clock import Clock
from tests.support.instances import instance, with_messages

QUEUES = range(2)
RETENTION_MS = 3 * HOUR_MS
LATE_MS = 10 * MINUTE_MS


class Watched(StrictStore):
    """Counts the round trips and the weak reads of a call. Weak reads by key find no payload: each was just written."""

    def __init__(self) -> None:
        super().__init__()
        self.trips = self.weak = 0

    def read(self, reads: Sequence[Read]) -> list[list[Item]]:
        self.trips += 1
        self.weak += sum(not read.strong for read in reads)
        found = super().read(reads)
        return [
            [item for item in items if read.strong or isinstance(read, Range) or "data" not in item]
            for read, items in zip(reads, found, strict=True)
        ]


class World:
    """Logs of two queues that grow, and lose their beginning when it has expired."""

    def __init__(self, seed: int) -> None:
        self.random, self.clock, self.store = Random(seed), Clock(), Watched()
        instance(self.store, self.clock).put_topic("t", {"queues": len(QUEUES), "retention_ms": RETENTION_MS})
        self.begin_anew()
        self.known: list[dict[int, Segment]] = [{} for _ in QUEUES]
        """By base, those that are gone too: the reader may have cached them."""

    def begin_anew(self) -> None:
        """Another instance, with nothing cached."""
        service = instance(self.store, self.clock).service
        self.topic = service.env.catalogue.topic("t")
        self.reader, self.offsets, self.writer = service.log.reader, service.log.offsets, service.log.writer

    def grow(self, queue: int, late_ms: int = 0) -> None:
        """`late_ms`: of an entry that was made so long ago, and fills its segment."""
        size = 1_400 if late_ms else self.random.choice([10, 10, 100, 600, 1_500, 4_000])
        count = 1 if late_ms else self.random.choice([1, 1, 3, 20])
        messages = [
            Message(self.random.randbytes(size // count // 2).hex() + str(part), None, None, None, {})
            for part in range(count)
        ]
        entry = Entry.packed(self.random.randbytes(8), messages, self.clock.ms - late_ms)
        [appended] = self.writer.append(self.topic, [(queue, entry, messages)])
        assert isinstance(appended.first, int)

    def lose(self, queue: int) -> None:
        """The first segments, as far as they have expired long ago, and all payloads that have; the last stays."""
        self.store.drop_expired(self.clock.ms)
        gone_ms = self.topic.gone_ms(self.clock.ms)
        for segment in self.segments(queue)[:-1]:
            if any(entry.stored_at_ms > gone_ms for entry in segment.entries):
                return
            self.store.remove_all([key_of({"pk": segment.log, "sk": segment.key.sk})])

    def is_stored(self, entry: Entry) -> bool:
        """Whether its messages are still there."""
        return entry.data is not None or bool(self.store._items.get(keys.payload(self.topic.id, entry.id, 0).pk))

    def segments(self, queue: int) -> list[Segment]:
        items = self.store._items.get(self.topic.logs[queue], {})
        segments = [Segment.of(items[sk]) for sk in sorted(items)]
        self.known[queue] |= {segment.base: segment for segment in segments}
        return segments

    def placed(self, queue: int) -> list[tuple[int, Entry]]:
        return [placed for segment in self.segments(queue) for placed in segment.placed]

    def want(self, queue: int) -> Want:
        segments = self.segments(queue)
        offset = self.random.randint(0, (segments[-1].end if segments else 0) + 2)
        hints = [0, *(base for base in self.known[queue] if base <= offset)]
        hint = self.random.choice([None, self.random.choice(hints)])
        since_ms = self.random.choice([0, self.topic.created_at_ms])
        return Want(self.topic.logs[queue], offset, self.random.choice([1, 2, 30, 300]), hint, since_ms)

    def right(self, queue: int, want: Want) -> Iterator[list[Segment]]:
        """Yields the correct chains: they may begin with removed segments, and end where more of those are missing."""
        left = len(self.segments(queue))
        known = [segment for _, segment in sorted(self.known[queue].items())]
        gone = len(known) - left
        for start in range(gone + 1):
            for stop in (*range(start + 1, gone), len(known)):
                behind = [segment for segment in known[start:stop] if segment.end > want.offset]
                enough = (at for at, segment in enumerate(behind, 1) if segment.end >= want.offset + want.count)
                yield behind[: next(enough, len(behind))]

    def look(self) -> None:
        wants = [self.want(queue) for queue in QUEUES]
        is_strong, seen = self.random.random() < 0.5, SeenSegments()
        self.store.trips = self.store.weak = 0
        if not is_strong:  # as a pop does
            reads = self.reader.guess(wants)
            self.reader.learn(seen, reads, self.store.read(reads))
        chains = self.reader.chains(wants, seen, is_strong)
        longest = max(map(len, chains))
        for queue, want, chain in zip(QUEUES, wants, chains, strict=True):
            assert chain in self.right(queue, want)
        assert self.store.trips <= 5 + longest // 8
        assert not (is_strong and self.store.weak)
        for queue, want, chain in zip(QUEUES, wants, chains, strict=True):
            self.check(queue, chain, want.offset)

    def check(self, queue: int, chain: list[Segment], at: int) -> None:
        """Checks all questions about a chain, at some offsets."""
        placed = [placed for segment in chain for placed in segment.placed]
        first, end = (placed[0][0], chain[-1].end) if placed else (at, at)
        offsets = sorted(self.random.sample(range(first, end), min(end - first, 12)))
        holding = {offset: own for own in placed for offset in offsets if own[0] <= offset < own[0] + own[1].count}
        touched = list(dict.fromkeys(own for own in holding.values()))
        assert wire_bytes(chain, offsets) == sum(entry.wire_bytes for _, entry in touched)
        assert wire_bytes(chain) == sum(entry.wire_bytes for _, entry in placed)
        assert stored_at(chain, at) == next((own.stored_at_ms for begin, own in placed if begin + own.count > at), 0)
        for offset in offsets:
            assert entry_at(chain, offset) == holding[offset][1]
        assert entry_at(chain, end) is entry_at(chain, first - 1) is None
        left, reached = self.random.choice([0, 1, *(touched[0][1].wire_bytes + more for more in (0, 1) if touched)]), []
        most = left
        for own in touched:
            reached += [offset for offset in offsets if holding[offset] == own] if left > 0 else []
            left -= own[1].wire_bytes
        assert within_reach(chain, offsets, most) == reached
        stored = self.reader.stored(self.topic, queue, chain, offsets)
        found = [each.offset for each in stored]
        assert [offset for offset in found if offset in offsets] == sorted(set(found))
        assert {offset for offset, (_, entry) in holding.items() if self.is_stored(entry)} <= set(found)
        for each in stored:
            begin, entry = holding[each.offset]
            assert (each.entry_id, each.stored_at_ms) == (entry.id, entry.stored_at_ms)
            assert (each.message.text or "").endswith(str(each.offset - begin))


@pytest.mark.parametrize("seed", range(5))
def test_a_chain_is_what_stands_in_the_table(seed: int) -> None:
    world = World(seed)
    for _ in range(180):
        act, queue = world.random.random(), world.random.choice(QUEUES)
        if act < 0.5:
            world.grow(queue)
        elif act < 0.53:
            world.begin_anew()
        elif act < 0.6:
            world.clock.ms += world.random.choice([MINUTE_MS, HOUR_MS, EXPIRED_KEPT_MS, EXPIRED_KEPT_MS])
            for each in QUEUES:
                world.lose(each)
        else:
            world.look()


@pytest.mark.parametrize("seed", range(4))
def test_the_first_message_since_an_instant_is_found(seed: int) -> None:
    world = World(seed)
    instants = [world.clock.ms]
    for _ in range(80):
        world.clock.ms += world.random.choice([0, 1, MINUTE_MS, HOUR_MS, 6 * HOUR_MS])
        instants.append(world.clock.ms)
        world.grow(queue := world.random.choice(QUEUES))
        world.lose(queue)
        gone_ms = world.topic.gone_ms(world.clock.ms)
        at_ms = max(gone_ms, world.random.choice(instants)) + world.random.choice([0, 1])
        logs = [world.placed(queue) for queue in QUEUES]
        ends = [log[-1][0] + log[-1][1].count if log else 0 for log in logs]

        def firsts(at_ms: int) -> list[int]:
            places = ((offset for offset, entry in log if entry.stored_at_ms >= at_ms) for log in logs)  # noqa: B023
            return [next(own, end) for own, end in zip(places, ends, strict=True)]  # noqa: B023

        world.store.weak = 0
        assert world.offsets.ends(world.topic) == ends
        assert world.offsets.ends_of([world.topic, world.topic]) == [ends, ends]
        world.store.weak = 0
        assert world.offsets.offsets_at(world.topic, at_ms) == firsts(at_ms)
        assert world.offsets.offsets_at(world.topic, at_ms, 1) == firsts(at_ms)[:1]
        assert world.offsets.firsts(world.topic, world.clock.ms) == firsts(world.topic.expired_ms(world.clock.ms) + 1)
        assert [world.offsets.surely_older(world.topic, queue, at_ms) for queue in QUEUES] == firsts(at_ms)
        assert not world.store.weak


@pytest.mark.parametrize("seed", range(4))
def test_nothing_before_what_is_surely_older_is_younger(seed: int) -> None:
    world = World(seed)
    for number in range(90):
        world.clock.ms += world.random.choice([0, MINUTE_MS])
        world.grow(0, LATE_MS if number % 8 == 7 else 0)
        at_ms = world.clock.ms - world.random.randint(0, 90) * MINUTE_MS
        first = world.offsets.surely_older(world.topic, 0, at_ms)
        assert all(entry.stored_at_ms < at_ms for offset, entry in world.placed(0) if offset < first)


def test_a_search_in_a_log_that_is_emptied_meanwhile_ends() -> None:
    world = World(0)
    for _ in range(9):
        world.grow(0)
    ends = world.offsets.ends(world.topic)
    world.begin_anew()
    world.offsets.ends = lambda *_: ends  # type: ignore[method-assign]
    world.store.remove_all([segment.key for segment in world.segments(0)])
    assert world.offsets.offsets_at(world.topic, world.clock.ms) == [0, 0]


@pytest.mark.parametrize("older", [0, 1])
def test_what_is_of_that_very_instant_is_not_surely_older(older: int) -> None:
    world, now = World(0), Clock().now()
    first = [(10, now - 2 * LATE_MS)] * older
    for size, at_ms in [*first, (700, now), (700, now - LATE_MS), (700, now + 1)]:  # each of these fills its segment
        messages = [Message(world.random.randbytes(size).hex(), None, None, None, {})]
        world.writer.append(world.topic, [(0, Entry.packed(world.random.randbytes(8), messages, at_ms), messages)])
    assert len(world.segments(0)) == 3
    found = [world.offsets.surely_older(world.topic, 0, at_ms) for at_ms in (now, now + 1)]
    assert found == [older, older + 2]


@pytest.mark.parametrize("hint", [None, 0])
def test_a_chain_ends_before_a_hole_and_begins_behind_it(hint: int | None) -> None:
    """A removal that has not ended leaves one. The segments of a deleted topic are emptied."""
    world = World(0)
    for _ in range(70):
        world.grow(0)
    segments, log = world.segments(0), world.topic.logs[0]
    assert len(segments) > 10
    world.clock.ms += 2 * EXPIRED_KEPT_MS
    world.store.remove_all([segment.key for segment in segments[5:7]])
    end = segments[-1].end

    def chain(offset: int, count: int = end) -> list[Segment]:
        world.begin_anew()
        return world.reader.chains([Want(log, offset, count, hint)])[0]

    assert chain(0) == segments[:5]
    for _ in range(2):
        assert chain(segments[5].base) == chain(segments[6].base) == segments[7:]
        assert chain(segments[5].base, 1) == segments[7:8]
        world.store.write(empty(segments[4], 0))


def test_a_view_that_has_met_a_reset_says_so_until_the_log_is_read_again() -> None:
    service = with_messages(StrictStore(), Clock(), 1).service
    popper = service.consuming.popper
    [view] = popper.look_and_promote(service.env.catalogue.topic("t"), "g", Pop(), set()).queues.values()
    view.learn(replace(view.cursor, epoch=view.cursor.epoch + 1))
    view.learn(view.cursor)
    assert view.is_moved


@pytest.mark.parametrize(("kind", "act"), [("log#", "produce"), ("delay#", "pop")])
def test_only_the_last_segment_and_what_is_due_first_are_read(
    kind: str, act: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, clock = MemoryStore(), Clock()
    api = with_messages(store, clock, 0)
    for number in range(4):
        body = Random(number).randbytes(400).hex()
        api.produce("t", {"messages": [{"body": body}, {"body": body, "delay_ms": 60_000}]})
    read, counts = store.read, list[int]()

    def counting(reads: Sequence[Read]) -> list[list[Item]]:
        answers = read(reads)
        counts.extend(sum(item["pk"].startswith(kind) for item in items) for items in answers)
        return answers

    monkeypatch.setattr(store, "read", counting)
    other = instance(store, clock, 1)
    if act == "produce":
        other.produce("t", {"messages": [{"body": "a"}]})
    else:
        other.pop("t", "g", {})
    assert max(counts) == 1
