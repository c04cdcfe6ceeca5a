"""Measures requests a second over kept connections, each of a process that produces, takes and settles in turn on a
queue of its own: Decant, Decant at another git ref, moto's SQS and ElasticMQ, all with the same client, in one run."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import count

from benchmarks import servers
from benchmarks.contender import Contender
from benchmarks.decant import OverHttp
from benchmarks.progress import shown
from benchmarks.report import Cell, table
from benchmarks.sqs import Sqs, by_light_client
from benchmarks.workload import Workload

CONNECTIONS = (1, 8)
BATCHES = (1, 10)
SIZE = 200
SECONDS = 2.0
"""How long one contender works before the next one's turn."""
WARM_UP_SECONDS = 4.0
"""Once, over eight connections: a Java virtual machine compiles code only after it has run often."""
REQUESTS = 3
"""Requests per loop."""

_OURS = "Decant"

_topics = count()

Make = Callable[[str], Contender]
"""Makes a contender from the name of a queue."""


def rates(rounds: int, against: str | None) -> str:
    """`against`: a git ref whose server is measured too."""
    with _contenders(against) as contenders, ProcessPoolExecutor(max(CONNECTIONS)) as pool:
        for make in contenders.values():
            _rate(pool, make, max(CONNECTIONS), 1, WARM_UP_SECONDS)
        rows: list[list[Cell]] = []
        for connections in CONNECTIONS:
            for batch in BATCHES:
                rated = _rated(pool, contenders, connections, batch, rounds)
                rows.append([connections, batch, *_cells(rated)])
    others = [header for name in list(contenders)[1:] for header in (f"{name} /s", f"{_OURS} / {name}")]
    headers = ("connections", "batch", f"{_OURS} /s", *others)
    return table("(j) Requests a second of a loop of send, take and settle", headers, rows)


@contextmanager
def _contenders(against: str | None) -> Iterator[dict[str, Make]]:
    """In the order of the columns."""
    with ExitStack() as stack:
        contenders = {_OURS: _decant(stack.enter_context(servers.decant()))}
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        contenders["with DATA"] = _decant(stack.enter_context(servers.decant(DATA=folder)))
        if against:
            checkout = stack.enter_context(servers.checkout(against))
            contenders[f"at {against}"] = _decant(stack.enter_context(servers.decant(checkout)))
        contenders["moto's SQS"] = partial(_sqs, stack.enter_context(servers.moto()))
        if servers.has_elasticmq():
            contenders["ElasticMQ"] = partial(_sqs, stack.enter_context(servers.elasticmq()))
        yield contenders


def _decant(port: int) -> Make:
    return partial(OverHttp, port)


def _sqs(port: int, name: str) -> Contender:
    return Sqs(by_light_client(port), name)


def _rated(
    pool: ProcessPoolExecutor, contenders: dict[str, Make], connections: int, batch: int, rounds: int
) -> list[float]:
    """The median of each. The contenders take turns, so that other load on the machine hits all of them."""
    taken: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in shown(range(rounds), rounds, f"requests a second, {connections} connections, batch {batch}"):
        for name, make in contenders.items():
            taken[name].append(_rate(pool, make, connections, batch, SECONDS))
    return [statistics.median(each) for each in taken.values()]


def _cells(rated: list[float]) -> Iterator[Cell]:
    ours, *others = rated
    yield int(ours)
    for rate in others:
        yield int(rate)
        yield ours / rate


def _rate(pool: ProcessPoolExecutor, make: Make, connections: int, batch: int, seconds: float) -> float:
    names = [f"rates-{next(_topics)}" for _ in range(connections)]
    loops = pool.map(_loops, *zip(*((make, name, batch, seconds) for name in names), strict=True))
    return REQUESTS * sum(loops)


def _loops(make: Make, name: str, batch: int, seconds: float) -> float:
    """Loops a second, in a process of its own."""
    contender, workload = make(name), Workload(SIZE)
    loops, began = 0, time.perf_counter()
    while (took := time.perf_counter() - began) < seconds:
        contender.send(workload.take(batch))
        receipts = contender.take(batch)
        assert len(receipts) == batch
        contender.settle(receipts)
        loops += 1
    return loops / took
