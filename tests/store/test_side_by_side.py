"""Requests side by side: calls that share the threads of a process do not wait for each other."""

from __future__ import annotations

import threading
from collections.abc import Callable
from random import Random
from typing import Any, cast

import pytest

from chalicelib.base.runtime import Runtime, system
from chalicelib.store import Range
from chalicelib.store.dynamodb.store import DynamoStore
from tests.store.test_requests import error

CALLERS, QUEUES = 20, 4
PATIENCE_SECONDS = 20
"""Only a failing test takes it."""


class TwoTables:
    """One partition works; of the other, every query does what the test says."""

    def __init__(self, on_trouble: Callable[[], object]) -> None:
        self._on_trouble = on_trouble
        self.is_in_trouble = True
        self.met = threading.Semaphore(0)
        """Released once for each query of the partition in trouble."""

    def query(self, **query: Any) -> dict[str, Any]:
        if self.is_in_trouble and query["ExpressionAttributeValues"][":pk"]["S"].startswith("slow"):
            self.met.release()
            self._on_trouble()
        return {"Items": []}


def throttled() -> None:
    raise error("ThrottlingException")


@pytest.mark.parametrize("is_hanging", [False, True], ids=["throttled", "hanging"])
def test_a_partition_in_trouble_does_not_hold_up_calls_to_others(is_hanging: bool) -> None:
    over = threading.Event()
    client = TwoTables(over.wait if is_hanging else throttled)
    runtime = Runtime(system().now, lambda _ms: cast("None", over.wait()), Random(0).randbytes, system().uptime)
    store = DynamoStore(cast("Any", client), "table", runtime)

    def read(name: str) -> None:
        store.read([Range(f"{name}#{queue}", " ", "~") for queue in range(QUEUES)])

    slow = [threading.Thread(target=read, args=("slow",), daemon=True) for _ in range(CALLERS)]
    for each in slow:
        each.start()
    try:
        assert all(client.met.acquire(timeout=PATIENCE_SECONDS) for _ in range(CALLERS))
        healthy = threading.Thread(target=read, args=("healthy",), daemon=True)
        healthy.start()
        healthy.join(PATIENCE_SECONDS)
        assert not healthy.is_alive()
    finally:
        client.is_in_trouble = False
        over.set()
