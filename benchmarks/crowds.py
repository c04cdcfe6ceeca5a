"""Many clients at once on one emulator: writers of one topic, and servers of one table. With few cores they share
them."""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from benchmarks import servers
from benchmarks.decant import OverHttp
from benchmarks.progress import shown
from benchmarks.report import Cell, table
from benchmarks.workload import Workload
from chalicelib.api import Api
from chalicelib.core.base.limits import MIB
from chalicelib.core.base.runtime import system
from chalicelib.core.store.dynamodb.client import Client, open_client
from chalicelib.core.store.dynamodb.requests import Failed, Trying
from chalicelib.core.store.dynamodb.store import DynamoStore
from chalicelib.service import Service

CONNECTIONS = 8
"""Client connections, over all servers together."""
_KEYS = 16
_SIZE = 200
_WRITER_HEADERS = (
    *("processes", "threads of each", "keys", "messages/s", "CPU µs a message"),
    *("accepted units a message", "refused a message", "together", "MB of a process"),
)
_SERVER_HEADERS = ("servers", "requests/s", "times as many as one", "CPU µs a request", "MB of a server")


@dataclass(slots=True)
class Written:
    messages: int = 0
    units: float = 0
    refused: int = 0
    cpu_seconds: float = 0
    resident_bytes: int = 0


class Billed:
    """A client that records what the emulator bills for writes, and counts refused ones, which it does not bill."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._lock = threading.Lock()
        self.units, self.refused = 0.0, 0

    def ask(self, action: str, parameters: dict[str, Any], timeout_ms: int) -> Trying[Any]:
        try:
            answer = yield from self._client.ask(action, parameters, timeout_ms)
        except Failed:
            with self._lock:
                self.refused += 1
            raise
        if action not in ("Query", "BatchGetItem"):
            consumed = answer.get("ConsumedCapacity") or []
            with self._lock:
                self.units += sum(
                    each["CapacityUnits"] for each in (consumed if isinstance(consumed, list) else [consumed])
                )
        return answer


def of_writers(crowds: Sequence[tuple[int, int]], seconds: float) -> str:
    """A table. `crowds`: processes, and the threads of each."""
    rows: list[list[Cell]] = []
    cases = [(processes, threads, keys) for processes, threads in crowds for keys in (1, _KEYS)]
    with servers.emulated_store() as store:
        for processes, threads, keys in shown(cases, len(cases), "many writers"):
            topic = f"t-{processes}-{threads}-{keys}"
            Api(Service(store, system())).put_topic(topic, {"queues": _KEYS})
            written = _written(topic, processes, threads, keys, seconds)
            rows.append([processes, threads, keys, *_figures(written, processes, seconds)])
    return table(f"(i) Writers of single messages of {_SIZE} B, on one emulator", _WRITER_HEADERS, rows)


def _written(topic: str, processes: int, threads: int, keys: int, seconds: float) -> Written:
    total = Written()
    with ProcessPoolExecutor(processes, multiprocessing.get_context("spawn")) as pool:
        at_s = time.time() + processes * 0.5  # all have started by then
        writing = [pool.submit(write, topic, threads, keys, at_s, seconds) for _ in range(processes)]
        for done in (each.result() for each in writing):
            total.messages += done.messages
            total.units += done.units
            total.refused += done.refused
            total.cpu_seconds += done.cpu_seconds
            total.resident_bytes += done.resident_bytes
    return total


def write(topic: str, threads: int, keys: int, at_s: float, seconds: float) -> Written:
    """Writes from one process, from `at_s` on, for `seconds`. The environment names the emulator."""
    billed = Billed(open_client(system(), os.environ))
    api = Api(Service(DynamoStore(billed, servers.TABLE, system()), system()))
    api.get_topic(topic)
    time.sleep(max(0.0, at_s - time.time()))
    cpu_began = time.process_time()
    until = time.monotonic() + seconds

    def work(number: int) -> int:
        orders, key = Workload(_SIZE), f"key-{number % keys}"
        orders.take(37 * number % 500)  # no two writers send the same
        count = 0
        while time.monotonic() < until:
            api.produce(topic, {"messages": [{"body": orders.take(1)[0], "key": key}]})
            count += 1
        return count

    numbers = [os.getpid() * threads + number for number in range(threads)]
    with ThreadPoolExecutor(threads) as pool:
        messages = sum(pool.map(work, numbers))
    cpu_seconds = time.process_time() - cpu_began
    return Written(messages, billed.units, billed.refused, cpu_seconds, servers.resident_bytes())


def _figures(written: Written, processes: int, seconds: float) -> Iterator[Cell]:
    messages = written.messages
    yield from (round(messages / seconds), round(1_000_000 * written.cpu_seconds / messages))
    yield from (written.units / messages, written.refused / messages, (written.units + written.refused) / messages)
    yield round(written.resident_bytes / processes / MIB)


class Loop:
    """One client with a connection, and a topic of its own."""

    def __init__(self, port: int, topic: str) -> None:
        self._decant = OverHttp(port, topic)
        self._orders = Workload(_SIZE)

    def run(self, seconds: float) -> int:
        """Produces, pops and acks single messages. Returns the number of requests."""
        until, count = time.monotonic() + seconds, 0
        while time.monotonic() < until:
            self._decant.send(self._orders.take(1))
            self._decant.settle(self._decant.take(1))
            count += 3
        return count


def of_servers(counts: Sequence[int], seconds: float) -> str:
    """A table: a loop of produce, pop and ack for each connection, each in a topic of its own."""
    rows: list[list[Cell]] = []
    for count in shown(counts, len(counts), "many servers"):
        with servers.decants_on_emulator(count) as running:
            loops = [Loop(running[number % count].port, f"t{number}") for number in range(CONNECTIONS)]
            began = sum(server.cpu_seconds() for server in running)
            with ThreadPoolExecutor(CONNECTIONS) as pool:
                requests = sum(pool.map(lambda loop: loop.run(seconds), loops))
            cpu_seconds = sum(server.cpu_seconds() for server in running) - began
            resident = sum(servers.resident_bytes(server.pid) for server in running) / count
        rate = requests / seconds
        ratio = rate / rows[0][1] if rows else 1.0
        rows.append([count, rate, ratio, round(1_000_000 * cpu_seconds / requests), round(resident / MIB)])
    title = (
        f"(i) Servers of one table, {CONNECTIONS} connections, {os.cpu_count()} cores for them, clients and emulator"
    )
    return table(title, _SERVER_HEADERS, rows)
