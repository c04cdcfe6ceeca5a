"""The cost of a push, counted as in `test_hot_path`: a topic of 4 queues, warm instances."""

from __future__ import annotations

import pytest

from chalicelib.api import Api
from chalicelib.service import Service
from local.memory.meter import Meter
from tests.budgets.shop import Shop
from tests.support.consumer import Consumer, failing


class PushingShop(Shop):
    """A shop with a pushed group and an instance that runs the push, which has called the consumer before."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = Consumer()
        self.producer.put_group("t", "g", {"push": {"url": "https://a.example/"}})
        self.producer.put_group("t", "popped", {})  # costs the push nothing
        self.clock.ms += 6_000
        self.pusher = Api(Service(self.store, self.clock.runtime(3), outside=self.calls.outside()))
        self.produce(["warm"])
        self.run()

    def run(self, is_staying: bool = False) -> Meter:
        return self.cost(lambda: self.pusher.service.pushing.run("t", is_staying))


def test_a_produce_in_a_topic_with_a_pushed_group_costs_no_more() -> None:
    shop = PushingShop()
    cost = shop.produce(["a"])
    assert (cost.write_units, cost.read_units, cost.round_trips) == (1, 0, 1)


def test_a_single_message_costs_four_writes() -> None:
    """A slot, the lease, the ack, and the slot again."""
    shop = PushingShop()
    shop.produce(["a"])
    cost = shop.run()
    assert len(shop.calls.calls) == 2
    assert cost.write_units == 4
    assert cost.read_units <= 30


def test_each_further_call_costs_a_write_since_acks_ride() -> None:
    shop = PushingShop()
    shop.produce([str(number) for number in range(100)], queue=0)
    cost = shop.run()
    assert len(shop.calls.calls) == 11
    assert cost.write_units == 13


def test_a_run_that_finds_nothing_writes_nothing() -> None:
    shop = PushingShop()
    cost = shop.run(is_staying=True)
    assert (cost.write_units, cost.read_units <= 7) == (0, True)
    cost = shop.run()
    assert (cost.write_units, cost.read_units <= 22) == (0, True)


@pytest.mark.parametrize("ordered", ["key", True])
def test_a_run_writes_hardly_anything_while_a_message_waits_behind_another(ordered: bool | str) -> None:
    """The second may not die, since the topic for dead messages is gone, nor come before the first."""
    shop = PushingShop()
    shop.producer.put_topic("dead", {"queues": 1})
    settings = {"ordered": ordered, "max_attempts": 1, "dead_letters": {"topic": "dead"}}
    shop.producer.put_group("t", "ordered", {"push": {"url": "https://a.example/"}, **settings})
    shop.producer.delete_topic("dead")
    shop.clock.ms += 6_000
    shop.run()
    delays = {"first": 600_000, "second": 0}
    shop.calls.react = lambda call: failing(
        *({"itemIdentifier": each["message_id"], "delay_ms": delays.get(each["body"], 0)} for each in call.messages)
    )
    shop.producer.produce("t", {"messages": [{"body": body, "key": "k", "queue": 0} for body in delays]})
    shop.run()
    shop.clock.ms += 10_000
    began_ms = shop.clock.ms
    cost = shop.run(is_staying=True)
    assert (cost.write_units <= 8, shop.clock.ms - began_ms <= 1_500) == (True, True)
