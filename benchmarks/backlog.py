"""Measures pops from a backlog: pops of ten over HTTP on `make run`'s memory store, and the units of the same pops.

Two servers, one with few stored messages and one with many, take turns, so that other load on the machine hits both.
The benchmark stores many messages one by one first, then in batches, since the two cost a reader differently. A second
group starts where the batches do.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from benchmarks import servers
from benchmarks.decant import GROUP, InProcess, OverHttp
from benchmarks.measuring import Took, measured
from benchmarks.progress import shown
from benchmarks.report import Cell, table
from benchmarks.workload import Workload
from chalicelib.api import Api
from chalicelib.core.base.runtime import system
from chalicelib.service import Service
from local.memory.meter import Meter
from local.memory.store import MemoryStore

FEW = 1_000
BUDGET_MS = 15
"""The median time that a pop over HTTP may take."""

_SIZE = 200
_POP = 10
_BATCH = 100
_WARM_UP_POPS = 5
_TOPIC = "orders"
_LATE_GROUP = "billing-late"
_HEADERS = (
    "stored",
    "one by one",
    "popped are",
    "median ms",
    "95th percentile ms",
    "ratio",
    "read units",
    "write units",
)

Decant = InProcess | OverHttp


@dataclass(frozen=True, slots=True)
class Plan:
    """`stored` messages: at most `singles` one by one, within `singles_seconds`; the rest in batches. `pops` of each
    kind, which together with the warm-up must find enough in `FEW`."""

    stored: int
    singles: int
    singles_seconds: float
    pops: int


@dataclass(slots=True)
class Backlog:
    """Messages that wait, one group that takes them, and what its pops took."""

    decant: Decant
    group: str
    stored: int
    singles: int
    popped_are: str
    pops: list[Took] = field(default_factory=list)

    @property
    def median_ms(self) -> float:
        return 1_000 * statistics.median(took.seconds for took in self.pops)

    @property
    def late_ms(self) -> float:
        return 1_000 * statistics.quantiles((took.seconds for took in self.pops), n=20)[-1]

    def pop(self, meter: Meter) -> Took:
        self.decant.group = self.group
        receipts, took = measured(lambda: self.decant.take(_POP), meter)
        assert len(receipts) == _POP
        self.decant.settle(receipts)
        return took


def backlog(plan: Plan) -> str:
    with servers.decant() as first, servers.decant() as second:
        # Many first: while they are stored, a connection to the other server would be idle for too long.
        many = _many(OverHttp(first, _TOPIC), plan, "over HTTP")
        timed = [_few(OverHttp(second, _TOPIC), "over HTTP"), *many]
        _take_turns(timed, Meter(), plan.pops, "pops over HTTP")
    store = MemoryStore()
    api = Api(Service(store, system()))
    same = replace(plan, singles=timed[-1].singles, singles_seconds=float("inf"))
    many = _many(InProcess(api, f"{_TOPIC}-many"), same, "in memory")
    billed = [_few(InProcess(api, f"{_TOPIC}-few"), "in memory"), *many]
    _take_turns(billed, store.meter, plan.pops, "pops in memory")
    return _report(timed, billed)


def _few(decant: Decant, place: str) -> Backlog:
    _store_singles(decant, FEW, float("inf"), place)
    return Backlog(decant, GROUP, FEW, FEW, "singles")


def _many(decant: Decant, plan: Plan, place: str) -> list[Backlog]:
    singles = _store_singles(decant, plan.singles, plan.singles_seconds, place)
    decant.add_group(_LATE_GROUP, start="latest")
    _store_batches(decant, plan.stored - singles, place)
    groups = {GROUP: "singles", _LATE_GROUP: "batches"}
    return [Backlog(decant, group, plan.stored, singles, popped_are) for group, popped_are in groups.items()]


def _store_singles(decant: Decant, count: int, seconds: float, place: str) -> int:
    """Stores up to `count` messages one by one, and says how many there was time for."""
    workload = Workload(_SIZE)
    end = time.monotonic() + seconds
    for stored in shown(range(count), count, f"{count} messages one by one {place}"):
        if time.monotonic() > end:
            return stored
        decant.send(workload.take(1))
    return count


def _store_batches(decant: Decant, count: int, place: str) -> None:
    workload = Workload(_SIZE)
    sizes = [min(_BATCH, count - at) for at in range(0, count, _BATCH)]
    for size in shown(sizes, len(sizes), f"{count} messages in batches {place}"):
        decant.send(workload.take(size))


def _take_turns(backlogs: Sequence[Backlog], meter: Meter, pops: int, label: str) -> None:
    for turn in shown(range(_WARM_UP_POPS + pops), _WARM_UP_POPS + pops, label):
        for backlog in backlogs:
            took = backlog.pop(meter)
            if turn >= _WARM_UP_POPS:
                backlog.pops.append(took)


def _report(timed: Sequence[Backlog], billed: Sequence[Backlog]) -> str:
    rows = [_row(over_http, in_memory, timed[0].median_ms) for over_http, in_memory in zip(timed, billed, strict=True)]
    slowest = max(backlog.median_ms for backlog in timed)
    verdict = f"Under {BUDGET_MS} ms at the median: {'yes' if slowest < BUDGET_MS else 'NO'}.\n"
    return f"{table(f'(c) A pop of {_POP} with a backlog', _HEADERS, rows)}\n{verdict}"


def _row(over_http: Backlog, in_memory: Backlog, few_ms: float) -> list[Cell]:
    reads = statistics.fmean(took.cost.read_units for took in in_memory.pops)
    writes = statistics.fmean(took.cost.write_units for took in in_memory.pops)
    about: list[Cell] = [over_http.stored, over_http.singles, over_http.popped_are]
    return [*about, over_http.median_ms, over_http.late_ms, over_http.median_ms / few_ms, reads, writes]
