"""The cost of messages that move: into a topic for dead ones, and by a move task out of it. Bodies have 200 bytes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from chalicelib import wiring
from chalicelib.doors.sqs.registry import moves_of
from local.memory.meter import Meter
from tests.sqs.client import Sqs
from tests.support.client import Client
from tests.support.orders import orders

ARN = "arn:aws:sqs:us-east-1:000000000000:"
MANY = 50
"""Messages that one transaction moves."""


class Yard:
    """A queue of one Decant queue, and its dead-letter queue, which both have been used. `reads`: the queue reads the
    topic of another one."""

    def __init__(self, reads: bool) -> None:
        self.client = Client()
        self.sqs = Sqs(self.client)
        self.sqs.CreateQueue(QueueName="dead", tags={"decant:queues": "1"})
        self.sqs.CreateQueue(QueueName="news", tags={"decant:queues": "1"})
        policy = json.dumps({"deadLetterTargetArn": f"{ARN}dead", "maxReceiveCount": 1})
        tags = {"decant:topic": "news"} if reads else {"decant:queues": "1"}
        attributes = {"RedrivePolicy": policy, "VisibilityTimeout": "1"}
        self.sqs.CreateQueue(QueueName="orders", Attributes=attributes, tags=tags)
        self.topic = "news" if reads else "orders"
        self.die(1)
        self.start()

    def die(self, count: int) -> Meter:
        """The cost of the move of messages that were received once."""
        api, runtime = self.client.api, self.client.clock
        api.produce(self.topic, {"messages": [{"body": body} for body in orders(count, 200)]})
        assert len(api.pop(self.topic, "orders", {"max_messages": count})["messages"]) == count
        runtime.sleep(2_000)
        before = self.client.store.meter.copy()
        assert api.service.sweeps.revive().done == count
        return self.client.store.meter.since(before)

    def start(self) -> Meter:
        before = self.client.store.meter.copy()
        self.sqs.StartMessageMoveTask(SourceArn=f"{ARN}dead")
        return self.client.store.meter.since(before)


@pytest.fixture
def yard(request: pytest.FixtureRequest) -> Any:
    yield Yard(getattr(request, "param", False))
    wiring.use(None)


@pytest.mark.parametrize(("count", "writes"), [(1, 9), (10, 37), (MANY, 163)])
def test_three_units_move_a_message_into_a_topic(yard: Yard, count: int, writes: int) -> None:
    """And six units the transaction, the decision and the entry that deliver them."""
    assert yard.die(count).write_units <= writes


@pytest.mark.parametrize(("count", "writes"), [(1, 16), (10, 44), (MANY, 170)])
def test_three_units_move_a_message_to_a_queue(yard: Yard, count: int, writes: int) -> None:
    """And thirteen the task, its start and its end included."""
    yard.die(count)
    cost = yard.start()
    assert cost.write_units <= writes
    assert cost.read_units <= 28


@pytest.mark.parametrize("yard", [True], indirect=True)
@pytest.mark.parametrize("count", [1, MANY])
def test_a_message_that_its_topic_still_has_costs_no_unit_more(yard: Yard, count: int) -> None:
    yard.die(count)
    cost = yard.start()
    assert cost.write_units <= 11
    assert cost.read_units <= 22


def test_a_sweep_without_tasks_costs_few_reads(yard: Yard) -> None:
    yard.client.clock.sleep(600_000)
    service = yard.client.api.service
    service.sweeps.move(moves_of(service))
    before = yard.client.store.meter.copy()
    service.sweeps.move(moves_of(service))
    cost = yard.client.store.meter.since(before)
    assert (cost.write_units, cost.read_units) == (0, 2.5)
