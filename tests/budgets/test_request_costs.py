"""The cost of a call: of asking, waiting, replying and timing out."""

from __future__ import annotations

from functools import partial
from typing import Any

from chalicelib.core.base.errors import ReplyTimeout
from tests.budgets.shop import CALLS, Shop, within


def ask(shop: Shop, **fields: Any) -> str:
    answer = shop.producer.request("t", {"body": "x" * 200, "wait_ms": 0, **fields})
    correlation_id: str = answer["correlation_id"]
    return correlation_id


class Worker:
    """Pops one request at a time, with the ack of the one before."""

    def __init__(self, shop: Shop) -> None:
        self.api = shop.consumer
        self.message: dict[str, Any] = {}

    def pop(self) -> None:
        ack = [self.message["receipt"]] if self.message else []
        [self.message] = self.api.pop("t", "g", {"ack": ack})["messages"]

    def reply(self, **fields: Any) -> None:
        self.api.reply(self.message["correlation_id"], {"body": "y" * 200, **fields})


def test_a_call_costs_three_writes_and_half_a_read_a_look() -> None:
    shop = Shop()
    worker = Worker(shop)
    for _ in range(CALLS):
        assert within(shop.cost(lambda: ask(shop)), 1, 0, 1)
        assert within(shop.cost(worker.pop), 1, 3, 3)  # a round trip more where a segment ends
        assert within(shop.cost(worker.reply), 1, 0, 1)
        assert within(shop.cost(lambda: shop.producer.get_reply(worker.message["correlation_id"])), 0, 0.5, 1)


def test_a_reply_with_a_receipt_costs_an_ack_more() -> None:
    shop = Shop()
    for number in range(CALLS):
        worker = Worker(shop)
        ask(shop)
        worker.pop()
        cost = shop.cost(lambda: worker.reply(receipt=worker.message["receipt"]))  # noqa: B023
        looks_up_the_name = number == 0
        assert within(cost, 2, looks_up_the_name, 2 + looks_up_the_name), cost


def test_a_timeout_costs_a_write_and_half_a_read_a_look() -> None:
    shop = Shop()
    correlation_id = ask(shop, timeout_ms=1_000)
    looks = shop.cost(lambda: shop.producer.get_reply(correlation_id, {"wait_ms": "999"}))
    assert looks.write_units == 0
    assert looks.read_units == looks.round_trips / 2
    assert 40 <= looks.round_trips <= 45
    shop.clock.ms += 1
    assert within(shop.cost(lambda: _timed_out(shop, correlation_id)), 1, 0.5, 2)
    assert within(shop.cost(lambda: _timed_out(shop, correlation_id)), 0, 0.5, 1)


def test_a_reply_through_the_same_instance_saves_its_caller_a_look() -> None:
    shop = Shop()
    costs = []
    for replier in (shop.producer, shop.consumer):
        correlation_id = ask(shop)
        shop.clock.at(shop.clock.ms + 100, partial(replier.reply, correlation_id, {"body": "y"}))
        costs.append(shop.cost(partial(shop.producer.get_reply, correlation_id, {"wait_ms": "2000"})))
    own, others = costs
    assert own.write_units == others.write_units == 1
    assert own.read_units == others.read_units - 0.5


def test_a_fetch_long_after_the_request_looks_rarely() -> None:
    shop = Shop()
    correlation_id = ask(shop, timeout_ms=60_000)
    shop.clock.ms += 20_000
    cost = shop.cost(lambda: shop.producer.get_reply(correlation_id, {"wait_ms": "1000"}))
    assert within(cost, 0, 3, 6), cost


def _timed_out(shop: Shop, correlation_id: str) -> None:
    try:
        shop.producer.get_reply(correlation_id)
    except ReplyTimeout:
        return
    raise AssertionError("there is a reply")
