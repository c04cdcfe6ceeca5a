"""The cost of many retries and dead letters."""

from __future__ import annotations

from functools import partial

import pytest

from tests.budgets.shop import Shop, backlog, within
from tests.support.instances import instance

HOUR_MS = 3_600_000


def nacked(count: int) -> tuple[Shop, float]:
    """A shop with so many retries in one queue, and what the last hundred nacks cost, each, in write units."""
    shop = backlog(count)
    spent: list[float] = []
    while len(spent) < count:
        for receipt in shop.pop(most=50)[0]:
            nack = {"receipts": [receipt], "delay_ms": HOUR_MS}
            spent.append(shop.cost(partial(shop.consumer.nack, "t", "g", nack)).write_units)
            shop.clock.ms += 1
    return shop, sum(spent[-100:]) / 100


@pytest.mark.parametrize("count", [200, 2_000])
def test_a_pop_beside_many_retries_and_a_nack_keep_their_budget(count: int) -> None:
    shop, units = nacked(count)
    assert units <= 12
    shop.produce(["new"], queue=0)
    receipts, cost = shop.pop()
    assert len(receipts) == 1
    assert cost.round_trips <= 3  # one may be spent on forgetting witnesses
    assert cost.write_units <= 11


def test_a_page_of_dead_messages_is_read_in_stretches_of_the_log() -> None:
    shop = Shop()
    for queue in (0, 1):
        shop.produce(["a message"] * 100, queue=queue)
        receipts, _ = shop.pop(most=100)
        shop.consumer.bury("t", "g", {"receipts": receipts[::2]})
    listed = shop.cost(lambda: instance(shop.store, shop.clock, 3).list_dead("t", "g", {}))
    assert within(listed, writes=0, reads=8, round_trips=4)


def test_redriving_neighbours_costs_two_units_a_letter_and_little_more() -> None:
    shop = backlog(90)
    receipts, _ = shop.pop(most=90)
    buried = shop.cost(lambda: shop.consumer.bury("t", "g", {"receipts": receipts}))
    assert buried.read_units <= 7  # no letter is looked for: this queue was never reset
    redriven = shop.cost(lambda: shop.consumer.redrive_dead("t", "g", {}))
    assert redriven.write_units <= 2 * (90 + 1)
    assert redriven.read_units <= 2 * 4 + 20
