"""No request under 100 KB takes more than twenty times the CPU of a plain one of its size, with or without a token, and
none takes memory out of proportion: one process serves all clients.

The real server runs in this process, so that the tests count its CPU time, which other processes do not disturb."""

from __future__ import annotations

import socket
import threading
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial

import pytest

from chalicelib import wiring
from chalicelib.api import NOBODY, Demand
from chalicelib.core.base.limits import MIB
from local.memory.dynamodb_api import EXPRESSION_CHARS_MAX
from local.memory.key_condition import Unreadable, key_range
from local.server import listen
from tests.fuzz import hostile, hostile_bodies
from tests.fuzz.hostile import UNITS, Named, plain, repeated
from tests.sqs.client import Sqs
from tests.support.client import Client

TIMES_MAX = 20
PLAIN_S_MIN = 0.001
"""Smaller differences are those of the machine."""
ROUNDS = 5
"""A busy neighbour slows one measurement more than the next: one that is over is compared with plain ones in turn."""
MEMORY_MAX = 100
"""Bytes for each byte of a request. An empty list takes 64 of two."""


class Crowded:
    """A server in this process, and what its answers cost. `key_id`: a key that there is."""

    def __init__(self, demand: Demand) -> None:
        inside = Client()
        inside.topic("orders", 2).group("billing")
        Sqs(inside).CreateQueue(QueueName="q")
        token = inside.api.make_token({"name": "a", "rights": [{"operations": ["consume"], "topics": "*"}]})
        self.key_id: str = token["access_key_id"]
        self.api = Client(inside.store, demand=demand).api
        self.now = datetime.fromtimestamp(self.api.service.env.runtime.now() / 1_000, UTC)
        self.server = listen(0, False)
        self._plain: dict[int, float] = {}

    def ask(self, raw: bytes) -> None:
        """Sends a request and reads its answer."""
        with socket.create_connection(("127.0.0.1", self.server.port)) as connection, suppress(ConnectionError):
            connection.sendall(raw)
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(1 << 20):
                pass

    def cost(self, raw: bytes, enough: float = 0) -> float:
        """The CPU of an answer in seconds, the least of three; or the first that is less than `enough`."""
        least = 1e9
        for _ in range(3):
            began = time.process_time()
            self.ask(raw)
            least = min(least, time.process_time() - began)
            if least < enough:
                break
        return least

    def compared(self, raw: bytes) -> tuple[float, float]:
        """The CPU of an answer, and what it may cost: the least of several measured in turn with plain ones."""
        pairs = [(self.cost(raw), self.cost(plain(len(raw)))) for _ in range(ROUNDS)]
        least, least_plain = (min(costs) for costs in zip(*pairs, strict=True))
        return least, TIMES_MAX * max(least_plain, PLAIN_S_MIN)

    def most(self, size: int) -> float:
        """The CPU time that a request of this size may take."""
        kilobytes = size // 1_024
        if kilobytes not in self._plain:
            self._plain[kilobytes] = self.cost(plain(size))
        return TIMES_MAX * max(self._plain[kilobytes], PLAIN_S_MIN)


def served(demand: Demand) -> Iterator[Crowded]:
    crowded = Crowded(demand)
    serving = threading.Thread(target=crowded.server.serve_forever, daemon=True)
    serving.start()
    wiring.use(crowded.api)
    yield crowded
    wiring.use(None)
    crowded.server.shutdown()
    serving.join()
    crowded.server.server_close()


@pytest.fixture(scope="module")
def everybody() -> Iterator[Crowded]:
    """A service that demands no tokens."""
    yield from served(NOBODY)


@pytest.fixture(scope="module")
def strangers() -> Iterator[Crowded]:
    """A service that demands tokens."""
    yield from served(Demand(requests=True))


def judge(crowded: Crowded, named: Named) -> None:
    wiring.use(crowded.api)
    offenders = {}
    for name, raw in named:
        assert len(raw) < 110_000, name
        most = crowded.most(len(raw))
        if (cost := crowded.cost(raw, most)) > most:
            cost, most = crowded.compared(raw)
        if cost > most:
            offenders[name] = f"{len(raw)} bytes take {cost * 1_000:.0f} ms, plain ones {most / TIMES_MAX * 1_000:.1f}"
    assert offenders == {}


def test_no_head_costs_much(everybody: Crowded) -> None:
    judge(everybody, hostile.heads())


@pytest.mark.parametrize("key", ["known", "unknown"])
def test_no_signature_costs_much(strangers: Crowded, key: str) -> None:
    key_id = strangers.key_id if key == "known" else "DCTK" + 16 * "A"
    stamp, date = f"{strangers.now:%Y%m%dT%H%M%SZ}", f"{strangers.now:%a, %d %b %Y %H:%M:%S GMT}"
    judge(strangers, hostile.signatures(key_id, stamp, date))


@pytest.mark.parametrize("kind", ["json_texts", "json_shapes", "forms", "documents", "chunks"])
def test_no_body_costs_much(everybody: Crowded, kind: str) -> None:
    judge(everybody, getattr(hostile_bodies, kind)())


def test_no_request_takes_much_memory(everybody: Crowded) -> None:
    wiring.use(everybody.api)
    tracemalloc.start()
    try:
        for name, raw in (*hostile_bodies.json_shapes(), *hostile_bodies.documents()):
            tracemalloc.reset_peak()
            before, _ = tracemalloc.get_traced_memory()
            everybody.ask(raw)
            _, peak = tracemalloc.get_traced_memory()
            assert peak - before < MEMORY_MAX * len(raw) + MIB, name
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("unit", [" ", *UNITS])
def test_no_condition_of_the_stores_endpoint_costs_much(everybody: Crowded, unit: str) -> None:
    read = partial(key_range, repeated(unit, EXPRESSION_CHARS_MAX), {}, {})
    began = time.process_time()
    with pytest.raises(Unreadable):
        read()
    assert time.process_time() - began < everybody.most(EXPRESSION_CHARS_MAX)
