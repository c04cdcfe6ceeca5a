"""Follows a message from its produce to the trim of its log: units, round trips and log lines, counted on the memory
store, whose meter bills as DynamoDB does. Time is virtual and chance seeded, so each run counts the same."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

from benchmarks.decant import GROUP, InProcess
from benchmarks.operations import POP, PRODUCE, Case
from benchmarks.workload import Workload
from chalicelib.api import Api
from chalicelib.core.base.limits import DAY_MS, HOUR_MS
from chalicelib.core.base.runtime import Runtime
from chalicelib.core.log.segment import Segment
from chalicelib.core.store import Range
from chalicelib.core.table import keys
from chalicelib.core.table.writes import Key
from chalicelib.service import Service
from local.memory.meter import Meter
from local.memory.store import MemoryStore

_START_MS, _STEP_MS = 1_767_225_600_000, 10
_LOOPS, _WARM_LOOPS, _SWEEPS = 128, 8, 3
_OK = 200
_EVENT_BYTES = 26
"""Further bytes that CloudWatch Logs bills for each line."""


@dataclass(frozen=True, slots=True)
class Share:
    """The share of a message in the calls of its batch."""

    writes: float
    reads: float
    round_trips: float


@dataclass(frozen=True, slots=True)
class Traffic:
    """The use of one message. Each group pops it, and acks it with its next pop. `line_bytes`: of a call."""

    produced: Share
    popped: Share
    trim_writes: float
    line_bytes: float


def traffic(case: Case) -> Traffic:
    loop = _Loop(case)
    for _ in range(_WARM_LOOPS):
        loop.produce()
        loop.pop()
    loop.logged_bytes = 0
    produced, popped = Meter(), Meter()
    for _ in range(_LOOPS):
        loop.cost(PRODUCE, loop.produce, produced)
        loop.cost(POP, loop.pop, popped)
    messages = _LOOPS * case.batch
    line_bytes = loop.logged_bytes / (2 * _LOOPS)
    return Traffic(_share(produced, messages), _share(popped, messages), loop.trim_writes(), line_bytes)


class _Loop:
    """A topic of four queues and a group, on one warm instance."""

    def __init__(self, case: Case) -> None:
        self._case, self._ms, self._workload = case, _START_MS, Workload(case.size)
        self._store, self.logged_bytes = MemoryStore(), 0
        runtime = Runtime(lambda: self._ms, self._pass, Random(0).randbytes, lambda: self._ms - _START_MS)
        self._service = Service(self._store, runtime, bytes(16))
        self._service.telemetry.log_to(self._wrote, "decant-prod")
        self._decant = InProcess(Api(self._service), case.topic)
        self._receipts: list[str] = []

    def produce(self) -> None:
        self._pass(_STEP_MS)
        self._decant.send(self._workload.take(self._case.batch))

    def pop(self) -> None:
        self._pass(_STEP_MS)
        self._receipts = self._decant.take(self._case.batch, self._receipts)
        assert len(self._receipts) == self._case.batch

    def cost(self, operation: str, act: Callable[[], None], total: Meter) -> None:
        """Adds the cost of a call, and writes its log line as a request does."""
        before = self._store.meter.copy()
        with self._service.telemetry.call(operation, self._case.topic, GROUP) as record:
            act()
            record.status = _OK
        cost = self._store.meter.since(before)
        total.write_units += cost.write_units
        total.read_units += cost.read_units
        total.round_trips += cost.round_trips

    def trim_writes(self) -> float:
        """The write units with which sweeps remove a message a week later, without two writes an hour for
        appointments."""
        self._pass(7 * DAY_MS)
        remove_all, removed = self._store.remove_all, Meter()

        def remove(wanted: Sequence[Key]) -> None:
            before = self._store.meter.copy()
            remove_all(wanted)
            removed.write_units += self._store.meter.since(before).write_units

        self._store.remove_all = remove  # type: ignore[assignment, method-assign]
        for _ in range(_SWEEPS):
            self._pass(HOUR_MS)
            self._service.sweeps.expire()
        return removed.write_units / self._trimmed()

    def _trimmed(self) -> int:
        """How many messages are gone: the offset at which the first remaining segment begins."""
        logs = self._service.env.catalogue.current_topic(self._case.topic).logs
        firsts = self._store.read([Range(log, keys.FIRST, keys.LAST, limit=1) for log in logs])
        return sum(Segment.of(items[0]).base for items in firsts if items)

    def _pass(self, ms: int) -> None:
        self._ms += ms

    def _wrote(self, line: str) -> None:
        self.logged_bytes += len(line) + _EVENT_BYTES


def _share(total: Meter, messages: int) -> Share:
    return Share(total.write_units / messages, total.read_units / messages, total.round_trips / messages)
