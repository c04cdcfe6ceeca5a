"""Calls that append to one log at once, in virtual time: whatever happens, each gets the outcome of its own entry."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chalicelib.base import deadline
from chalicelib.base.errors import StoreUnavailable, TopicNotFound
from chalicelib.base.runtime import Runtime
from chalicelib.log.group_commit import TOGETHER_MAX, GroupCommit
from chalicelib.log.segment import Entry
from chalicelib.store import Outcome
from chalicelib.table.writes import Refused
from tests.support.scheduler import Scheduler

WRITE_MS = 10
ENDINGS = ("stored", "refused", "unstored", "in doubt", "topic gone", "defect")


class Defect(Exception):
    pass


class Bell:
    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler, self._has_rung = scheduler, False

    def ring(self) -> None:
        self._has_rung = True

    def wait(self, ms: int) -> None:
        until = self._scheduler.now + ms
        while not self._has_rung and self._scheduler.now < until:
            self._scheduler.sleep(1)


class World:
    """Calls, and a log that ends each write as it is told."""

    def __init__(self, seed: int) -> None:
        self.scheduler = Scheduler(Random(seed))
        self.began_ms = self.scheduler.now
        runtime = Runtime(self._now, self.scheduler.sleep, Random(seed).randbytes, self._now, self._bell)
        self.commits = GroupCommit(runtime)
        self.endings: list[str] = []
        self.writes: list[list[bytes]] = []
        self.landed: Counter[bytes] = Counter()
        self.under_way = 0
        self.results: dict[bytes, Outcome | Exception | None] = {}
        self.late_ms: list[int] = []

    def _now(self) -> int:
        return self.scheduler.now

    def _bell(self) -> Bell:
        return Bell(self.scheduler)

    def call(self, number: int, after_ms: int, time_ms: int = 1_000, part_ms: int = 1_000) -> None:
        """`part_ms`: how long a call waits for one way, while no write of it is under way."""
        entry = Entry(number.to_bytes(8, "big"), 1, 0, "json", 1, b"")

        def run() -> None:
            until_ms = self._now() + time_ms
            with deadline.within(until_ms), deadline.part_until(self._now() + part_ms):
                try:
                    self.results[entry.id] = self.commits.write("log", entry, self.send)
                except (TopicNotFound, Defect) as error:
                    self.results[entry.id] = error
            self.late_ms.append(self._now() - until_ms)

        self.scheduler.spawn(run, after_ms)

    def send(self, entries: Sequence[Entry]) -> Outcome:
        assert not self.under_way, "one write of a log at a time"
        ending = self.endings.pop(0) if self.endings else "stored"
        if ending == "topic gone":
            raise TopicNotFound("gone")
        self.writes.append([entry.id for entry in entries])
        self.under_way += 1
        self.scheduler.sleep(WRITE_MS)
        self.under_way -= 1
        if ending in ("stored", "in doubt", "defect"):
            self.landed.update(entry.id for entry in entries)
        if ending == "defect":
            raise Defect
        outcomes: dict[str, Outcome] = {
            "stored": {"entries": [entry.id for entry in entries]},
            "refused": Refused(None),
            "unstored": StoreUnavailable("throttled"),
            "in doubt": StoreUnavailable("cut off", outcome="unknown"),
        }
        return outcomes[ending]


def test_calls_that_come_during_a_write_share_the_next_one() -> None:
    world = World(1)
    for number in range(5):
        world.call(number, after_ms=number)
    world.scheduler.run()
    assert [len(write) for write in world.writes] == [1, 4]
    assert {type(result) for result in world.results.values()} == {dict}
    assert world.scheduler.now - world.began_ms <= 3 * WRITE_MS, "they hear of it at once"


def test_a_write_takes_so_many_along_and_no_more() -> None:
    world = World(1)
    for number in range(TOGETHER_MAX + 3):
        world.call(number, after_ms=min(number, 1))
    world.scheduler.run()
    assert [len(write) for write in world.writes] == [1, TOGETHER_MAX, 2]


@pytest.mark.parametrize("ending", ["unstored", "topic gone"])
def test_a_failure_that_stored_nothing_lets_the_others_try_again(ending: str) -> None:
    world = World(1)
    world.endings = ["stored", ending]
    for number in range(4):
        world.call(number, after_ms=number)
    world.scheduler.run()
    assert [*map(type, world.results.values())].count(type(None)) == 2


def test_a_call_that_ends_by_a_defect_leaves_the_others_in_doubt() -> None:
    world = World(1)
    world.endings = ["stored", "defect"]
    for number in range(4):
        world.call(number, after_ms=number)
    world.scheduler.run()
    doubts = [result for result in world.results.values() if isinstance(result, StoreUnavailable)]
    assert [doubt.outcome_unknown for doubt in doubts] == [True, True]


def test_a_call_whose_write_is_under_way_waits_for_its_outcome() -> None:
    world = World(1)
    for number in range(3):
        world.call(number, after_ms=number, part_ms=WRITE_MS + 3)
    world.scheduler.run()
    assert {type(result) for result in world.results.values()} == {dict}


def test_a_call_without_time_withdraws_an_entry_that_nobody_took_along() -> None:
    world = World(1)
    world.call(0, after_ms=0)
    world.call(1, after_ms=1, time_ms=5)
    world.scheduler.run()
    assert world.results[(1).to_bytes(8, "big")] is None
    assert world.writes == [[bytes(8)]]


CALLS = st.lists(st.tuples(st.integers(0, 60), st.integers(1, 40)), min_size=1, max_size=24)


@given(st.integers(0, 1_000), CALLS, st.lists(st.sampled_from(ENDINGS), max_size=12))
def test_each_call_gets_the_outcome_of_its_own_entry(
    seed: int, calls: list[tuple[int, int]], endings: list[str]
) -> None:
    world = World(seed)
    world.endings = endings
    for number, (after_ms, time_ms) in enumerate(calls):
        world.call(number, after_ms, time_ms)
    world.scheduler.run()
    assert len(world.results) == len(calls), "each call ends"
    assert max(world.late_ms) <= WRITE_MS, "a call in whose time a write began waits for that at most"
    assert max(Counter(entry for write in world.writes for entry in write).values(), default=0) <= 1
    for entry, result in world.results.items():
        if isinstance(result, dict):
            assert entry in result["entries"]
            assert world.landed[entry]
        elif not isinstance(result, Defect) and not (isinstance(result, StoreUnavailable) and result.outcome_unknown):
            assert not world.landed[entry]
