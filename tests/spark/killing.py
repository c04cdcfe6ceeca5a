"""Runs a job in a process that dies at a given step: as when the power fails, nothing of it goes on."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable
from typing import Any

from spark.files import Place
from spark.frame.job import Job, main
from spark.jobs import convert, messages, tidy
from spark.tables.writing import PartWriter

DIED = 9
_JOBS = {job.name: job for job in (convert.JOB, messages.JOB, tidy.JOB)}
_PLACE, _WRITER = ("create", "delete", "delete_folder"), ("_opened", "close")
_STEPS = [*((Place, name) for name in _PLACE), *((PartWriter, name) for name in _WRITER)]
"""Everything that changes a file."""


def run_until(step: int, job: Job, arguments: list[str]) -> bool:
    """Runs the job, which dies before its step of this number, from 0. Returns whether it did: otherwise the job has
    ended well. Raises if it failed."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    process = context.Process(target=_run, args=(step, job.name, arguments))
    process.start()
    process.join()
    assert process.exitcode in (0, DIED), process.exitcode
    return process.exitcode == DIED


def _run(step: int, name: str, arguments: list[str]) -> None:
    left = step

    def counting(method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any) -> Any:
            nonlocal left
            if left == 0:
                os._exit(DIED)
            left -= 1
            return method(*given)

        return call

    for owner, method in _STEPS:
        setattr(owner, method, counting(getattr(owner, method)))
    os._exit(main(_JOBS[name], arguments))
