"""Sends tasks of Celery to the queue `celery` at `BROKER`, and works until each has printed its sum: one is to be
carried out later, one fails at first."""

from __future__ import annotations

import os
import sys
from typing import Any

from celery import Celery
from celery.worker import state

LATE, FAILING = (1, 2), (3, 4)
ALL = (LATE, FAILING, (5, 6), (7, 8))

app = Celery("sums", broker=os.environ["BROKER"])
app.conf.update(
    broker_transport_options={"region": "eu-central-1", "wait_time_seconds": 1, "visibility_timeout": 60},
    task_acks_late=True,
    worker_enable_remote_control=False,
    worker_redirect_stdouts=False,
)
sums: list[int] = []


@app.task(bind=True)  # type: ignore[untyped-decorator]
def add(task: Any, *numbers: int) -> None:
    if numbers == FAILING and not task.request.retries:
        raise task.retry(countdown=0.1)
    sums.append(sum(numbers))
    if len(sums) == len(ALL):
        sys.stdout.write(f"{sorted(sums)}\n")
        state.should_stop = os.EX_OK


if __name__ == "__main__":
    for numbers in ALL:
        add.apply_async(numbers, countdown=0.2 if numbers == LATE else None)
    app.worker_main(["worker", "--pool=solo", "--without-gossip", "--without-mingle", "--without-heartbeat"])
