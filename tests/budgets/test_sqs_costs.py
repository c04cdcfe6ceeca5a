"""The cost of the actions of SQS clients, on a queue of 4 Decant queues and a warm instance."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from chalicelib import wiring
from local.memory.meter import Meter
from tests.budgets.shop import CALLS, within
from tests.sqs.client import Sqs
from tests.support.client import Client
from tests.support.orders import orders

Json = dict[str, Any]
NAME = "orders"
TEN = 10


class SqsShop:
    """A queue that has been used."""

    def __init__(self) -> None:
        self.client = Client()
        self.sqs = Sqs(self.client)
        self.url = self.sqs.CreateQueue(QueueName=NAME)["QueueUrl"]
        for queue in range(4):
            self.client.api.produce(NAME, {"messages": [{"body": "warm", "queue": queue}]})
        while handles := self.received():
            self.sqs.DeleteMessageBatch(QueueUrl=self.url, Entries=_entries(handles))

    def cost(self, act: Callable[[], Any]) -> Meter:
        before = self.client.store.meter.copy()
        act()
        return self.client.store.meter.since(before)

    def ask(self, action: str, **members: Any) -> Meter:
        self.client.clock.ms += 10
        return self.cost(lambda: getattr(self.sqs, action)(QueueUrl=self.url, **members))

    def send(self, count: int) -> Meter:
        bodies = orders(count, 200)
        entries = [{"Id": str(number), "MessageBody": body} for number, body in enumerate(bodies)]
        return (
            self.ask("SendMessageBatch", Entries=entries)
            if count > 1
            else self.ask("SendMessage", MessageBody=bodies[0])
        )

    def received(self) -> list[str]:
        answer = self.sqs.ReceiveMessage(QueueUrl=self.url, MaxNumberOfMessages=TEN)
        return [message["ReceiptHandle"] for message in answer.get("Messages", [])]


def _entries(handles: list[str], **more: Any) -> list[Json]:
    return [{"Id": str(number), "ReceiptHandle": own, **more} for number, own in enumerate(handles)]


@pytest.fixture
def shop() -> Any:
    yield SqsShop()
    wiring.use(None)


def test_a_send_costs_what_a_produce_costs(shop: SqsShop) -> None:
    for count, writes, round_trips in ((1, 1, 1), (TEN, 2, 2)):
        costs = [shop.send(count) for _ in range(CALLS)]
        assert [cost for cost in costs if not within(cost, writes, 0, round_trips)] == []


def test_a_receive_and_a_delete_cost_what_a_pop_and_an_ack_cost(shop: SqsShop) -> None:
    for count in (1, TEN):
        shop.send(count)
        handles: list[str] = []
        cost = shop.cost(lambda: handles.extend(shop.received()))  # noqa: B023
        assert len(handles) == count
        assert within(cost, 1, 3 + (count > 1), 3), cost
        cost = shop.ask("DeleteMessageBatch", Entries=_entries(handles))
        assert within(cost, 1, 0, 1), cost


def test_a_delete_costs_one_unit(shop: SqsShop) -> None:
    shop.send(1)
    [own] = shop.received()
    cost = shop.ask("DeleteMessage", ReceiptHandle=own)
    assert within(cost, 1, 0, 1), cost


def test_a_change_of_visibility_costs_one_unit(shop: SqsShop) -> None:
    shop.send(1)
    [own] = shop.received()
    for seconds in (60, 90, 10, 0):
        cost = shop.ask("ChangeMessageVisibility", ReceiptHandle=own, VisibilityTimeout=seconds)
        assert within(cost, 1, 0, 1), cost


def test_a_receive_of_nothing_costs_its_reads(shop: SqsShop) -> None:
    cost = shop.ask("ReceiveMessage")
    assert within(cost, 0, 2.5, 1), cost


def test_an_instance_reads_the_queue_every_five_seconds(shop: SqsShop) -> None:
    shop.client.clock.ms += 5_001
    cold, warm = shop.send(1), shop.send(1)
    assert within(cold, 1, 3, 3), cold
    assert within(warm, 1, 0, 1), warm


def test_a_fifo_queue_costs_a_record_more_for_each_send(shop: SqsShop) -> None:
    attributes = {"FifoQueue": "true", "ContentBasedDeduplication": "true"}
    shop.url = shop.sqs.CreateQueue(QueueName="orders.fifo", Attributes=attributes)["QueueUrl"]
    shop.sqs.SendMessage(QueueUrl=shop.url, MessageBody="warm", MessageGroupId="g")
    [own] = shop.received()
    shop.ask("DeleteMessage", ReceiptHandle=own)
    for body in orders(CALLS, 200):
        sent = shop.ask("SendMessage", MessageBody=body, MessageGroupId="g")
        assert within(sent, 2, 0, 2), sent
        handles: list[str] = []
        received = shop.cost(lambda: handles.extend(shop.received()))  # noqa: B023
        assert within(received, 1, 3, 3), received
        deleted = shop.ask("DeleteMessageBatch", Entries=_entries(handles))
        assert within(deleted, 1, 0, 1), deleted
    nothing = shop.ask("ReceiveMessage")
    assert within(nothing, 0, 1, 1), nothing
