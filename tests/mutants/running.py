"""Judges mutants, each in a process of its own that is forked when all is imported."""

from __future__ import annotations

import os
import resource
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import islice
from typing import Any

from tests.mutants.changes import Mutant
from tests.mutants.planting import freeze, plant

Judge = Callable[[Mutant], str | None]
"""Returns the name of the check that noticed the mutant."""

Verdict = tuple[Mutant, str | None]

MEMORY_BYTES_MAX = 3 * 2**30
CPU_SECONDS_MIN = 2
IDLE_SECONDS_MAX = 120
"""A mutant that takes longer counts as noticed."""

INTERRUPTED = 130
_SIGNALS = (signal.SIGINT, signal.SIGTERM)

_children: set[int] = set()


def apart(act: Callable[[], None]) -> None:
    """Calls `act` in a process of its own, whose imports do not show in this one."""
    pid = os.fork()
    if not pid:
        code = 1
        try:
            _children.clear()
            for each in _SIGNALS:
                signal.signal(each, _end)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)  # `chalice.test` waits 10 s for the answer of a terminal
            act()
            code = 0
        except BaseException:  # noqa: BLE001 - the fork must not return
            sys.excepthook(*sys.exc_info())
        finally:
            sys.stdout.flush()
            os._exit(code)
    _children.add(pid)
    _, status = os.waitpid(pid, 0)
    _children.discard(pid)
    if status:
        raise SystemExit(1)


def interruptible() -> None:
    """From now on signals that end this process raise KeyboardInterrupt."""
    for each in _SIGNALS:
        signal.signal(each, signal.default_int_handler)


def stop() -> None:
    """Ends the child processes, and theirs."""
    for pid in _children:
        with suppress(ProcessLookupError, ChildProcessError):  # it has just ended
            os.kill(pid, signal.SIGTERM)
            os.waitpid(pid, 0)


def _end(*_: Any) -> None:
    """Ends the process without an exception, which pytest, a test or a mutant would catch."""
    stop()
    os._exit(INTERRUPTED)


def hasten(seconds: float = 0) -> None:
    """Limits the run time of this process to a multiple of the expected one."""
    cpu = CPU_SECONDS_MIN + 10 * seconds
    signal.setitimer(signal.ITIMER_PROF, cpu)
    signal.setitimer(signal.ITIMER_REAL, IDLE_SECONDS_MAX + cpu)


def judged(mutants: Iterable[Mutant], judge: Judge, processes: int) -> Iterator[Verdict]:
    freeze()
    waiting, running = iter(mutants), dict[int, tuple[Mutant, int]]()
    while True:
        for mutant in islice(waiting, processes - len(running)):
            running.update([_forked(mutant, judge)])
        if not running:
            return
        pid, status = os.wait()
        _children.discard(pid)
        mutant, pipe = running.pop(pid)
        with os.fdopen(pipe) as told:
            verdict = told.read()
        if os.WIFSIGNALED(status):
            verdict = f"signal {os.WTERMSIG(status)}"
        yield mutant, verdict or None


def _forked(mutant: Mutant, judge: Judge) -> tuple[int, tuple[Mutant, int]]:
    ours, theirs = os.pipe()
    pid = os.fork()
    if pid:
        _children.add(pid)
        os.close(theirs)
        return pid, (mutant, ours)
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # no verdict: the parent ends it
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        silent = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(silent, stream)
        resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX))
        hasten()
        try:
            plant(mutant)
            verdict = judge(mutant) or ""
        except BaseException as defect:  # noqa: BLE001 - it does not even start
            verdict = repr(defect)
        os.write(theirs, verdict.encode()[:4_000])
    finally:
        os._exit(0)
