"""Runs the client's producer, and the server that it sends to, on one core together."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from itertools import product
from typing import NamedTuple

from benchmarks import servers
from benchmarks.client import SIZE
from benchmarks.progress import shown
from benchmarks.report import Cell, table
from benchmarks.workload import Workload
from decant import Decant, Sent
from decant.calls import HttpRequest, HttpResponse
from decant.transport import Transport

LINGER_SECONDS = 0.02
RATES = (5_000, 0)
"""Messages a second. 0: as fast as the producer accepts them."""
TICK_SECONDS = 0.001
"""Between the bursts of a rate."""
LOOKED_AT = 10
"""One of so many messages is timed."""

_TOPIC = "producer"


class Took(NamedTuple):
    messages: int
    calls: int
    seconds: float
    cpu_seconds: float
    server_seconds: float
    waits: list[float]
    """Seconds between `send` and the result."""


def producer(seconds: float) -> str:
    rows: list[list[Cell]] = []
    cases = list(product(RATES, (True, False)))
    with _one_core(), servers.running_decant() as server:
        _run(server, 0, True, min(seconds, 1.0))  # warm-up
        for rate, has_ids in shown(cases, len(cases), "producer"):
            took = _run(server, rate, has_ids, seconds)
            name = f"{rate:,} messages/s".replace(",", " ") if rate else "as fast as it can"
            rows.append([name, "yes" if has_ids else "no", *_cells(took)])
    headers = ["load", "dedup ids", "stored/s", "messages a call", "client, µs", "server, µs", "core, %"]
    headers += ["median ms", "99th percentile ms"]
    return table("(q) A producer with a linger of 20 ms, on one core with its server", headers, rows)


@contextmanager
def _one_core() -> Iterator[None]:
    """For this thread, and the threads and processes that it starts."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(cores)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)


def _run(server: servers.Running, rate: int, has_ids: bool, seconds: float) -> Took:
    waits: list[float] = []
    with Decant(f"http://127.0.0.1:{server.port}") as mq:
        mq.api.put_topic(_TOPIC)
        counted = mq.transport = Counted(mq.transport)
        bodies = Workload(SIZE).take(500)
        server_began, cpu_began, began = server.cpu_seconds(), time.process_time(), time.perf_counter()
        messages = 0
        with mq.producer(_TOPIC, linger=LINGER_SECONDS, dedup=has_ids) as out:
            for burst in _bursts(rate, seconds):
                for _ in range(burst):
                    future = out.send(bodies[messages % len(bodies)])
                    if messages % LOOKED_AT == 0:
                        future.add_done_callback(partial(_timed, waits, time.perf_counter()))
                    messages += 1
        took = time.perf_counter() - began, time.process_time() - cpu_began, server.cpu_seconds() - server_began
        mq.api.delete_topic(_TOPIC)
    return Took(messages, counted.calls, *took, waits)


def _bursts(rate: int, seconds: float) -> Iterator[int]:
    """How many messages to send now, again and again until the time is over."""
    began, sent = time.perf_counter(), 0
    while (now := time.perf_counter() - began) < seconds:
        burst = int(now * rate) - sent if rate else 100
        yield burst
        sent += burst
        if rate:
            time.sleep(TICK_SECONDS)


def _timed(waits: list[float], since: float, future: Future[Sent]) -> None:
    future.result()
    waits.append(time.perf_counter() - since)


def _cells(took: Took) -> Iterator[Cell]:
    yield int(took.messages / took.seconds)
    yield int(took.messages / took.calls)
    yield 1e6 * took.cpu_seconds / took.messages
    yield 1e6 * took.server_seconds / took.messages
    yield 100 * (took.cpu_seconds + took.server_seconds) / took.seconds
    yield 1_000 * statistics.median(took.waits)
    yield 1_000 * statistics.quantiles(took.waits, n=100)[98]


class Counted:
    """A transport that counts its calls."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self.calls = 0

    @property
    def address(self) -> str:
        return self._transport.address

    def send(self, request: HttpRequest, timeout_s: float) -> HttpResponse:
        self.calls += 1
        return self._transport.send(request, timeout_s)

    def close(self) -> None:
        self._transport.close()
