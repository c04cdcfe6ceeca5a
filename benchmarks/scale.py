"""Compares the same calls beside few and many topics, groups, queues and messages, and many writers and servers with
one.

Each size runs in processes of its own: one on the memory store, whose meter bills refused writes too, for units; one on
an emulator, for time, and for the memory of an instance whose store is elsewhere."""

from __future__ import annotations

import multiprocessing
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

from benchmarks import servers
from benchmarks.crowds import of_servers, of_writers
from benchmarks.many import MANY, Measured, measure
from benchmarks.progress import shown
from benchmarks.report import Cell, table
from chalicelib.core.base.limits import MIB


@dataclass(frozen=True, slots=True)
class Sizes:
    """The counts to measure. `seconds`: how long each crowd works."""

    topics: Sequence[int] = (10, 1_000, 10_000)
    groups: Sequence[int] = (1, 100, 1_000)
    queues: Sequence[int] = (1, 16, 128)
    messages: Sequence[int] = (1_000, 1_000_000)
    writers: Sequence[tuple[int, int]] = ((1, 1), (1, 4), (1, 16), (4, 4), (16, 1))
    """Processes, and the threads of each."""
    servers: Sequence[int] = (1, 2, 3, 4)
    seconds: float = 5


QUICK = Sizes((10, 100), (1, 100), (1, 16), (1_000, 20_000), ((1, 1), (1, 16)), (1, 2), 1)


def scale(sizes: Sizes) -> str:
    servers.demand_emulator()
    tables = [_beside(what, getattr(sizes, what)) for what in MANY]
    return "\n".join([*tables, of_writers(sizes.writers, sizes.seconds), of_servers(sizes.servers, sizes.seconds)])


def _beside(what: str, counts: Sequence[int]) -> str:
    """One table: the cost of each call beside each count."""
    in_memory = [_apart(what, count, False) for count in shown(counts, len(counts), f"many {what}")]
    emulated = [_apart(what, count, True) for count in shown(counts, len(counts), f"many {what}, on the emulator")]
    headers = ["call", *(f"{count:,} {what}" for count in counts), "units grow"]
    rows = [_row(name, in_memory, emulated) for name in in_memory[0].calls]
    rows += _memory(in_memory, emulated, counts)
    title = f"(i) Beside many {what}: write units, read units, CPU ms in memory, ms on the emulator"
    return table(title, headers, rows)


def _apart(what: str, count: int, is_emulated: bool) -> Measured:
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(measure, what, count, is_emulated).result()


def _row(name: str, in_memory: Sequence[Measured], emulated: Sequence[Measured]) -> list[Cell]:
    """The cost of a call beside each count, and the units beside the largest count as a multiple of those beside the
    smallest."""
    billed, timed = ([found.calls[name] for found in each] for each in (in_memory, emulated))
    cells = [
        f"{_units(own.write_units)}, {_units(own.read_units)}, {own.cpu_ms:.1f}, {other.ms:.1f}"
        for own, other in zip(billed, timed, strict=True)
    ]
    first, last = (call.write_units + call.read_units for call in (billed[0], billed[-1]))
    return [name, *cells, f"{last / first:.3g}" if first else "-"]


def _units(units: float) -> str:
    return f"{units:,.2f}".rstrip("0").rstrip(".")


def _memory(in_memory: Sequence[Measured], emulated: Sequence[Measured], counts: Sequence[int]) -> list[list[Cell]]:
    """Their memory in the process that stores them, and the growth of an instance whose store is elsewhere."""
    there = [found.filled_bytes - found.empty_bytes for found in in_memory]
    stored = [f"{taken / MIB:.1f} MB, {taken / count:,.0f} B each" for taken, count in zip(there, counts, strict=True)]
    known = [f"{(found.called_bytes - found.empty_bytes) / MIB:.1f} MB" for found in emulated]
    return [["stored in memory, they take", *stored, "-"], ["an instance beside them grows by", *known, "-"]]
