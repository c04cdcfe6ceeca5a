"""The cost of transactions, counted as in `test_hot_path`: a topic of 4 queues, warm instances."""

from __future__ import annotations

import pytest

from chalicelib.core.base.limits import HALF_MESSAGES_MAX
from local.memory.meter import Meter
from tests.budgets.shop import Shop, within
from tests.support.orders import orders


@pytest.fixture
def shop() -> Shop:
    """A shop that has seen a transaction, of which nothing is left."""
    shop = Shop()
    commit(shop, begin(shop, 1)[0])
    for _ in range(2):
        shop.ack(shop.pop()[0])
    return shop


def begin(shop: Shop, count: int) -> tuple[str, Meter]:
    shop.clock.ms += 10
    ids: list[str] = []
    messages = [{"body": body, "queue": 0} for body in orders(count, 200)]

    def act() -> None:
        ids.append(shop.producer.begin_transaction("t", {"messages": messages})["transaction_id"])

    cost = shop.cost(act)
    return ids[0], cost


def commit(shop: Shop, transaction_id: str) -> Meter:
    shop.clock.ms += 10
    return shop.cost(lambda: shop.producer.commit_transaction("t", transaction_id))


def show(cost: Meter) -> tuple[float, float, int]:
    return cost.write_units, cost.read_units, cost.round_trips


@pytest.mark.parametrize(("count", "begun", "committed"), [(1, 2, 9), (HALF_MESSAGES_MAX, 4, 107)])
def test_a_transaction_keeps_its_budget(shop: Shop, count: int, begun: int, committed: int) -> None:
    """A begin is a transaction of one item, and a payload where it is large. A commit is one of two items and one for
    each message; then the messages are delivered as delayed ones are."""
    transaction_id, cost = begin(shop, count)
    assert within(cost, begun, 1, 3), show(cost)
    cost = commit(shop, transaction_id)
    assert within(cost, committed, 9, 13), show(cost)


def test_a_rollback_keeps_its_budget(shop: Shop) -> None:
    transaction_id, _ = begin(shop, 1)
    cost = shop.cost(lambda: shop.producer.rollback_transaction("t", transaction_id))
    assert within(cost, 4, 2, 3), show(cost)


def test_a_check_costs_a_write_for_each_transaction_that_it_takes(shop: Shop) -> None:
    for _ in range(5):
        begin(shop, 1)
    assert within(shop.cost(lambda: shop.producer.check_transactions("t")), 0, 2, 2)
    shop.clock.ms += 60_000
    cost = shop.cost(lambda: shop.producer.check_transactions("t"))
    assert within(cost, 5, 2, 3), show(cost)
