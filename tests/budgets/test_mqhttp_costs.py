"""The cost of the calls of MQ clients, on a topic of 4 queues and a warm instance."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from chalicelib import wiring
from local.memory.meter import Meter
from tests.budgets.shop import CALLS, within
from tests.mqhttp.client import Mq
from tests.support.client import Client
from tests.support.orders import orders


class MqShop:
    """A topic and a group that have been used."""

    def __init__(self) -> None:
        self.client = Client()
        self.topic = self.client.topic("orders", queues=4)
        self.topic.group("billing")
        self.mq = Mq(self.client)
        for queue in range(4):
            self.topic.produce("warm", queue=queue)
        while taken := self.mq.consume():
            self.mq.delete(*(each["ReceiptHandle"] for each in taken))

    def cost(self, act: Callable[[], Any]) -> Meter:
        self.client.clock.ms += 10
        before = self.client.store.meter.copy()
        act()
        return self.client.store.meter.since(before)


@pytest.fixture
def shop() -> Iterator[MqShop]:
    yield MqShop()
    wiring.use(None)


def test_a_publish_costs_what_a_produce_costs(shop: MqShop) -> None:
    [body] = orders(1, 200)
    costs = [shop.cost(lambda: shop.mq.publish(body, "paid", a="b")) for _ in range(CALLS)]
    assert [cost for cost in costs if not within(cost, 1, 0, 1)] == []


@pytest.mark.parametrize("parameters", [{}, {"tag": "paid"}])
def test_a_consume_and_an_ack_cost_what_a_pop_and_an_ack_cost(shop: MqShop, parameters: Any) -> None:
    shop.mq.consume(**parameters)  # the first call with a tag sets the filter
    shop.mq.publish("a", "paid")
    handles: list[str] = []
    cost = shop.cost(lambda: handles.extend(each["ReceiptHandle"] for each in shop.mq.consume(**parameters)))
    assert len(handles) == 1
    assert within(cost, 1, 3, 3), cost
    cost = shop.cost(lambda: shop.mq.delete(*handles))
    assert within(cost, 1, 0, 1), cost


def test_a_consume_of_nothing_costs_its_reads(shop: MqShop) -> None:
    cost = shop.cost(lambda: shop.mq.consume())
    assert within(cost, 0, 2.5, 1), cost


def test_the_first_tag_costs_one_write(shop: MqShop) -> None:
    cost = shop.cost(lambda: shop.mq.consume(tag="paid"))
    assert cost.write_units == 1
