"""Runs topics under load that grows beyond the capacity of their partitions, and then falls: the real code, in virtual
time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from benchmarks.progress import shown
from benchmarks.report import Cell, table
from benchmarks.site import Calls, Load, Site

LEVELS = (10, 100, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000)
"""Produces a second."""
TIMES = (2, 5, 10)
"""The capacity, as overload."""
PROMPT_MS = 1_000
"""A topic carries a load if it stores all of it, 99 of 100 messages within this time."""


@dataclass(frozen=True, slots=True)
class Effort:
    """`scale`: the divisor of load and partitions. `level_s`: how long each level lasts; the figures are of its second
    half. `overload_s`, `after_s`: how long an overload lasts, and then a tenth of the capacity."""

    scale: float = 100
    levels: tuple[int, ...] = LEVELS
    level_s: int = 40
    overload_s: int = 60
    after_s: int = 60
    capacities: tuple[int, ...] = (500, 700, 1_000, 1_400, 2_000, 2_800, 4_000)
    """The loads to try for the capacity, from the smallest on."""


FULL = Effort()
QUICK = Effort(levels=(100, 5_000), level_s=60, overload_s=10, after_s=10, capacities=(2_000, 2_800, 3_400))


@dataclass(frozen=True, slots=True)
class Row:
    """The outcome of a load. Rates are those of the whole; `units`, `reads`: of producers, for each stored message."""

    load: Load
    seconds: float
    scale: float
    calls: Calls
    units: float
    reads: float
    queues: int

    @property
    def stored_per_second(self) -> float:
        """Messages."""
        return self.calls.stored * self.scale / self.seconds

    @property
    def refused(self) -> float:
        """The share of calls."""
        return len(self.calls.refused_ms) / max(1, self.calls.count)

    @property
    def is_carried(self) -> bool:
        calls = self.calls
        is_whole = not calls.refused_ms and not calls.in_doubt and not calls.turned_away
        return is_whole and at(calls.stored_ms, 0.99) < PROMPT_MS


@dataclass(frozen=True, slots=True)
class Overload:
    times: float
    during: Row
    after: Row
    recovery_s: float
    """The time from the fall of the load to the last failure."""


@dataclass(frozen=True, slots=True)
class Kind:
    name: str
    queues: int | str = 4
    batch: int = 1
    keyed: bool = False
    processes: int = 0

    def load(self, per_second: float) -> Load:
        return Load(per_second, self.batch, self.keyed)


KINDS = (
    Kind("functions, 4 queues"),
    Kind("functions, 4 queues, keys", keyed=True),
    Kind("functions, auto", "auto"),
    Kind("functions, auto, keys", "auto", keyed=True),
    Kind("functions, auto, batches of 10", "auto", 10),
    Kind("64 processes, auto", "auto", processes=64),
)


def ramps(effort: Effort) -> str:
    tables = [_ramp_table(kind, effort) for kind in shown(KINDS, len(KINDS), "ramps")]
    return "\n".join([*tables, _overload_table(effort), _spots_table(effort)])


def ramp(kind: Kind, effort: Effort) -> Iterator[Row]:
    site = Site(kind.queues, effort.scale, processes=kind.processes)
    rows: list[Row] = []

    def story() -> None:
        for level in effort.levels:
            site.bear(kind.load(level), effort.level_s / 2)
            rows.append(measured(site, kind.load(level), effort.level_s / 2))

    site.run(story)
    yield from rows


def capacity(effort: Effort, kind: Kind) -> int:
    """The highest load of these that the topic carries."""
    carried = 0
    for per_second in effort.capacities:
        if not _bears(kind, replace(effort, level_s=min(effort.level_s, 40)), per_second).is_carried:
            break
        carried = per_second
    return carried


def overload(effort: Effort, times: float, carried: float, kind: Kind) -> Overload:
    """`carried`: the capacity."""
    site = Site(kind.queues, effort.scale)
    found: list[Overload] = []

    def story() -> None:
        site.bear(kind.load(carried / 10), 10)
        during = measured(site, kind.load(carried * times), effort.overload_s)
        fell_ms = site.now
        after = measured(site, kind.load(carried / 10), effort.after_s)
        failed_ms = max(after.calls.last_failed_ms, fell_ms)
        found.append(Overload(times, during, after, (failed_ms - fell_ms) / 1_000))

    site.run(story)
    return found[0]


def hot_key(effort: Effort, per_second: float, hot: float) -> Row:
    """This share of the load has one key; the other keys are many."""
    site = Site(4, effort.scale)
    return _alone(site, Load(per_second, keyed=True, hot=hot), effort.overload_s)


def shut_log(effort: Effort, per_second: float, batch: int = 1, keyed: bool = False) -> Row:
    """One log throttles all requests to it."""
    site = Site(4, effort.scale)

    def shut() -> None:
        site.bear(Load(per_second / 10, batch, keyed), 10)
        site.partitions.shut = (site.logs[0],)

    return _alone(site, Load(per_second, batch, keyed), effort.overload_s, shut)


def measured(site: Site, load: Load, seconds: float) -> Row:
    """Bears the load for this time, and a little longer, so that all calls end."""
    before = site.produced.copy()
    calls = site.bear(load, seconds)
    cost = site.produced.since(before)
    count = max(1, calls.stored)
    return Row(load, seconds, site.scale, calls, cost.write_units / count, cost.read_units / count, site.queues)


def at(values: Sequence[int], share: float) -> int:
    """The value below which this share of them lies."""
    return sorted(values)[int(share * (len(values) - 1))] if values else 0


def _bears(kind: Kind, effort: Effort, per_second: float) -> Row:
    site = Site(kind.queues, effort.scale, processes=kind.processes)
    return _alone(
        site, kind.load(per_second), effort.level_s / 2, lambda: site.bear(kind.load(per_second), effort.level_s / 2)
    )


def _alone(site: Site, load: Load, seconds: float, first: Callable[[], object] = lambda: None) -> Row:
    rows: list[Row] = []

    def story() -> None:
        first()
        rows.append(measured(site, load, seconds))

    site.run(story)
    return rows[0]


_HEADERS = (
    *("produces/s", "queues", "stored/s", "refused %", "in doubt %", "turned away %"),
    *("p50 ms", "p99 ms", "refused p99 ms", "write units", "read units"),
    *("popped/s of each", "lag p99 ms", "pops failed"),
)


def _cells(row: Row) -> list[Cell]:
    calls, count = row.calls, max(1, row.calls.count) / 100
    popped = min(calls.popped.values(), default=0) * row.scale / row.seconds
    return [
        *(int(row.load.per_second), row.queues, round(row.stored_per_second)),
        *(row.refused * 100, calls.in_doubt / count, calls.turned_away / count),
        *(at(calls.stored_ms, 0.5), at(calls.stored_ms, 0.99), at(calls.refused_ms, 0.99)),
        *(row.units, row.reads, round(popped), at(calls.lag_ms, 0.99), calls.pops_failed),
    ]


def _ramp_table(kind: Kind, effort: Effort) -> str:
    rows = [_cells(row) for row in ramp(kind, effort)]
    return table(f"(o) {kind.name}, scaled down by {effort.scale:g}", _HEADERS, rows)


def _overload_table(effort: Effort) -> str:
    rows: list[list[Cell]] = []
    for kind in KINDS[:2]:
        carried = capacity(effort, kind)
        for times in TIMES:
            found = overload(effort, times, carried, kind)
            share = found.during.stored_per_second / (carried * kind.batch) * 100
            about: list[Cell] = [f"{kind.name}: {times} x {carried}", share, found.recovery_s]
            rows.append([*about, *_cells(found.during)])
    return table("(o) Overload, then a tenth", ("load", "% of capacity", "fails for s then", *_HEADERS), rows)


def _spots_table(effort: Effort) -> str:
    spots = {
        "half of 2 000/s have one key": hot_key(effort, 2_000, 0.5),
        "80 % of 2 000/s have one key": hot_key(effort, 2_000, 0.8),
        "one log of four throttles, 1 000/s": shut_log(effort, 1_000),
        "the same in batches of 10": shut_log(effort, 500, 10),
    }
    rows: list[list[Cell]] = [
        [name, *_cells(row), len(row.calls.refused_ms) - row.calls.hot_refused] for name, row in spots.items()
    ]
    return table("(o) One hot key, one hot log", ("load", *_HEADERS, "refused without that key"), rows)
