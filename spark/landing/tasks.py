"""Runs functions in processes of this machine, or in Spark tasks on a cluster."""

from __future__ import annotations

import os
import pickle
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from multiprocessing import active_children, get_context, parent_process
from multiprocessing.process import BaseProcess
from typing import TypeVar

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from spark.errors import BadInput
from spark.progress import Bar

Given = TypeVar("Given")
Made = TypeVar("Made")


@dataclass(frozen=True, slots=True)
class Workers:
    """`processes`: how many processes of this machine, without a JVM. `lock`: a file on which each of them holds a
    lock. `cluster`: opens a Spark session to use instead."""

    processes: int = 1
    lock: str | None = None
    cluster: Callable[[], SparkSession] | None = None

    def each(self, function: Callable[[Given], Made], parts: Sequence[Given]) -> list[Made]:
        """The function's result for each part, in order. With one part or one process, it runs in this process. A
        cluster calls it again for a part whose task has failed."""
        if len(parts) <= 1 or (self.cluster is None and self.processes == 1):
            return [function(part) for part in parts]
        if self.cluster is None:
            return self._in_processes(function, parts)
        context = self.cluster().sparkContext
        made: list[Made] = context.parallelize(parts, len(parts)).map(function).collect()
        return made

    def _in_processes(self, function: Callable[[Given], Made], parts: Sequence[Given]) -> list[Made]:
        """Returns or raises only when all processes have ended, since nobody would clean up their later writes."""
        bar = Bar(len(parts), "parts")
        pool = ProcessPoolExecutor(min(self.processes, len(parts)), get_context("spawn"), _begin, (self.lock,))
        try:
            with _without_interrupts():  # the processes begin here, and Ctrl-C is sent to them too
                asked = [pool.submit(function, part) for part in parts]
            for done in as_completed(asked):
                done.result()  # raises as soon as one has failed
                bar.add(1)
            return [each.result() for each in asked]
        except BrokenProcessPool:
            raise BadInput("a worker process was killed, probably out of memory: retry with --cores 1") from None
        except BaseException:
            for process in active_children():
                process.terminate()
            raise
        finally:
            pool.shutdown(cancel_futures=True)
            bar.close()


def over_rows(rows: DataFrame, function: Callable[[Iterable[pa.RecordBatch]], Made]) -> list[Made]:
    """The function's result for the rows of each partition, in any order."""
    made = rows.mapInArrow(partial(_pickled, function), "made binary").collect()
    return [pickle.loads(row["made"]) for row in made]  # noqa: S301  it was made by the task above


def _pickled(
    function: Callable[[Iterable[pa.RecordBatch]], Made], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    yield pa.RecordBatch.from_pydict({"made": [pickle.dumps(function(batches))]})


@contextmanager
def _without_interrupts() -> Iterator[None]:
    """Delays Ctrl-C for this thread, and blocks it for good in processes that start meanwhile."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _begin(lock: str | None) -> None:
    """Makes a process end with its parent. The lock is free only when no process is left that could write."""
    if lock:
        import fcntl

        fcntl.flock(os.open(lock, os.O_RDONLY | os.O_CREAT), fcntl.LOCK_SH)
    parent = parent_process()
    if parent is None or not parent.is_alive():
        os._exit(1)
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: BaseProcess) -> None:
    parent.join()
    os._exit(1)
