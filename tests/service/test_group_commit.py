"""Calls of one process that append to one queue at the same time go together, and each gets its own answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from random import Random
from typing import Any

import pytest

from chalicelib.api import Api
from chalicelib.core.base.deadline import within
from chalicelib.core.base.errors import DecantError, StoreUnavailable, TopicNotFound
from chalicelib.core.base.limits import KIB, MIB
from chalicelib.core.base.runtime import Runtime
from chalicelib.core.log.segment import Entry, Segment
from chalicelib.core.store import Outcome, Throttled
from chalicelib.core.table.writes import Write
from chalicelib.service import Service
from local.memory.store import MemoryStore
from tests.support.scheduler import Killed, Scheduler

TRIP_MS = 5


class Process:
    """One instance, whose calls overlap: each round of appends takes `TRIP_MS`."""

    def __init__(self) -> None:
        random = Random(1)
        self.scheduler = Scheduler(random)
        self.store = MemoryStore()
        clock = (lambda: self.scheduler.now, self.scheduler.sleep, random.randbytes, lambda: self.scheduler.now)
        self.api = Api(Service(self.store, Runtime(*clock, self.scheduler.bell)))
        self.answers: dict[str, Any] = {}
        self.took_ms: dict[str, int] = {}
        self._write_each = self.store.write_each
        self.calls([lambda: self.api.put_topic("t", {"queues": 1})])
        self.store.write_each = self.answering()  # type: ignore[assignment, method-assign]

    def answering(self, answer: Callable[[], None] = lambda: None) -> Callable[[Sequence[Write]], list[Outcome]]:
        def write_each(writes: Sequence[Write]) -> list[Outcome]:
            self.scheduler.sleep(TRIP_MS)
            answer()
            return self._write_each(writes)

        return write_each

    def calls(self, calls: Sequence[Callable[[], object]]) -> None:
        """All at once, the first before the others."""
        for number, call in enumerate(calls):
            self.scheduler.spawn(partial(_do, call), number and 1)
        self.scheduler.run()

    def send(self, *bodies: str, after_ms: int = 0, **options: Any) -> Callable[[], None]:
        def call() -> None:
            self.scheduler.sleep(after_ms)
            began_ms = self.scheduler.now
            with suppress(Killed):
                try:
                    messages = [{"body": body, **options} for body in bodies]
                    self.answers[bodies[0]] = self.api.produce("t", {"messages": messages})["messages"]
                except DecantError as error:
                    self.answers[bodies[0]] = error
            self.took_ms[bodies[0]] = self.scheduler.now - began_ms

        return call

    def entries(self) -> list[Entry]:
        log = self.api.service.env.catalogue.topic("t").logs[0]
        items = self.store._items.get(log, {})
        return [entry for sk in sorted(items) for entry in Segment.of(items[sk]).entries]

    def read(self) -> dict[str, str]:
        """The bodies in the log, in order, by message id."""
        found = self.api.read_messages("t", {"queue": "0", "offset": "0"})["messages"]
        return {message["message_id"]: message["body"] for message in found}


def _do(call: Callable[[], object]) -> None:
    call()


@pytest.fixture
def process() -> Process:
    return Process()


def test_calls_that_come_during_an_append_go_together(process: Process) -> None:
    process.calls([process.send("a"), process.send("b1", "b2"), process.send("c"), process.send("d")])
    assert [entry.count for entry in process.entries()] == [1, 4]
    stored = process.read()
    assert sorted(stored.values()) == ["a", "b1", "b2", "c", "d"]
    for body, results in process.answers.items():
        assert stored[results[0]["message_id"]] == body
    assert {result["offset"] for results in process.answers.values() for result in results} == {0, 1, 2, 3, 4}


def test_a_call_alone_waits_for_nobody(process: Process) -> None:
    process.calls([process.send("a")])
    process.calls([process.send("b")])
    assert process.took_ms == {"a": TRIP_MS, "b": TRIP_MS}


def test_messages_with_dedup_ids_stay_apart(process: Process) -> None:
    process.calls([process.send("a"), process.send("b", dedup_id="b"), process.send("c"), process.send("d")])
    assert sorted(entry.count for entry in process.entries()) == [1, 1, 2]


@pytest.mark.parametrize(
    ("calls", "counts"),
    [
        ([["a"], ["b"] * 200, ["c"] * 50, ["d"] * 10], [1, 250, 10]),
        ([["a"], ["b" * 3 * MIB], ["c" * 3 * MIB], ["d" * KIB]], [1, 1, 2]),
    ],
    ids=["of messages", "of bytes"],
)
def test_as_many_go_together_as_one_request_may_send(
    process: Process, calls: list[list[str]], counts: list[int]
) -> None:
    process.calls([process.send(*bodies, after_ms=number) for number, bodies in enumerate(calls)])
    assert [entry.count for entry in process.entries()] == counts


def test_calls_that_a_dead_one_took_along_may_be_stored(process: Process) -> None:
    deaths = [2]

    def dies() -> None:
        deaths[0] -= 1
        if not deaths[0]:
            raise Killed

    process.store.write_each = process.answering(dies)  # type: ignore[assignment, method-assign]
    calls = [process.send(body, after_ms=number) for number, body in enumerate("abcd")]
    process.calls([*calls, process.send("e", after_ms=TRIP_MS + 2)])
    unknown = [error for error in process.answers.values() if isinstance(error, StoreUnavailable)]
    assert [error.outcome_unknown for error in unknown] == [True, True]
    assert process.answers["a"]
    assert process.answers["e"][0]["offset"] == 1


def test_a_call_gives_up_within_its_own_time(process: Process) -> None:
    def hangs() -> None:
        process.scheduler.sleep(5_000)

    def hasty() -> None:
        with within(process.scheduler.now + 100):
            process.send("b")()

    process.store.write_each = process.answering(hangs)  # type: ignore[assignment, method-assign]
    process.calls([process.send("a"), hasty, process.send("c")])
    assert process.took_ms["b"] <= 101 + TRIP_MS
    assert isinstance(process.answers["b"], StoreUnavailable)
    assert not process.answers["b"].outcome_unknown
    assert [entry.count for entry in process.entries()] == [1, 1]


def test_each_call_looks_a_topic_up_again_that_is_gone(process: Process) -> None:
    gone = [2]

    def removed() -> None:
        gone[0] -= 1
        if not gone[0]:
            raise TopicNotFound("topic 't' does not exist")

    process.calls([process.send("first")])
    process.store.write_each = process.answering(removed)  # type: ignore[assignment, method-assign]
    process.calls([process.send("a"), process.send("b"), process.send("c")])
    assert [answer[0]["offset"] for answer in process.answers.values()] == [0, 1, 2, 3]


def test_calls_with_different_settings_of_the_topic_stay_apart(process: Process) -> None:
    def changes() -> None:
        process.api.put_topic("t", {"index_keys": True})

    process.calls([process.send("a"), changes, process.send("b", after_ms=2, key="k"), process.send("c", after_ms=2)])
    assert [entry.count for entry in process.entries()] == [1, 1, 1]
    found = process.api.read_messages("t", {"key": "k"})["messages"]
    assert [message["body"] for message in found] == ["b"]


def test_a_call_with_little_time_takes_none_along_that_has_plenty(process: Process) -> None:
    began_ms = process.scheduler.now
    slow_ms = [95]

    def write_each(writes: Sequence[Write]) -> list[Outcome]:
        process.scheduler.sleep(slow_ms.pop() if slow_ms else TRIP_MS)
        if 0 < process.scheduler.now - began_ms - 95 < 100:
            return [Throttled("the store throttles") for _ in writes]
        return process._write_each(writes)

    def until(ms: int, body: str, after_ms: int) -> Callable[[], None]:
        def call() -> None:
            process.scheduler.sleep(after_ms)
            with within(began_ms + ms):
                process.send(body)()

        return call

    process.store.write_each = write_each  # type: ignore[method-assign]
    process.calls([process.send("a"), until(100, "b", after_ms=1), until(1_050, "c", after_ms=3)])
    assert isinstance(process.answers["b"], StoreUnavailable)
    assert process.answers["c"][0]["offset"] == 1
