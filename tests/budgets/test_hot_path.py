"""The cost of a produce, a pop and an ack: the budget table of the design, row by row, and that cost does not grow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from chalicelib.core.base.limits import KIB, SECOND_MS
from local.memory.meter import Meter
from tests.budgets.shop import CALLS, QUEUES, Shop, backlog, within
from tests.support.instances import instance
from tests.support.orders import noise, orders

# -- producing --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "count", "size", "writes", "round_trips"),
    [
        pytest.param(orders, 1, 200, 1, 1, id="1 x 200 B"),
        pytest.param(noise, 1, 200, 1, 1, id="1 x 200 B of noise"),
        pytest.param(orders, 10, 200, 2, 2, id="10 x 200 B"),
        pytest.param(noise, 10, 200, 3, 2, id="10 x 200 B of noise"),  # 1.6 KB that nothing can compress
        pytest.param(orders, 100, 200, 7, 2, id="100 x 200 B JSON"),
        pytest.param(orders, 100, 1_024, 36, 2, id="100 x 1 KB JSON"),
    ],
)
def test_a_produce_keeps_its_budget(
    make: Callable[[int, int, int], list[str]], count: int, size: int, writes: int, round_trips: int
) -> None:
    shop = Shop()
    costs = [shop.produce(make(count, size, seed)) for seed in range(CALLS)]
    assert [cost for cost in costs if not within(cost, writes, 0, round_trips)] == []


def test_noise_costs_what_it_weighs_and_a_pointer() -> None:
    """Nothing can make base64 of noise smaller than the noise."""
    for count, size in ((100, 200), (100, 1_024)):
        weight = -(-count * size * 3 // 4 // KIB)
        costs = [Shop().produce(noise(count, size, seed)) for seed in range(3)]
        assert [cost for cost in costs if not within(cost, weight + 3, 0, 2)] == []


@pytest.mark.parametrize("make", [orders, noise])
def test_a_produce_with_a_dedup_id_costs_its_record_and_its_append(
    make: Callable[[int, int, int], list[str]],
) -> None:
    shop = Shop()
    for number in range(CALLS):
        cost = shop.produce(make(1, 200, number), dedup_id=f"{number:0128}")
        assert within(cost, 2, 0, 2), cost


def test_a_repeated_dedup_id_costs_its_refusal_and_two_reads() -> None:
    shop = Shop()
    shop.produce(orders(1, 200), dedup_id="x")
    cost = shop.produce(orders(1, 200), dedup_id="x")
    assert within(cost, 1, 2, 3), cost


def test_a_batch_with_dedup_ids_costs_two_units_for_each_and_its_entry() -> None:
    shop = Shop()
    messages = [{"body": body, "dedup_id": body[:100], "queue": 0} for body in orders(100, 200)]
    cost = shop.cost(lambda: shop.producer.produce("t", {"messages": messages}))
    assert within(cost, 2 * 100 + 7, 0, 3), cost


def test_a_key_index_costs_a_unit_per_key_of_an_entry_and_nothing_without() -> None:
    indexed, plain = Shop(), Shop()
    indexed.producer.put_topic("t", {"index_keys": True})
    indexed.clock.ms += 6_000
    indexed.produce(["warm"])
    for keys in (["a"], ["a", "a"], ["a", "b", "c"], [None]):
        messages = [{"body": "x", "key": key, "queue": 0} for key in keys]
        with_index, without = (
            shop.cost(lambda: shop.producer.produce("t", {"messages": messages}))  # noqa: B023
            for shop in (indexed, plain)
        )
        assert with_index.write_units - without.write_units == len({*keys} - {None})
        assert with_index.read_units == without.read_units == 0
        assert with_index.round_trips - without.round_trips == (keys != [None])


def test_a_breaker_costs_one_read_a_second_and_nothing_in_between() -> None:
    """The list of groups, a group's cursors and the ends of 4 logs, each half a unit. The first look, which does not
    know the groups yet, takes a round trip more."""
    shop = Shop()
    shop.producer.put_topic("t", {"max_depth": 1_000})
    first = shop.produce(["a"])
    assert (first.read_units, first.round_trips) == (3 + 1, 4)  # it reads the topic again, too
    plain, looking = Meter(1, 0, 1, 1), Meter(1, 3, 7, 2)
    for _ in range(3):
        assert [shop.produce(["a"]) for _ in range(5)] == [plain] * 5
        shop.clock.ms += SECOND_MS
        assert shop.produce(["a"]) == looking


def test_zones_cost_nothing() -> None:
    near, plain = Shop(), Shop()
    near.producer.put_topic("t", {"zones": {"a": [0], "b": [1]}})
    near.clock.ms += plain.clock.ms - near.clock.ms + 6 * SECOND_MS
    plain.clock.ms = near.clock.ms
    for shop in (near, plain):
        shop.produce(["warm"], queue=0)
        shop.ack(shop.pop()[0])
    assert near.produce(["x"], zone="a") == plain.produce(["x"], queue=0)
    answers: list[object] = []
    pops = [
        shop.cost(lambda: answers.append(shop.consumer.pop("t", "g", {"max_messages": 1, **zone})))  # noqa: B023
        for shop, zone in ((near, {"zone": "a"}), (plain, {}))
    ]
    assert pops[0] == pops[1]
    assert [len(answer["messages"]) for answer in answers] == [1, 1]  # type: ignore[index]


# -- consuming --------------------------------------------------------------------------------------------------------


def test_a_pop_of_one_entry_keeps_its_budget() -> None:
    shop = Shop()
    for seed in range(CALLS):
        shop.produce(orders(10, 200, seed))
        receipts, cost = shop.pop()
        assert len(receipts) == 10
        assert within(cost, 1, 3, 2), cost
        shop.ack(receipts)


def test_a_pop_of_a_payload_keeps_its_budget() -> None:
    shop = Shop()
    for seed in range(CALLS):
        shop.produce(orders(100, 1_024, seed))
        for number in range(10):
            receipts, cost = shop.pop()
            assert len(receipts) == 10
            payload_units = 36 / 4 / 2 if number == 0 else 0
            assert within(cost, 1, 3 + payload_units, 3 if number == 0 else 2), cost
            shop.ack(receipts)


@pytest.mark.parametrize(
    "make",
    [orders, noise],
)
@pytest.mark.parametrize("queue", [0, None])
def test_a_pop_of_messages_produced_one_by_one_keeps_its_budget(
    make: Callable[[int, int, int], list[str]], queue: int | None
) -> None:
    """The first pop of a backlog goes from one segment to the next, and takes a round trip more for that."""
    shop = Shop()
    for seed in range(5):
        for body in make(100, 200, seed):
            shop.produce([body], queue=queue)
        costs = []
        for _ in range(10):
            receipts, cost = shop.pop()
            assert len(receipts) == 10
            costs.append(cost)
            shop.ack(receipts)
        assert within(costs[0], 1, 3, 3), costs
        assert [cost for cost in costs[1:] if not within(cost, 1, 3, 2)] == []


def test_a_filled_pop_costs_a_write_for_each_queue_and_no_more_reads() -> None:
    shop, plain = Shop(), Shop()
    for each in (shop, plain):
        for queue in range(QUEUES):
            each.produce(orders(2, 200), queue=queue)
    _, cost = plain.pop()
    answers: list[dict[str, Any]] = []
    filled = shop.cost(lambda: answers.append(shop.consumer.pop("t", "g", {"max_messages": 7, "fill": True})))
    assert len(answers[0]["messages"]) == 7
    assert filled == Meter(QUEUES, cost.read_units, cost.requests + QUEUES - 1, 1 + QUEUES)


def test_a_pop_of_a_group_ordered_by_key_costs_no_more() -> None:
    shop = Shop(ordered="key")
    for seed in range(CALLS):
        for queue in range(QUEUES):
            shop.produce(orders(10, 200, seed), queue=queue, key="k")
        for _ in range(QUEUES):
            receipts, cost = shop.pop()
            assert len(receipts) == 10
            assert within(cost, 1, 3, 2), cost
            shop.ack(receipts)


def test_looking_past_a_key_that_is_out_costs_no_write() -> None:
    shop = Shop(ordered="key")
    shop.produce(["first"], queue=0, key="k")
    assert len(shop.pop()[0]) == 1
    shop.produce(orders(30, 200), queue=0, key="k")
    shop.pop()
    for _ in range(3):
        receipts, cost = shop.pop()
        assert (receipts, cost.write_units) == ([], 0)
        assert within(cost, 0, 2.5, 1), cost


def test_a_pop_of_nothing_keeps_its_budget() -> None:
    shop = Shop()
    for _ in range(3):
        assert shop.pop() == ([], Meter(0, 2.5, 5, 1))


def test_an_ack_of_a_whole_pop_costs_one_unit() -> None:
    shop = Shop()
    shop.produce(orders(100, 200))
    for _ in range(10):
        assert shop.ack(shop.pop()[0]) == Meter(1, 0, 1, 1)


def test_an_ack_by_an_instance_that_did_not_pop_costs_no_more() -> None:
    shop = Shop()
    shop.produce(orders(10, 200))
    receipts, _ = shop.pop()
    stranger = instance(shop.store, shop.clock, 3)
    stranger.produce("t", {"messages": [{"body": "it knows the topic"}]})
    assert shop.cost(lambda: stranger.ack("t", "g", {"receipts": receipts})) == Meter(1, 0, 1, 1)


@pytest.mark.parametrize("rule", ["receipt", "delivery", "message"])
def test_an_extension_and_an_ack_cost_a_unit_by_every_rule(rule: str) -> None:
    shop = Shop()
    shop.producer.put_group("t", "g", {"settle_by": rule})
    shop.produce(orders(10, 200))
    receipts, _ = shop.pop()
    asked = {"receipts": receipts, "invisible_ms": 90_000}
    extended: list[str] = []

    def extend() -> None:
        extended.extend(each["new_receipt"] for each in shop.consumer.extend("t", "g", asked)["extended"])

    assert shop.cost(extend) == Meter(1, 0, 1, 1)
    assert (extended == receipts) == (rule != "receipt")
    shop.clock.sleep(60_000)
    stranger = instance(shop.store, shop.clock, 3)
    stranger.produce("t", {"messages": [{"body": "it knows the topic"}]})
    assert shop.cost(lambda: stranger.ack("t", "g", {"receipts": extended})) == Meter(1, 0, 1, 1)


def test_an_ack_that_rides_in_the_next_pop_is_free() -> None:
    shop, other = Shop(), Shop()
    for each in (shop, other):
        each.produce(orders(200, 200), queue=0)
    riding: list[str] = []
    for _ in range(20):
        receipts, cost = shop.pop()
        shop.ack(receipts)
        riding, cost_with_ack = other.pop(ack=riding)
        assert len(receipts) == len(riding) == 10
        assert cost_with_ack == cost


def test_a_broadcast_pop_costs_half_a_read_unit_more_with_any_consumers() -> None:
    costs = []
    for consumers in (0, 200):
        shop = Shop()
        shop.producer.put_group("t", "all", {"mode": "broadcast"})
        for number in range(consumers):
            shop.consumer.pop("t", "all", {"consumer_id": f"c{number}"})
        asked = {"consumer_id": "ann", "max_messages": 10}
        for _ in range(QUEUES + 1):
            shop.consumer.pop("t", "all", asked)
        shop.produce(orders(10, 200))
        costs.append(shop.cost(lambda: shop.consumer.pop("t", "all", asked)))  # noqa: B023 - called at once
        shop.pop()
        assert within(costs[-1], 1, 3.5, 2)
        assert within(shop.cost(lambda: shop.consumer.pop("t", "all", asked)), 0, 3, 1)  # noqa: B023
    assert costs[0] == costs[1]


# -- growth -----------------------------------------------------------------------------------------------------------


def test_the_cost_of_a_pop_does_not_depend_on_the_backlog() -> None:
    costs = []
    for count in (10, 100_000):
        shop = backlog(count)
        costs.append(shop.pop())
    assert [len(receipts) for receipts, _ in costs] == [10, 10]
    assert costs[0][1] == costs[1][1]


def test_the_cost_of_a_pop_does_not_depend_on_how_much_was_consumed() -> None:
    shop = backlog(30_000)
    costs = []
    for _ in range(100):
        receipts, cost = shop.pop(most=256)
        costs.append(cost)
        shop.ack(receipts)
    assert costs[-1].write_units == costs[0].write_units == 1
    assert max(cost.read_units for cost in costs[50:]) <= max(cost.read_units for cost in costs[:50])


def test_the_cost_of_a_pop_does_not_depend_on_the_number_of_groups() -> None:
    alone = backlog(10).pop()[1]
    crowded = backlog(10, [*(f"other-{number}" for number in range(49)), "g"]).pop()[1]
    assert alone == crowded


def test_the_cost_of_a_produce_depends_on_neither_groups_nor_backlog() -> None:
    shops = (backlog(0), backlog(10, [f"g{number}" for number in range(49)] + ["g"]), backlog(50_000))
    costs = [[shop.produce(orders(10, 200, seed)) for seed in range(5)] for shop in shops]
    assert costs[0] == costs[1] == costs[2]
