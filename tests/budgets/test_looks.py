"""A pop costs, in topics with many queues, half a read unit for each page of cursors and for each queue that it
looks at."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.looks import looks_per_second
from chalicelib.api import Api
from chalicelib.core.base.limits import SECOND_MS
from local.memory.meter import Meter
from local.memory.store import MemoryStore
from tests.support.clock import Clock
from tests.support.instances import instance

POP_UNITS = 2.5
NONE_UNITS = {4: 2.5, 16: 9.0, 128: 69.0}
"""The read units of a pop that finds nothing, by queues: looks at 4, 16 and 64 queues, and at the rest."""


class Wide:
    """A topic with this many queues, a group that has all its cursors, and a warm consumer. Calls do not come at once:
    the settings of the group are as old as those of a busy consumer."""

    def __init__(self, queues: int, **settings: Any) -> None:
        self.store, self.clock, self.queues = MemoryStore(), Clock(), queues
        self.producer, self.consumer = instance(self.store, self.clock, 1), instance(self.store, self.clock, 2)
        self.producer.put_topic("t", {"queues": queues})
        self.producer.put_group("t", "g", settings)
        self.fill_up(1)
        while receipts := self.pop({"max_messages": 10})[0]:
            self.consumer.ack("t", "g", {"receipts": receipts})

    def fill_up(self, each: int) -> None:
        for queue in range(self.queues):
            self.producer.produce("t", {"messages": [{"body": "a", "queue": queue}] * each})

    def pop(self, ask: dict[str, Any], consumer: Api | None = None) -> tuple[list[str], Meter]:
        self.clock.ms += 20
        before = self.store.meter.copy()
        answer = (consumer or self.consumer).pop("t", "g", ask)
        return [each["receipt"] for each in answer["messages"]], self.store.meter.since(before)


@pytest.mark.parametrize("queues", [4, 16, 128])
def test_a_pop_costs_the_same_however_many_queues_there_are(queues: int) -> None:
    """In a round trip for its look and one for its claim. A consumer that pops less often than twice a second reads the
    settings of the group too, where they are in another page."""
    wide = Wide(queues)
    wide.fill_up(10)
    wide.pop({"max_messages": 10})
    costs = [wide.pop({"max_messages": 10})[1] for _ in range(3)]
    assert {(cost.write_units, cost.read_units, cost.round_trips) for cost in costs} == {(1, POP_UNITS, 2)}
    wide.clock.ms += SECOND_MS
    assert wide.pop({"max_messages": 10})[1].read_units <= POP_UNITS + 0.5


@pytest.mark.parametrize("queues", NONE_UNITS)
def test_a_pop_that_finds_nothing_has_looked_at_all_queues(queues: int) -> None:
    wide = Wide(queues)
    wide.pop({})
    _, cost = wide.pop({})
    assert cost.write_units == 0
    assert NONE_UNITS[queues] - 0.5 <= cost.read_units <= NONE_UNITS[queues]  # the rest may begin within a page


def test_a_pop_with_fill_costs_half_a_unit_a_queue() -> None:
    wide = Wide(16)
    wide.fill_up(1)
    receipts, cost = wide.pop({"max_messages": 16, "fill": True})
    assert (len(receipts), cost.write_units, cost.read_units) == (16, 16, 0.5 + 16 / 2)


@pytest.mark.parametrize("queues", [16, 128])
def test_a_backlog_in_one_queue_is_found_at_once_by_whoever_takes_from_it(queues: int) -> None:
    """And now and then looked for elsewhere, if the queues are in several pages."""
    wide = Wide(queues)
    wide.producer.produce("t", {"messages": [{"body": "a", "queue": 7}] * 256})
    wide.pop({"max_messages": 4})
    costs = [wide.pop({"max_messages": 4})[1].read_units for _ in range(32)]
    assert sorted(costs)[len(costs) // 2] == POP_UNITS


def test_a_lease_that_ran_out_costs_a_look_at_its_queue() -> None:
    """The cursors of its page show it. As ever, the messages are located anew."""
    wide = Wide(16)
    wide.producer.produce("t", {"messages": [{"body": "a", "queue": 7}]})
    wide.pop({"invisible_ms": 0})
    costs = [wide.pop({"invisible_ms": 0})[1].read_units for _ in range(8)]
    assert {*costs} <= {POP_UNITS + 0.5, POP_UNITS + 1}


@pytest.mark.parametrize(("queues", "looks"), [(1, 6_000), (4, 6_000), (16, 19_200)])
def test_a_topic_carries_looks_in_proportion_to_its_queues(queues: int, looks: int) -> None:
    """A look reads the ends of four logs at half a unit each, and a partition serves 3,000 units a second: 1,500 looks
    for each queue, less by what 256 looks at 16 queues are uneven."""
    assert looks_per_second(queues) >= looks
