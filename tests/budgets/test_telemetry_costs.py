"""What observing costs: nothing of the store, and little time."""

from __future__ import annotations

import time
from collections.abc import Callable

from chalicelib.api import OPERATIONS
from chalicelib.base.runtime import system
from chalicelib.protocols import entrance
from chalicelib.telemetry.record import asked_store, count, used
from chalicelib.telemetry.telemetry import Telemetry
from tests.support.client import Client

SHARE_MAX = 1 / 3
"""Of the time of a small request to the store in memory: some tenth was measured. To DynamoDB it is a hundredth."""


def seconds_of(task: Callable[[], object], times: int = 200) -> float:
    """Processor time; the fastest of several rounds, since others run on the machine too."""
    rounds = []
    for _ in range(7):
        began = time.process_time()
        for _ in range(times):
            task()
        rounds.append(time.process_time() - began)
    return min(rounds)


def spent(client: Client) -> tuple[float, float, int]:
    topic = client.topic("orders")
    group = topic.group("billing")
    topic.produce("a", "b")
    group.nack(group.take_one(), delay_ms=0)
    group.ack(*group.take(2))
    client.api.service.sweeps.revive()
    meter = client.store.meter
    return meter.write_units, meter.read_units, meter.round_trips


def test_log_lines_and_counters_ask_the_store_nothing() -> None:
    silent, logging = Client(), Client()
    logging.api.service.telemetry.log_to(lambda _: None, "decant-dev")
    assert spent(silent) == spent(logging)


def test_a_log_line_takes_little_of_the_time_of_its_request() -> None:
    client = Client()
    client.topic("orders")
    call = entrance.Call(OPERATIONS["produce"], ["orders"], lambda: {"messages": [{"body": "x" * 200}]}, {})
    telemetry = Telemetry(system())
    telemetry.log_to(lambda _: None, "decant-dev")

    def observe() -> None:
        with telemetry.call("produce", "orders", trace_id="") as record:
            asked_store()
            used(write_units=1)
            count("produced", 1, "orders")
            record.status = 200

    assert seconds_of(observe) <= SHARE_MAX * seconds_of(lambda: entrance.answer(call))
