"""Measures requests and replies over HTTP: how soon a caller has a reply, and the whole call beside two queues of
moto's SQS."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from typing import Protocol

from benchmarks import servers
from benchmarks.http_client import Connection
from benchmarks.progress import shown
from benchmarks.report import Cell, table
from benchmarks.sqs import SqsCalls

AIM_MS, AIM_MS_P99 = 25, 60
"""From a reply's 201 to its caller's 200, through another instance."""
LONGEST_MS = 500
"""Workers reply after up to this time: the longer a call has lasted, the more seldom its caller looks."""
CROWDS = {1: 1, 50: 4}
"""Callers at once, and the workers that answer them."""

_BLOCKS = 3
_BATCH = 10
_TIMEOUT_MS = 30_000
_WAIT_MS = 200
_GROUP = "echo"
_WAKE_HEADERS = ("calls", "reply after ms", "median ms", "99th percentile ms", "latest ms", "aim ms")
_HEADERS = (
    *("callers", "workers", "Decant median ms", "Decant p99 ms", "Decant calls/s"),
    *("moto median ms", "moto p99 ms", "moto calls/s", "median, Decant / moto", "calls/s, Decant / moto"),
)

Call = Callable[[str], str]
"""Sends a request and returns its reply."""


class Calls(Protocol):
    """A system that carries requests from callers to workers, and replies back."""

    def caller(self) -> Call:
        """Returns a call for one thread."""

    def work(self, stop: threading.Event) -> None:
        """Answers requests with what they say, until `stop`."""


class DecantCalls:
    """`ask_port`: the callers' instance; `work_port`: the workers'."""

    def __init__(self, ask_port: int, work_port: int, topic: str) -> None:
        self._ask_port, self._work_port, self._path = ask_port, work_port, f"/topics/{topic}"
        with closing(Connection(work_port, is_kept=True)) as connection:
            connection.ask("PUT", self._path, {})
            connection.ask("PUT", f"{self._path}/groups/{_GROUP}", {})

    def caller(self) -> Call:
        connection = Connection(self._ask_port, is_kept=True)

        def call(body: str) -> str:
            asked = {"body": body, "timeout_ms": _TIMEOUT_MS}
            reply: str = connection.ask("POST", f"{self._path}/requests", asked)["reply"]["body"]
            return reply

        return call

    def work(self, stop: threading.Event) -> None:
        with closing(Connection(self._work_port, is_kept=True)) as connection:
            receipts: list[str] = []
            while not stop.is_set():
                ask = {"max_messages": _BATCH, "wait_ms": _WAIT_MS, "ack": receipts or None}
                messages = connection.ask("POST", f"{self._path}/groups/{_GROUP}/pop", ask)["messages"]
                for message in messages:
                    path = f"/requests/{message['correlation_id']}/reply"
                    connection.ask("POST", path, {"body": message["body"]})
                receipts = [message["receipt"] for message in messages]

    def wake_ms(self, call: Call, replying: Connection, after_ms: int) -> float:
        """The time from a reply's 201 to the 200 of its caller, in ms. The worker replies `after_ms` it took the
        request."""
        with ThreadPoolExecutor(1) as pool:
            heard = pool.submit(lambda: (call("a"), time.perf_counter())[1])
            messages: list[dict[str, str]] = []
            while not messages:
                ask = {"wait_ms": _WAIT_MS}
                messages = replying.ask("POST", f"{self._path}/groups/{_GROUP}/pop", ask)["messages"]
            time.sleep(after_ms / 1_000)
            reply = {"body": "b", "receipt": messages[0]["receipt"]}
            replying.ask("POST", f"/requests/{messages[0]['correlation_id']}/reply", reply)
            stored = time.perf_counter()
            return 1_000 * (heard.result() - stored)


def calls(count: int) -> str:
    """`count`: measured replies, and calls of each crowd."""
    servers.demand_emulator()
    servers.demand_moto_server()
    with servers.decants_on_emulator(2) as (one, other):
        wakes = _wakes(DecantCalls(one.port, other.port, "wakes"), other.port, count)
    with servers.decant_on_emulator() as port, servers.moto() as moto:
        rows = [
            _crowd(DecantCalls(port, port, f"calls-{callers}"), SqsCalls(moto, f"calls-{callers}"), callers, count)
            for callers in CROWDS
        ]
    title = "(h) From a reply's 201 to its caller's 200, through another instance, on the emulator"
    loop = "Calls to an echo worker: one instance on the emulator, beside two queues of moto's SQS"
    return f"{table(title, _WAKE_HEADERS, [wakes])}\n{table(loop, _HEADERS, rows)}"


def _wakes(over: DecantCalls, port: int, count: int) -> list[Cell]:
    with closing(Connection(port, is_kept=True)) as replying:
        call = over.caller()
        delays = [LONGEST_MS * number // count for number in range(count)]
        late = sorted(over.wake_ms(call, replying, after_ms) for after_ms in shown(delays, count, "replies"))
    aim = f"{AIM_MS} and {AIM_MS_P99}"
    return [count, f"0 to {LONGEST_MS}", statistics.median(late), _p99(late), late[-1], aim]


def _crowd(decant: Calls, moto: Calls, callers: int, count: int) -> list[Cell]:
    """The contenders take turns, so that other load on the machine hits both."""
    sides: dict[Calls, list[float]] = {decant: [], moto: []}
    seconds = dict.fromkeys(sides, 0.0)
    for _ in shown(range(_BLOCKS), _BLOCKS, f"calls of {callers}"):
        for side, took in sides.items():
            began = time.perf_counter()
            took += _block(side, callers, -(-count // (_BLOCKS * callers)))
            seconds[side] += time.perf_counter() - began
    warm_ups = _BLOCKS * callers
    figures = [
        (1_000 * statistics.median(took), 1_000 * _p99(sorted(took)), (len(took) + warm_ups) / seconds[side])
        for side, took in sides.items()
    ]
    (ours, _, our_rate), (theirs, _, their_rate) = figures
    return [callers, CROWDS[callers], *figures[0], *figures[1], ours / theirs, our_rate / their_rate]


def _block(over: Calls, callers: int, each: int) -> list[float]:
    """The seconds of each call, for so many concurrent callers that make `each` calls one after the other."""
    with _working(over, CROWDS[callers]), ThreadPoolExecutor(callers) as pool:
        return [seconds for took in pool.map(lambda _: _calls(over.caller(), each), range(callers)) for seconds in took]


def _calls(call: Call, count: int) -> list[float]:
    call("warm up")
    took = []
    for number in range(count):
        began = time.perf_counter()
        reply = call(f"question {number}")
        took.append(time.perf_counter() - began)
        assert reply == f"question {number}"
    return took


@contextmanager
def _working(over: Calls, workers: int) -> Iterator[None]:
    stop = threading.Event()
    threads = [threading.Thread(target=over.work, args=(stop,)) for _ in range(workers)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def _p99(ordered: list[float]) -> float:
    return ordered[-(-99 * len(ordered) // 100) - 1]
