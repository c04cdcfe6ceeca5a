"""Measures the CPU time and memory of a command and all that it starts. On Linux alone."""

from __future__ import annotations

import ctypes
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

_SUBREAPER = 36
_LOOK_SECONDS = 0.1
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass
class Used:
    """`cpu_seconds`: user and system, of all processes. `by_role`: of Python processes and of the JVM, as seen a tenth
    of a second before each ended. `peak_mb`: the most that one process of each role ever had."""

    seconds: float = 0.0
    cpu_seconds: float = 0.0
    by_role: dict[str, float] = field(default_factory=dict)
    peak_mb: dict[str, int] = field(default_factory=dict)


def used_by(command: Sequence[str], folder: Path) -> Used:
    """Runs the command in this folder. Raises `RuntimeError` with the end of its output if it fails."""
    ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)  # what it leaves behind becomes a child of this process
    used, seen = Used(), dict[int, tuple[str, float]]()
    began = time.monotonic()
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen(command, cwd=folder, stdout=said, stderr=said)  # noqa: S603  our own
        code = _watched(process.pid, used, seen)
        process.returncode = code
        used.seconds = time.monotonic() - began
        if code:
            said.seek(0)
            raise RuntimeError(f"{' '.join(command)} failed\n{said.read()[-2_000:]}")
    for role, seconds in seen.values():
        used.by_role[role] = used.by_role.get(role, 0.0) + seconds
    return used


def _watched(pid: int, used: Used, seen: dict[int, tuple[str, float]]) -> int:
    """Waits for the end of the process and of all that it has started. Returns its exit code."""
    code: int | None = None
    while True:
        _look(used, seen)
        try:
            ended, status, resources = os.wait4(-1, os.WNOHANG)
        except ChildProcessError:
            assert code is not None
            return code
        if not ended:
            time.sleep(_LOOK_SECONDS)
            continue
        used.cpu_seconds += resources.ru_utime + resources.ru_stime
        if ended == pid:
            code = os.waitstatus_to_exitcode(status)


def _look(used: Used, seen: dict[int, tuple[str, float]]) -> None:
    for pid in _descendants(os.getpid()):
        try:
            about = Path(f"/proc/{pid}/status").read_text()
            numbers = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:  # it has just ended
            continue
        status = dict(line.split(":", 1) for line in about.splitlines() if ":" in line)
        if "VmHWM" not in status:
            continue
        role = "JVM" if "java" in status["Name"] else "Python"
        seen[pid] = (role, (int(numbers[11]) + int(numbers[12])) / _TICKS)
        used.peak_mb[role] = max(used.peak_mb.get(role, 0), int(status["VmHWM"].split()[0]) // 1024)


def _descendants(pid: int) -> Iterator[int]:
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children = path.read_text().split()
        except OSError:
            continue
        for child in map(int, children):
            yield child
            yield from _descendants(child)
