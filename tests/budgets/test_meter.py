"""The meter counts as an emulator bills, and the metered messages are no more alike than real ones."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mypy_boto3_dynamodb import DynamoDBClient

from chalicelib.api import Api
from chalicelib.core.base.limits import KIB
from chalicelib.core.base.runtime import system
from chalicelib.core.store import Keys, Range
from chalicelib.core.store.dynamodb import boto
from chalicelib.core.store.dynamodb.boto import Boto
from chalicelib.core.store.dynamodb.store import DynamoStore
from chalicelib.core.table.writes import Key
from local.memory.sizes import item_bytes, read_units, write_units
from local.memory.store import MemoryStore
from tests.budgets.shop import QUEUES
from tests.support import emulators
from tests.support.clock import Clock
from tests.support.instances import instance
from tests.support.orders import noise, orders


@pytest.mark.parametrize(
    ("size", "batch", "expected"),
    [(1_024, 1, 541), (1_024, 10, 394), (1_024, 100, 343), (200, 100, 57)],
)
def test_the_orders_are_no_more_alike_than_the_messages_that_were_measured(
    size: int, batch: int, expected: int
) -> None:
    made = orders(100, size)
    assert {len(order.encode()) for order in made} == {size}
    packed = sum(len(zlib.compress("\n".join(made[at : at + batch]).encode(), 6)) for at in range(0, 100, batch))
    assert packed / 100 == pytest.approx(expected, rel=0.1)


class Bill:
    """The units that an emulator reports for requests. It reports none for a request that it refuses."""

    def __init__(self, client: DynamoDBClient) -> None:
        self.write_units = 0.0
        self.read_units = 0.0
        client.meta.events.register("provide-client-params.dynamodb", self._ask)
        client.meta.events.register("after-call.dynamodb", self._add)

    @property
    def total(self) -> tuple[float, float]:
        return self.write_units, self.read_units

    def _ask(self, params: dict[str, Any], model: Any, **_: Any) -> None:
        if "ReturnConsumedCapacity" in model.input_shape.members:
            params["ReturnConsumedCapacity"] = "TOTAL"

    def _add(self, parsed: dict[str, Any], model: Any, **_: Any) -> None:
        consumed = parsed.get("ConsumedCapacity", [])
        for each in consumed if isinstance(consumed, list) else [consumed]:
            if model.name in ("Query", "BatchGetItem"):
                self.read_units += each["CapacityUnits"]
            else:
                self.write_units += each["CapacityUnits"]


@pytest.fixture
def emulated(dynoxide: str) -> tuple[DynamoStore, Bill]:
    client = emulators.client_of(dynoxide)
    boto.ensure(client, "budgets")
    return DynamoStore(Boto(client), "budgets", system()), Bill(client)


def script(api: Api, clock: Clock) -> Iterator[str]:
    """A day in the life of a topic: every operation with a cost, and none that is refused. Yields after each."""
    receipts: list[str] = []

    def pop(**ask: Any) -> None:
        receipts[:] = [each["receipt"] for each in api.pop("t", "g", ask)["messages"]]

    api.put_topic("t", {"queues": QUEUES})
    yield "make a topic"
    api.put_group("t", "g", {"max_attempts": 2})
    yield "make a group"
    for count, size in ((1, 200), (10, 200), (100, 200), (100, 1_024)):
        clock.ms += 10
        api.produce("t", {"messages": [{"body": body} for body in orders(count, size, count)]})
        yield f"produce {count} x {size} B"
    api.produce("t", {"messages": [{"body": body} for body in noise(3, 400_000)]})
    yield "produce more than an item holds"
    api.produce("t", {"messages": [{"body": body, "queue": n % 4} for n, body in enumerate(noise(200, 1_000))]})
    yield "produce to four queues"
    for number in range(20):
        clock.ms += 10
        api.produce("t", {"messages": [{"body": body, "key": str(number % 5)} for body in noise(1, 200, number)]})
        yield "produce one with a key"
    pop(invisible_ms=1_000)
    yield "pop"
    api.extend("t", "g", {"receipts": receipts[3:5], "invisible_ms": 60_000})
    yield "extend"
    api.nack("t", "g", {"receipts": receipts[:2], "reason": "not now", "delay_ms": 0})
    yield "nack"
    api.ack("t", "g", {"receipts": receipts[6:8]})
    yield "ack some"
    clock.ms += 1_000
    for _ in range(10):
        pop(ack=list(receipts), max_messages=50)
        yield "pop and ack"
    api.ack("t", "g", {"receipts": receipts})
    yield "ack all"
    api.produce("t", {"messages": [{"body": "bad"}]})
    for _ in range(2):
        pop()
        api.nack("t", "g", {"receipts": receipts, "reason": "bad", "delay_ms": 0})
    yield "bury"
    api.get_topic("t")
    api.get_group("t", "g")
    api.list_groups("t", {})
    yield "look"
    api.read_messages("t", {"limit": "50"})
    yield "read"
    api.reset_group("t", "g", {"to": {"at_ms": clock.ms - 100}})
    yield "reset"
    api.delete_topic("t")
    yield "delete"


def test_the_meter_counts_as_an_emulator_bills(emulated: tuple[DynamoStore, Bill]) -> None:
    memory, (real, bill) = MemoryStore(), emulated
    clocks = Clock(), Clock()
    for metered, billed in zip(
        script(instance(memory, clocks[0]), clocks[0]), script(instance(real, clocks[1]), clocks[1]), strict=True
    ):
        assert metered == billed
        assert (metered, memory.meter.write_units, memory.meter.read_units) == (billed, *bill.total)
    assert memory.meter.write_units > 400


VALUES = st.recursive(
    st.text(max_size=5) | st.binary(max_size=5) | st.booleans() | st.integers(-(10**15), 10**15),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("ab#é", min_size=1), inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(value=VALUES, over=st.sampled_from([0, 1]), strong=st.booleans())
def test_an_item_is_billed_to_the_byte(emulated: tuple[DynamoStore, Bill], value: Any, over: int, strong: bool) -> None:
    store, bill = emulated
    item = {"pk": "billed", "sk": "a", "value": value, "filling": b""}
    size = -(-item_bytes(item) // (4 * KIB)) * 4 * KIB + over
    item["filling"] = b"x" * (size - item_bytes(item))
    before = bill.total
    store.put_all([item])
    store.read([Keys([Key("billed", "a")], strong), Range("billed", "a", "a", strong=strong)])
    writes, reads = (after - earlier for after, earlier in zip(bill.total, before, strict=True))
    assert (writes, reads) == (write_units(None, item), 2 * read_units(size, strong))
    assert (writes, reads) == (4 + over, (2 + 2 * over) * (1 if strong else 0.5))
    store.remove_all([Key("billed", "a")])
