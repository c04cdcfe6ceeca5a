"""`python -m benchmarks.pipeline`: what it costs to unpack an export into the table `messages`, and in how much memory.

Each contender is a command of its own on two exports, one four times as large as the other. The slope between them is
what a message costs; the rest is what a run costs, however small its export is."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from benchmarks import servers
from benchmarks.pipeline_export import export
from benchmarks.processes import Used, used_by
from benchmarks.progress import shown
from benchmarks.report import Cell, table

FULL, QUICK = 2_000_000, 200_000
TIMES = 4
PER_ENTRY = (1, 10, 100)
ROOT = Path(__file__).parent.parent
HEADERS = ["contender", "s", "s, larger", "CPU s", "CPU s, larger", "CPU µs a message", "of that JVM", "peak MB"]


@dataclass(frozen=True)
class Contender:
    """`module`: a Python module in this folder. Its arguments follow, then those that name the export and the
    tables."""

    name: str
    module: str
    folder: Path = ROOT
    arguments: tuple[str, ...] = ()
    has_tables: bool = True

    def command(self, source: Path, tables: Path) -> list[str]:
        named = ["--export", str(source), "--tables", str(tables)] if self.has_tables else [str(source)]
        return [sys.executable, "-m", self.module, *self.arguments, *named]


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.pipeline",
        description=(__doc__ or "").replace("`", ""),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--messages", type=int, default=FULL, metavar="N", help=f"of the smaller one (default {FULL})")
    parser.add_argument("--quick", action="store_const", const=QUICK, dest="messages", help=f"only {QUICK}")
    parser.add_argument("--entries", type=int, nargs="+", default=PER_ENTRY, metavar="N", help="messages of an entry")
    parser.add_argument("--against", metavar="REF", help="a git ref whose job is measured beside this one")
    given = parser.parse_args(arguments)
    if given.against:
        servers.demand_ref(given.against)
    load = f"load average {os.getloadavg()[0]:.1f} when it began"
    print(f"{given.messages} and {TIMES * given.messages} messages, {os.cpu_count()} cores; {load}.\n", flush=True)
    with ExitStack() as stack:
        contenders = [*_contenders(), *_before(stack, given.against)]
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        for per_entry in given.entries:
            print(measured(folder, given.messages, per_entry, contenders), flush=True)
    return 0


def _contenders() -> Iterator[Contender]:
    yield Contender("plain loop", "benchmarks.pipeline_contenders", arguments=("plain",), has_tables=False)
    yield Contender("DuckDB", "benchmarks.pipeline_contenders", arguments=("DuckDB",), has_tables=False)
    for cores in ("1", "2"):
        yield Contender(f"messages, {cores} cores", "spark.jobs.messages", arguments=("--cores", cores))


def _before(stack: ExitStack, against: str | None) -> Iterator[Contender]:
    if against:
        checkout = stack.enter_context(servers.checkout(against))
        yield Contender(f"at {against}, 1 core", "spark.jobs.messages", checkout, ("--cores", "1"))


def measured(folder: Path, messages: int, per_entry: int, contenders: list[Contender]) -> str:
    sizes = (messages, TIMES * messages)
    exports = [export(folder / f"export{size}-{per_entry}", size, per_entry) for size in sizes]
    rows = []
    for contender in shown(contenders, len(contenders), f"entries of {per_entry}"):
        small, large = (_used(contender, source, folder / "tables") for source in exports)
        rows.append(_row(contender.name, small, large, messages))
        print(*rows[-1], sep="; ", file=sys.stderr, flush=True)  # the others may take long, and fail
    for source in exports:
        shutil.rmtree(source)
    title = f"{sizes[0]} and {sizes[1]} messages in entries of {per_entry}"
    return f"{table(title, HEADERS, rows)}\nLoad average now {os.getloadavg()[0]:.1f}.\n"


def _used(contender: Contender, source: Path, tables: Path) -> Used:
    try:
        return used_by(contender.command(source, tables), contender.folder)
    finally:
        shutil.rmtree(tables, ignore_errors=True)


def _row(name: str, small: Used, large: Used, messages: int) -> list[Cell]:
    more = (TIMES - 1) * messages / 1e6
    slope = (large.cpu_seconds - small.cpu_seconds) / more
    jvm = (large.by_role.get("JVM", 0.0) - small.by_role.get("JVM", 0.0)) / more
    roles = sorted(large.peak_mb)
    peak = "; ".join(f"{role} {small.peak_mb.get(role, 0)}, {large.peak_mb[role]}" for role in roles)
    return [name, small.seconds, large.seconds, small.cpu_seconds, large.cpu_seconds, slope, jvm, peak]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
