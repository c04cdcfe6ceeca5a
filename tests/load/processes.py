"""Instances that are processes: they are killed halfway, or, where a run torments them, stopped and continued, killed
and started anew."""

from __future__ import annotations

import signal
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
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
"""How long a process works between two torments."""
LAST_MS = 3_000
"""So long before the end the last torment is over."""
KILLED = 0.4
"""The share of torments that are kills."""


def work(jobs: Sequence[Job], seconds: float, kills: int) -> list[int]:
    """Carries the jobs out, and kills the first `kills` of them halfway. Returns how they ended."""
    with _running(jobs) as processes:
        if kills:
            _wait_until_all_are_at_work(jobs, processes)
            sleep(int(seconds * 1_000 / 2))
            for process in processes[:kills]:
                process.kill()
        exits = [process.wait(seconds + 2 * STOP_SECONDS) for process in processes]
    assert not any(exits[kills:]), f"workers failed: {exits}"
    return exits


def torment(jobs: Sequence[Job], seconds: float, seed: int) -> Counter[str]:
    """Carries the jobs out in processes that are stopped and killed. Returns how often each was done."""
    tormentors = [_Tormentor(job, now() + int(seconds * 1_000), Random(f"{seed} {job.name}")) for job in jobs]
    for tormentor in tormentors:
        tormentor.start()
    for tormentor in tormentors:
        tormentor.join()
    if failures := [tormentor.failure for tormentor in tormentors if tormentor.failure]:
        raise ExceptionGroup("workers failed", failures)
    return sum((tormentor.did for tormentor in tormentors), Counter[str]())


class _Tormentor(threading.Thread):
    """Has one process at work until the time is over. A process that is killed is followed by another, whose clock is
    off by something else."""

    def __init__(self, job: Job, until_ms: int, random: Random) -> None:
        super().__init__()
        self._job, self._until_ms, self._random = job, until_ms, random
        self.did: Counter[str] = Counter()
        self.failure: Exception | None = None

    def run(self) -> None:
        try:
            lives = 0
            while self._left_ms > LAST_MS:
                self._live(self._next_job(lives))
                lives += 1
        except Exception as failure:  # noqa: BLE001 - raised where the threads are joined
            self.failure = failure

    @property
    def _left_ms(self) -> int:
        return self._until_ms - now()

    def _next_job(self, number: int) -> Job:
        skew_ms = self._random.randint(-self._job.skew_ms, self._job.skew_ms)
        name, seed = f"{self._job.name}x{number}", self._job.seed + 1_000 * number
        seconds = self._left_ms / 1_000
        return replace(self._job, name=name, seed=seed, seconds=seconds, until_ms=self._until_ms, skew_ms=skew_ms)

    def _live(self, job: Job) -> None:
        """Until the process is killed, or done."""
        with _running([job]) as [process]:
            while (working_ms := self._random.randint(*WORKING_MS)) < self._left_ms - LAST_MS:
                sleep(working_ms)
                assert process.poll() is None, f"worker {job.name} ended early: {process.poll()}"
                if self._random.random() < KILLED:
                    self.did["kill"] += 1
                    return
                self._freeze(process)
            assert process.wait(job.seconds + 2 * STOP_SECONDS) == 0, f"worker {job.name} failed"

    def _freeze(self, process: Process) -> None:
        """Short stops are as likely as long ones."""
        shortest, longest = STOPPED_MS
        stopped_ms = int(shortest * (longest / shortest) ** self._random.random())
        process.send_signal(signal.SIGSTOP)
        sleep(max(0, min(stopped_ms, self._left_ms - LAST_MS)))
        process.send_signal(signal.SIGCONT)
        self.did["stop"] += 1


@contextmanager
def _running(jobs: Sequence[Job]) -> Iterator[list[Process]]:
    """Their processes, which are killed in the end."""
    with ExitStack() as stack:
        yield [stack.enter_context(_process(job)) for job in jobs]


@contextmanager
def _process(job: Job) -> Iterator[Process]:
    process = subprocess.Popen(command(job), cwd=ROOT)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def _wait_until_all_are_at_work(jobs: Sequence[Job], processes: Sequence[Process]) -> None:
    while not all(list(Path(job.folder).glob(f"{job.name}*")) for job in jobs):
        assert all(process.poll() is None for process in processes), "a worker died early"
        sleep(20)
