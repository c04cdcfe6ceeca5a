"""Runs the Python client, urllib3 alone and boto3 on the SQS door against `python -m local`, in one run."""

from __future__ import annotations

import json
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import product
from typing import Any, NamedTuple, Protocol

import urllib3

from benchmarks import servers
from benchmarks.decant import GROUP, OverHttp
from benchmarks.progress import shown
from benchmarks.report import Cell, table
from benchmarks.sqs import Sqs, by_boto3
from benchmarks.workload import Workload
from decant import Decant

MESSAGES = {1: 200, 100: 3_000}
"""Messages a call -> messages of a round."""
THREADS = (1, 2, 4, 8)
SIZE = 200
SQS_BATCH_MAX = 10

_TOPIC = "client"
_WARM_UP_ROUNDS = 1


class Took(NamedTuple):
    seconds: float
    cpu_seconds: float
    """The CPU seconds of this process, without those of the server."""


class Contender(Protocol):
    def produce(self, bodies: Sequence[str]) -> None:
        """Sends messages, in one call if it can."""

    def consume(self, messages: int, batch: int, threads: int) -> None:
        """Takes and acknowledges so many messages."""


def client(rounds: int) -> str:
    rows: list[list[Cell]] = []
    with servers.decant() as port:
        contenders: dict[str, Contender] = {
            "client": ByClient(port),
            "urllib3": ByUrllib3(port),
            "boto3": ByBoto3(port),
        }
        for batch, threads in product(MESSAGES, THREADS):
            taken = _in_turns(contenders, batch, threads, rounds)
            rows += [[step, batch, threads, *_cells(each, MESSAGES[batch])] for step, each in taken.items()]
    headers = ["step", "a call", "threads", *(f"{name}, {unit}" for unit in ("µs", "/s") for name in contenders)]
    headers += [f"µs, client / {name}" for name in list(contenders)[1:]]
    return table("(q) The Python client: its CPU time per message, and messages a second", headers, rows)


def _in_turns(
    contenders: Mapping[str, Contender], batch: int, threads: int, rounds: int
) -> dict[str, dict[str, list[Took]]]:
    """Step -> contender -> rounds. They take turns, so that other load on the machine hits all of them."""
    taken = {step: {name: list[Took]() for name in contenders} for step in ("produce", "consume")}
    workload, messages = Workload(SIZE), MESSAGES[batch]
    total = rounds + _WARM_UP_ROUNDS
    for _ in shown(range(total), total, f"Python client, {batch} a call, {threads} threads"):
        for name, contender in contenders.items():
            calls = [workload.take(batch) for _ in range(messages // batch)]
            taken["produce"][name].append(_measured(partial(_in_threads, threads, contender.produce, calls)))
            taken["consume"][name].append(_measured(partial(contender.consume, messages, batch, threads)))
    return taken


def _measured(work: Callable[[], None]) -> Took:
    began, cpu_began = time.perf_counter(), time.process_time()
    work()
    return Took(time.perf_counter() - began, time.process_time() - cpu_began)


def _in_threads(threads: int, call: Callable[[Any], None], arguments: Sequence[Any]) -> None:
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(call, arguments))


def _cells(taken: Mapping[str, Sequence[Took]], messages: int) -> Iterator[Cell]:
    rounds = {name: each[_WARM_UP_ROUNDS:] for name, each in taken.items()}
    cpu = [1e6 * statistics.median(took.cpu_seconds for took in each) / messages for each in rounds.values()]
    yield from map(float, cpu)
    yield from (int(messages / statistics.median(took.seconds for took in each)) for each in rounds.values())
    yield from (cpu[0] / other for other in cpu[1:])


class ByClient:
    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}"
        self._mq = Decant(self._url)
        self._mq.api.put_topic(_TOPIC)
        self._mq.api.put_group(_TOPIC, GROUP)

    def produce(self, bodies: Sequence[str]) -> None:
        self._mq.send_all(_TOPIC, bodies)

    def consume(self, messages: int, batch: int, threads: int) -> None:
        """By a consumer with so many handlers, and room for `batch` messages of each."""
        left = Left(messages)
        with Decant(self._url) as mq:

            @mq.consumer(_TOPIC, group=GROUP, concurrency=threads, prefetch=batch, wait=0)
            def handle(_: str) -> None:
                left.took(1)
                if not left:
                    mq.stop()

            runner = threading.Thread(target=mq.run, daemon=True)  # not the main thread, where it would take signals
            runner.start()
            runner.join()


class ByUrllib3:
    """The least that a program can do itself: pops that carry the acks of the messages before."""

    def __init__(self, port: int) -> None:
        self._service = OverHttp(port, f"{_TOPIC}-urllib3", connection=Urllib3(port))

    def produce(self, bodies: Sequence[str]) -> None:
        self._service.send(bodies)

    def consume(self, messages: int, batch: int, threads: int) -> None:
        _in_threads(threads, partial(self._pop, Left(messages)), [batch] * threads)

    def _pop(self, left: Left, batch: int) -> None:
        receipts: list[str] = []
        while left:
            receipts = self._service.take(batch, ack=receipts)
            left.took(len(receipts))
        if receipts:
            self._service.settle(receipts)


class ByBoto3:
    def __init__(self, port: int) -> None:
        self._queue = Sqs(by_boto3(port), f"{_TOPIC}-boto3")

    def produce(self, bodies: Sequence[str]) -> None:
        for start in range(0, len(bodies), SQS_BATCH_MAX):
            self._queue.send(bodies[start : start + SQS_BATCH_MAX])

    def consume(self, messages: int, batch: int, threads: int) -> None:
        _in_threads(threads, partial(self._receive, Left(messages)), [min(batch, SQS_BATCH_MAX)] * threads)

    def _receive(self, left: Left, batch: int) -> None:
        while left:
            receipts = self._queue.take(batch)
            left.took(len(receipts))
            if receipts:
                self._queue.settle(receipts)


class Urllib3:
    """JSON over HTTP by urllib3, from any number of threads."""

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}"
        self._pool = urllib3.PoolManager(maxsize=max(THREADS), retries=False)

    def ask(self, method: str, path: str, body: object) -> Any:
        headers = {"content-type": "application/json"}
        response = self._pool.request(method, self._url + path, body=json.dumps(body).encode(), headers=headers)
        assert response.status < 300, response.data
        return json.loads(response.data) if response.data else None


class Left:
    """How many messages are left to take, by all threads together."""

    def __init__(self, messages: int) -> None:
        self._messages = messages
        self._lock = threading.Lock()

    def __bool__(self) -> bool:
        return self._messages > 0

    def took(self, messages: int) -> None:
        with self._lock:
            self._messages -= messages
