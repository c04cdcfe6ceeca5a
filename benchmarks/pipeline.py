"""`python -m benchmarks.pipeline`: how fast the data pipeline reads and unpacks an export, and in how much memory."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.pipeline_export import export
from benchmarks.progress import shown
from benchmarks.report import table

FULL, QUICK = 2_000_000, 200_000
PER_ENTRY = (1, 10, 100)
ROOT = Path(__file__).parent.parent
CONTENDERS = (("plain", 1), ("Arrow", 1), ("ours", 1), ("ours", 2), ("read.json", 1), ("DuckDB", 1))


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pipeline", description=__doc__)
    parser.add_argument("--quick", action="store_true", help=f"{QUICK} messages in place of {FULL}")
    total = QUICK if parser.parse_args(arguments).quick else FULL
    print(
        f"{total} messages, {os.cpu_count()} cores; load average {os.getloadavg()[0]:.1f} when it began.\n", flush=True
    )
    with tempfile.TemporaryDirectory() as folder:
        for per_entry in PER_ENTRY:
            print(measured(Path(folder), total, per_entry), flush=True)
    return 0


def measured(folder: Path, total: int, per_entry: int) -> str:
    """One table: each contender on entries of so many messages, after a run on a tenth of them to warm up."""
    large = export(folder / f"export{per_entry}", total, per_entry)
    small = export(folder / f"small{per_entry}", total // 10, per_entry)
    results = {}
    for who, cores in shown(CONTENDERS, len(CONTENDERS), f"entries of {per_entry}"):
        results[who, cores] = _run(who, cores, large, small)
    tenth = _run("ours", 1, small, small)
    base = results["plain", 1]["seconds"]
    rows = [
        [f"{who}, {cores} cores", f"{result['seconds']:.1f}", f"{base / result['seconds']:.2f}", _memory(result)]
        for (who, cores), result in results.items()
    ]
    rows.append(["ours, 1 core, a tenth of the messages", f"{tenth['seconds']:.1f}", "", _memory(tenth)])
    title = f"{total} messages in entries of {per_entry}"
    scale = results["ours", 1]["seconds"] / results["ours", 2]["seconds"]
    head = ["contender", "seconds", "times as fast as the loop", "peak MB"]
    load = f"Load average now {os.getloadavg()[0]:.1f}."
    used = ", ".join(f"{role} {seconds:.1f}" for role, seconds in results["ours", 1]["cpu_seconds"].items())
    said = f"Two cores are {scale:.2f} times as fast as one. CPU seconds of ours on one: {used}. {load}"
    return f"{table(title, head, rows)}\n{said}\n"


def _run(who: str, cores: int, folder: Path, warm: Path) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.pipeline_contenders", who, str(cores), str(folder), str(warm)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)  # noqa: S603  our own
    if done.returncode:
        raise SystemExit(f"benchmarks.pipeline: {who} failed\n{done.stderr[-2000:]}")
    results: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return results


def _memory(result: dict[str, Any]) -> str:
    return ", ".join(f"{name} {peak}" for name, peak in sorted(result["peak_mb"].items()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
