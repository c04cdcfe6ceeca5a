"""A topic of 4 queues and one group, on warm instances, whose every call is metered as DynamoDB bills it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from chalicelib.api import Api
from local.memory.meter import Meter
from local.memory.store import MemoryStore
from tests.support.clock import Clock
from tests.support.instances import instance

QUEUES = 4
CALLS = 20
"""How often each produce is repeated: no call may cost more than the budget, wherever segments end."""


class Shop:
    """A topic, a group, a producer and a consumer, each a warm instance of its own."""

    def __init__(self, groups: Sequence[str] = ("g",), **settings: Any) -> None:
        self.store = MemoryStore()
        self.clock = Clock()
        self.producer = instance(self.store, self.clock, 1)
        self.consumer = instance(self.store, self.clock, 2)
        self.producer.put_topic("t", {"queues": QUEUES})
        for group in groups:
            self.producer.put_group("t", group, settings)
        for queue in range(QUEUES):
            self.produce(["warm"], queue=queue)
        for _ in range(QUEUES + 1):
            self.ack(self.pop()[0])

    def cost(self, act: Callable[[], Any]) -> Meter:
        before = self.store.meter.copy()
        act()
        return self.store.meter.since(before)

    def produce(self, bodies: Sequence[str], **fields: Any) -> Meter:
        self.clock.ms += 10
        messages = [{"body": body, **fields} for body in bodies]
        return self.cost(lambda: self.producer.produce("t", {"messages": messages}))

    def pop(self, ack: Sequence[str] = (), most: int = 10, consumer: Api | None = None) -> tuple[list[str], Meter]:
        """The receipts, and what it cost."""
        receipts: list[str] = []

        def act() -> None:
            answer = (consumer or self.consumer).pop("t", "g", {"max_messages": most, "ack": list(ack)})
            assert answer["failed"] == []
            receipts.extend(each["receipt"] for each in answer["messages"])

        cost = self.cost(act)
        return receipts, cost

    def ack(self, receipts: Sequence[str]) -> Meter:
        if not receipts:
            return Meter()
        return self.cost(lambda: self.consumer.ack("t", "g", {"receipts": list(receipts)}))


def within(cost: Meter, writes: float, reads: float, round_trips: int) -> bool:
    return cost.write_units <= writes and cost.read_units <= reads and cost.round_trips <= round_trips


def backlog(count: int, groups: Sequence[str] = ("g",)) -> Shop:
    shop = Shop(groups)
    while count:
        shop.produce(["a message"] * min(count, 250), queue=0)
        count -= min(count, 250)
    return shop
