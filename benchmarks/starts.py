"""The cost of a start: `decant --help` beside the import of click, and `import decant` beside an interpreter that does
nothing."""

from __future__ import annotations

import math
import os
import subprocess
import sys

from benchmarks.progress import shown
from benchmarks.report import table

PROGRAMS = {
    "an interpreter that does nothing": "pass",
    "import decant": "import decant",
    "from decant import Decant": "from decant import Decant",
    "import click": "import click",
    "decant --help": "import sys; sys.argv = ['decant', '--help']; from decant.cli import main; main()",
}
RATIOS = {
    "import decant": "an interpreter that does nothing",
    "from decant import Decant": "an interpreter that does nothing",
    "decant --help": "import click",
}


def starts(rounds: int) -> str:
    """Each program runs once in each round; its quickest run counts."""
    least = dict.fromkeys(PROGRAMS, math.inf)
    for _ in shown(range(rounds), rounds, "starts"):
        for name, program in PROGRAMS.items():
            least[name] = min(least[name], _cpu_seconds(program))
    rows = [
        (name, seconds * 1_000, f"{seconds / least[RATIOS[name]]:.2f} times {RATIOS[name]}" if name in RATIOS else "")
        for name, seconds in least.items()
    ]
    return table(f"(p) Starts, the quickest of {rounds}, in turns", ("program", "CPU ms", "ratio"), rows)


def _cpu_seconds(program: str) -> float:
    """User and system time of the process."""
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.DEVNULL)  # noqa: S603 - our own
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{program!r} failed")
    return used.ru_utime + used.ru_stime
