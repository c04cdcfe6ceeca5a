"""`python -m benchmarks.pipeline_year`: a year of daily exports, each read by the job `incremental` on its day.

The first is full, the others have the changes of a day. The cost of a day must not grow with the days before."""

from __future__ import annotations

import argparse
import contextlib
import io
import statistics
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.progress import shown
from benchmarks.report import table
from spark.frame.job import DONE
from spark.frame.job import main as run
from spark.jobs import incremental
from tests.spark.days import Days

DAYS, A_DAY = 365, 200
LAST, FIRST = 35, 5
"""In the last days of the year another year begins beside it, so that both meet the same load of the machine. Its first
days, in which tables begin, do not count."""


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pipeline_year", description=__doc__)
    parser.add_argument("--days", type=int, default=DAYS, metavar="N", help=f"at least {LAST} (default {DAYS})")
    parser.add_argument("--messages", type=int, default=A_DAY, metavar="N", help=f"of a day (default {A_DAY})")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        year, next_year = (Year(Path(folder) / name, given.messages) for name in ("year", "next"))
        for day in shown(range(given.days), given.days, "days"):
            year.day()
            if day >= given.days - LAST:
                next_year.day()
    early, late = next_year.took[FIRST:], year.took[FIRST - LAST :]
    named = [(f"{FIRST} to {LAST}", early), (f"the last {len(late)}", late)]
    rows = [[name, *(statistics.median(values) for values in zip(*of, strict=True))] for name, of in named]
    print(table(f"A day's run of `incremental`, {given.messages} messages a day", ["days", "CPU ms", "KB read"], rows))
    print(f"The later days take {rows[1][1] / rows[0][1]:.2f} times the CPU time of the earlier ones.")
    return 0


class Year:
    """`took`: for each day, CPU ms of this process, and KB that it has read."""

    def __init__(self, folder: Path, messages: int) -> None:
        self._folder, self._days = folder, Days(folder / "exports", messages)
        self.took: list[tuple[float, float]] = []

    def day(self) -> None:
        self._days.write()
        arguments = ["--arriving", str(self._folder / "exports"), "--tables", str(self._folder / "tables")]
        read, began = _bytes_read(), time.process_time()
        with contextlib.redirect_stdout(io.StringIO()):
            code = run(incremental.JOB, arguments)
        assert code == DONE
        self.took.append((1_000 * (time.process_time() - began), (_bytes_read() - read) / 1_000))


def _bytes_read() -> int:
    """The bytes that this process has read so far. On Linux alone."""
    return int(Path("/proc/self/io").read_text().split()[1])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
