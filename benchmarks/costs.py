"""Measures each operation: units and round trips by the memory store's meter, CPU time on both stores, and messages per
second on the emulator."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from benchmarks import servers
from benchmarks.decant import InProcess
from benchmarks.measuring import Took
from benchmarks.operations import NOTHING, OPERATIONS, Case, Operations
from benchmarks.progress import shown
from benchmarks.report import Cell, size_name, table
from chalicelib.api import Api
from chalicelib.core.base.runtime import system
from chalicelib.service import Service
from local.memory.meter import Meter
from local.memory.store import MemoryStore

CASES = tuple(Case(size, batch) for size in (200, 1_000, 10_000) for batch in (1, 10, 100))

_HEADERS = (
    "message",
    "batch",
    "operation",
    "write units",
    "read units",
    "round trips",
    "CPU µs, memory",
    "CPU µs, emulator",
    "messages/s, emulator",
)

Taken = dict[str, list[Took]]


def costs(cycles: int) -> str:
    rows: list[list[Cell]] = []
    with servers.emulated_store() as store:
        emulated = Api(Service(store, system()))
        for case in shown(CASES, len(CASES), "each operation on both stores"):
            in_memory = _in_memory(case, cycles)
            on_emulator = Operations(InProcess(emulated, case.topic), case, Meter()).run(cycles)
            rows += _rows(case, in_memory, on_emulator)
    return table("(a) Each operation, by message and batch size", _HEADERS, rows)


def _in_memory(case: Case, cycles: int) -> Taken:
    store = MemoryStore()
    return Operations(InProcess(Api(Service(store, system())), case.topic), case, store.meter).run(cycles)


def _rows(case: Case, in_memory: Taken, on_emulator: Taken) -> Iterator[list[Cell]]:
    for operation in OPERATIONS:
        billed, real = in_memory[operation], on_emulator[operation]
        yield [
            size_name(case.size),
            case.batch,
            operation,
            statistics.fmean(took.cost.write_units for took in billed),
            statistics.fmean(took.cost.read_units for took in billed),
            statistics.fmean(took.cost.round_trips for took in billed),
            _cpu_us(billed),
            _cpu_us(real),
            "-" if operation == NOTHING else round(case.batch * len(real) / sum(took.seconds for took in real)),
        ]


def _cpu_us(taken: list[Took]) -> int:
    return round(1_000_000 * statistics.median(took.cpu_seconds for took in taken))
