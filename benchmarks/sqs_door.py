"""Runs boto3's SQS client on Decant with its memory store, moto's server, ElasticMQ and LocalStack, in one run."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from benchmarks import servers
from benchmarks.loop import Round, in_turns
from benchmarks.report import Cell, table
from benchmarks.sqs import Sqs, by_boto3, by_light_client
from benchmarks.workload import Workload

BATCHES = (1, 10)
SIZE = 200
WARM_UP_SECONDS = 20.0
"""For ElasticMQ, by the light client: Java compiles code only after it has run often; after 10 s it is still slower."""

_OURS = "Decant"
_ACTIONS = {"send": "send", "take": "receive", "settle": "delete", "whole loop": "whole loop"}
_HEADERS = ("batch", "step", "server", "messages/s", "median ms", "99th percentile ms", "median, Decant / it")


def sqs_door(rounds: int) -> str:
    rows: list[list[Cell]] = []
    with _ports() as ports:
        for batch in BATCHES:
            clients = {name: Sqs(by_boto3(port), f"orders-{batch}") for name, port in ports.items()}
            rows += _rows(batch, in_turns(clients, SIZE, batch, rounds, "boto3"))
    return table("(k) boto3's SQS client, on one connection", _HEADERS, rows)


@contextmanager
def _ports() -> Iterator[dict[str, int]]:
    """In the order of the rows."""
    with ExitStack() as stack:
        ports = {_OURS: stack.enter_context(servers.decant()), "moto": stack.enter_context(servers.moto())}
        if servers.has_elasticmq():
            ports["ElasticMQ"] = stack.enter_context(servers.elasticmq())
            _warm_up(ports["ElasticMQ"])
        if servers.has_localstack():
            ports["LocalStack"] = stack.enter_context(servers.localstack())
        yield ports


def _warm_up(port: int) -> None:
    contender, workload = Sqs(by_light_client(port), "warm-up"), Workload(SIZE)
    end = time.monotonic() + WARM_UP_SECONDS
    while time.monotonic() < end:
        for batch in BATCHES:
            contender.send(workload.take(batch))
            contender.settle(contender.take(batch))


def _rows(batch: int, taken: dict[str, list[Round]]) -> Iterator[list[Cell]]:
    for step, action in _ACTIONS.items():
        ours = statistics.median(each[step] for each in taken[_OURS])
        for name, rounds in taken.items():
            seconds = [each[step] for each in rounds]
            median, p99 = statistics.median(seconds), statistics.quantiles(seconds, n=100)[98]
            rate = batch * len(seconds) / sum(seconds)
            yield [batch, action, name, int(rate), 1_000 * median, 1_000 * p99, ours / median]
