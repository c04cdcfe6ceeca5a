"""The cost of delayed messages, counted as in `test_hot_path`: a topic of 4 queues, warm instances."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from chalicelib.core.delays.decision import PROMOTED_MAX
from local.memory.meter import Meter
from tests.budgets.shop import QUEUES, Shop, within
from tests.support.orders import noise, orders

LONG_MS, SHORT_MS = 3_600_000, 1_000


def delaying_shop() -> Shop:
    """A shop that has seen a delayed message, of which nothing is left."""
    shop = Shop()
    shop.produce(["warm"], delay_ms=1)
    shop.clock.ms += 10
    for _ in range(2):
        shop.ack(shop.pop(consumer=shop.producer)[0])
    shop.clock.ms += 6_000
    shop.pop()
    shop.producer.get_topic("t")
    return shop


def show(cost: Meter) -> tuple[float, float, int]:
    return cost.write_units, cost.read_units, cost.round_trips


@pytest.mark.parametrize(
    ("delay_ms", "count", "writes"), [(LONG_MS, 1, 1), (LONG_MS, 10, 10), (SHORT_MS, 1, 2), (SHORT_MS, 10, 20)]
)
def test_a_delayed_produce_keeps_its_budget(delay_ms: int, count: int, writes: int) -> None:
    shop = delaying_shop()
    cost = shop.produce(orders(count, 200), delay_ms=delay_ms)
    assert within(cost, writes, 1, 2), show(cost)


@pytest.mark.parametrize(
    ("make", "size", "count", "writes"),
    [
        pytest.param(orders, 20, 1, 2, id="1 x 20 B"),
        pytest.param(orders, 200, 1, 2, id="1 x 200 B"),
        pytest.param(orders, 200, PROMOTED_MAX, 5, id="32 x 200 B"),
        pytest.param(noise, 3_000, 1, 2, id="1 x 3 KB"),
    ],
)
def test_due_messages_are_delivered_within_their_budget(
    make: Callable[[int, int], list[str]], size: int, count: int, writes: int
) -> None:
    """A decision, an append, a payload where it does not fit, and a removal of each message: `writes` without those."""
    shop = delaying_shop()
    shop.produce(make(count, size), queue=0, delay_ms=LONG_MS)
    shop.clock.ms += LONG_MS
    shop.producer.produce("t", {"messages": [{"body": "w", "queue": 0}]})
    topic = shop.producer.service.env.catalogue.topic("t")
    cost = shop.cost(lambda: shop.producer.service.delays.promoter.promote(topic, 0))
    assert within(cost, writes + count, 2 + count, 6), show(cost)
    assert shop.cost(lambda: shop.producer.service.delays.promoter.promote(topic, 0)).write_units == 0


def test_a_pop_where_nothing_is_due_looks_for_it_in_the_same_round_trip() -> None:
    plain, delaying = Shop(), delaying_shop()
    for shop in (plain, delaying):
        shop.produce(["a"], queue=0)
    costs = [shop.pop()[1] for shop in (plain, delaying)]
    assert costs[1].round_trips == costs[0].round_trips
    assert costs[1].write_units == costs[0].write_units == 1
    assert costs[1].read_units <= costs[0].read_units + QUEUES / 2


def test_what_a_delivery_or_a_list_costs_does_not_depend_on_how_much_waits() -> None:
    costs = []
    for count in (250, 3_000):
        shop = delaying_shop()
        topic = shop.producer.service.env.catalogue.topic("t")
        for _ in range(0, count, 250):
            shop.produce(["before"] * 250, queue=0, delay_ms=1)
            shop.produce(["far"] * 250, queue=0, delay_ms=100 * LONG_MS)
        shop.clock.ms += 1_000
        promote = partial(shop.producer.service.delays.promoter.promote, topic, 0)
        costs.append([shop.cost(promote), shop.cost(lambda: shop.producer.list_delayed("t", {"limit": "10"}))])  # noqa: B023
        while promote():
            pass
        shop.produce(["now"], queue=0, delay_ms=1)
        shop.clock.ms += 10
        costs[-1].append(shop.cost(promote))
    assert [show(cost) for cost in costs[1]] == [show(cost) for cost in costs[0]]


def test_a_count_reads_what_waits_up_to_its_limit_and_nothing_else() -> None:
    plain, shop = Shop(), delaying_shop()
    assert within(plain.cost(lambda: plain.producer.count_delayed("t")), 0, 1, 1)
    assert within(shop.cost(lambda: shop.producer.count_delayed("t")), 0, 1 + 2 * QUEUES, 3)
    for _ in range(8):
        shop.produce(["far"] * 250, queue=0, delay_ms=LONG_MS)
    cost = shop.cost(lambda: shop.producer.count_delayed("t"))
    assert within(cost, 0, 1 + 2 * QUEUES + 1_000 / 20, 3), show(cost)
