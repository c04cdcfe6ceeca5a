"""Runs instances as processes: it kills them halfway or, in torment runs, stops and continues them, or kills and
restarts them."""

from __future__ import annotations

import signal
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from random import Random

from tests.load.clock import now, sleep
from tests.load.worker import STOP_SECONDS, Job, command
from tests.support.emulators import ROOT

Process = subprocess.Popen[bytes]

STOPPED_MS = (5_000, 90_000)
WORKING_MS = (1_000, 8_000)
"""How long a process works between two stops or kills."""
LAST_MS = 3_000
"""The time between the last stop or kill and the end."""
_LOOK_SECONDS = 0.05
KILLED = 0.4
"""The share of kills."""


def work(jobs: Sequence[Job], seconds: float, kills: int) -> list[int]:
    """Runs the jobs, and kills the first `kills` of them halfway. Returns their exit codes."""
    with _running(jobs) as processes:
        if kills:
            while not all(map(_is_at_work, jobs)):
                assert all(process.poll() is None for process in processes), "a worker died early"
                sleep(20)
            sleep(int(seconds * 1_000 / 2))
            for process in processes[:kills]:
                process.kill()
        exits = [process.wait(seconds + 2 * STOP_SECONDS) for process in processes]
    assert not any(exits[kills:]), f"workers failed: {exits}"
    return exits


def torment(jobs: Sequence[Job], seconds: float, seed: int) -> Counter[str]:
    """Runs the jobs in processes that are stopped and killed. Returns how often each ran."""
    over = threading.Event()
    tormentors = [_Tormentor(job, seconds, over, Random(f"{seed} {job.name}")) for job in jobs]
    with ThreadPoolExecutor(len(jobs)) as pool:
        try:
            return sum(pool.map(_Tormentor.run, tormentors), Counter[str]())
        finally:
            over.set()  # they are still running if one fails, or at an interrupt


class _Tormentor:
    """Keeps one process at work until the time is over. After a kill another one follows, whose clock is off by another
    amount. `over`: ends it at once."""

    def __init__(self, job: Job, seconds: float, over: threading.Event, random: Random) -> None:
        self._job, self._seconds, self._over, self._random = job, seconds, over, random
        self._until_ms: int | None = None
        self._did: Counter[str] = Counter()

    def run(self) -> Counter[str]:
        lives = 0
        while self._left_ms > LAST_MS and not self._over.is_set():
            self._live(self._next_job(lives))
            lives += 1
        return self._did

    @property
    def _left_ms(self) -> int:
        """The time counts from the start of the first process."""
        return int(self._seconds * 1_000) if self._until_ms is None else self._until_ms - now()

    def _next_job(self, number: int) -> Job:
        skew_ms = self._random.randint(-self._job.skew_ms, self._job.skew_ms)
        name, seed = f"{self._job.name}x{number}", self._job.seed + 1_000 * number
        seconds = self._left_ms / 1_000
        return replace(self._job, name=name, seed=seed, seconds=seconds, until_ms=self._until_ms or 0, skew_ms=skew_ms)

    def _live(self, job: Job) -> None:
        """Waits until the process is killed, or done, or all is over."""
        with _running([job]) as [process]:
            while not _is_at_work(job) and self._left_ms > 0 and not self._over.wait(_LOOK_SECONDS):
                assert process.poll() is None, f"worker {job.name} died early"
            self._until_ms = self._until_ms or now() + self._left_ms
            while (working_ms := self._random.randint(*WORKING_MS)) < self._left_ms - LAST_MS:
                if self._over.wait(working_ms / 1_000):
                    return
                assert process.poll() is None, f"worker {job.name} ended early: {process.poll()}"
                if self._random.random() < KILLED:
                    self._did["kill"] += 1
                    return
                self._freeze(process)
            self._end(job, process)

    def _freeze(self, process: Process) -> None:
        """Short stops are as likely as long ones."""
        shortest, longest = STOPPED_MS
        stopped_ms = int(shortest * (longest / shortest) ** self._random.random())
        process.send_signal(signal.SIGSTOP)
        self._over.wait(max(0, min(stopped_ms, self._left_ms - LAST_MS)) / 1_000)
        process.send_signal(signal.SIGCONT)
        self._did["stop"] += 1

    def _end(self, job: Job, process: Process) -> None:
        while process.poll() is None and not self._over.wait(_LOOK_SECONDS):
            assert self._left_ms > -2_000 * STOP_SECONDS, f"worker {job.name} does not end"
        assert self._over.is_set() or process.returncode == 0, f"worker {job.name} failed"


@contextmanager
def _running(jobs: Sequence[Job]) -> Iterator[list[Process]]:
    """Starts their processes, and kills them in the end."""
    with ExitStack() as stack:
        yield [stack.enter_context(_process(job)) for job in jobs]


@contextmanager
def _process(job: Job) -> Iterator[Process]:
    process = subprocess.Popen(command(job), cwd=ROOT, start_new_session=True)  # it gets no Ctrl-C
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def _is_at_work(job: Job) -> bool:
    return any(Path(job.folder).glob(f"{job.name}*"))
