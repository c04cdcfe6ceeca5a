"""What each operation may cost: the budget table of the design, row by row, and how cost grows (it does not).

Counted by the memory store's meter, on warm instances, with a topic of 4 queues and one group. That the meter counts as
DynamoDB does is checked against an emulator's own accounting.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mypy_boto3_dynamodb import DynamoDBClient

from chalicelib.api import Api
from chalicelib.base.limits import KIB
from chalicelib.base.runtime import Runtime, system
from chalicelib.service import build
from chalicelib.store import Keys, Outcome, Range, Read
from chalicelib.store.dynamodb import table
from chalicelib.store.dynamodb.store import DynamoStore
from chalicelib.store.memory import MemoryStore
from chalicelib.store.meter import Meter
from chalicelib.table.sizes import item_bytes, read_units, write_units
from chalicelib.table.writes import Item, Key, Write
from tests import emulators
from tests.instances import SIGNING_KEY, Clock, instance
from tests.orders import noise, orders
from tests.simulation.scheduler import Scheduler

T = TypeVar("T")

QUEUES = 4
CALLS = 20
"""How often each produce is repeated: no call may cost more than the budget, wherever segments end."""


class Shop:
    """A topic, a group, a producer and a consumer, each a warm instance of its own."""

    def __init__(self, groups: Sequence[str] = ("g",)) -> None:
        self.store = MemoryStore()
        self.clock = Clock()
        self.producer = instance(self.store, self.clock, 1)
        self.consumer = instance(self.store, self.clock, 2)
        self.producer.put_topic("t", {"queues": QUEUES})
        for group in groups:
            self.producer.put_group("t", group, {})
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


PRODUCERS = 16
ANSWER_MS = 6
PACE_SECONDS = 3
PACE_PER_SECOND = 400
PACE_UNITS = 3

# -- the messages -----------------------------------------------------------------------------------------------------


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


def backlog(count: int, groups: Sequence[str] = ("g",)) -> Shop:
    shop = Shop(groups)
    while count:
        shop.produce(["a message"] * min(count, 250), queue=0)
        count -= min(count, 250)
    return shop


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


# -- contention -------------------------------------------------------------------------------------------------------


class DistantStore:
    """A memory store some virtual milliseconds away. Each request is applied on the way, in no particular order."""

    keeps_blobs = False

    def __init__(self, inner: MemoryStore, scheduler: Scheduler, chance: Random, jitter_ms: int) -> None:
        self._inner = inner
        self._scheduler = scheduler
        self._chance = chance
        self._jitter_ms = jitter_ms

    def read(self, reads: Sequence[Read]) -> list[list[Item]]:
        return self._far(lambda: self._inner.read(reads))

    def write(self, write: Write) -> Item:
        return self._far(lambda: self._inner.write(write))

    def write_each(self, writes: Sequence[Write]) -> list[Outcome]:
        return self._far(lambda: self._inner.write_each(writes))

    def write_together(self, writes: Sequence[Write]) -> None:
        self._far(lambda: self._inner.write_together(writes))

    def put_all(self, items: Sequence[Item]) -> None:
        self._far(lambda: self._inner.put_all(items))

    def remove_all(self, keys: Sequence[Key]) -> None:
        self._far(lambda: self._inner.remove_all(keys))

    def put_blob(self, name: str, data: bytes) -> None:
        raise AssertionError("no blobs here")

    def get_blob(self, name: str) -> bytes:
        raise AssertionError("no blobs here")

    def remove_blobs(self, names: Sequence[str]) -> None:
        assert not names

    def _far(self, apply: Callable[[], T]) -> T:
        travel_ms = ANSWER_MS + self._chance.randint(-self._jitter_ms, self._jitter_ms)
        self._scheduler.sleep(travel_ms // 2)
        try:
            return apply()
        finally:
            self._scheduler.sleep(travel_ms - travel_ms // 2)


@pytest.mark.parametrize(("seed", "jitter_ms"), [(0, 0), (1, 1), (2, 3)])
def test_producers_on_one_keyed_queue_keep_pace(seed: int, jitter_ms: int) -> None:
    """Each in an instance of its own, one message of 200 B after the other, all with one key: in virtual time."""
    chance = Random(seed)
    scheduler = Scheduler(chance)
    store = MemoryStore()
    bodies = orders(PRODUCERS, 200, seed)
    warm, ends = scheduler.now + 1_000, scheduler.now + 1_000 + PACE_SECONDS * 1_000
    done: list[tuple[int, Meter]] = []

    def produce(number: int) -> None:
        runtime = Runtime(lambda: scheduler.now, scheduler.sleep, chance.randbytes, lambda: scheduler.now)
        api = Api(build(DistantStore(store, scheduler, chance, jitter_ms), runtime, SIGNING_KEY))
        while scheduler.now < ends:
            api.produce("t", {"messages": [{"body": bodies[number], "key": "one"}]})
            done.append((scheduler.now, store.meter.copy()))

    instance(store, Clock()).put_topic("t", {"queues": QUEUES})
    for number in range(PRODUCERS):
        scheduler.spawn(lambda number=number: produce(number), chance.randrange(50))  # type: ignore[misc]
    scheduler.run()
    metered = [meter for instant, meter in done if warm <= instant < ends]
    cost = metered[-1].since(metered[0])
    assert len(metered) / PACE_SECONDS >= PACE_PER_SECOND
    assert (cost.write_units + cost.read_units) / len(metered) <= PACE_UNITS


# -- the meter --------------------------------------------------------------------------------------------------------


class Bill:
    """What an emulator says that requests consumed. It says nothing of a request that it refuses."""

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
    table.ensure(client, "budgets")
    return DynamoStore(client, "budgets", system()), Bill(client)


def script(api: Api, clock: Clock) -> Iterator[str]:
    """A day in the life of a topic: everything that costs, and nothing that is refused. Yields after each operation."""
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
    for _ in range(12):
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
    api.reset("t", "g", {"to": {"at_ms": clock.ms - 100}})
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
