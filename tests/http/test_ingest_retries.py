"""Whatever the store does, each record of an event ends in one way, and keys keep their order through all retries."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app import ingest
from chalicelib import wiring
from chalicelib.core.base.errors import StoreUnavailable
from chalicelib.doors.ingest.delivery import RecordsNotStored
from tests.support import aws_events as aws
from tests.support.client import Client, Json, Topic
from tests.support.troubled_store import TroubledStore, unavailable

ROUNDS = 6

Plan = list[tuple[str, bool]]
"""The key of each record, and whether it can be stored."""

SOURCES: dict[str, Callable[[str, int, str], Json]] = {
    "sqs": lambda body, number, key: {**aws.sqs(body, number), "key": key},
    "fifo": aws.fifo,
    "kinesis": lambda body, number, key: aws.kinesis(body.encode(), number, key),
    "s3": lambda body, number, key: {**aws.s3(key, number), "content": body},
}
IN_ORDER = ("fifo", "kinesis")

goods = st.sampled_from([True, True, True, False])
plans = st.lists(st.tuples(st.sampled_from("ab"), goods), min_size=1, max_size=12)
faults = st.lists(
    st.sampled_from(["", "", "throttled", "lost", "killed before", "killed after"]), min_size=12, max_size=12
)


@pytest.fixture(autouse=True, scope="module")
def setting() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        rules = [{"topic": "orders", "source": "s3", "body": "content"}, {"topic": "orders"}]
        patch.setenv("DECANT_INGEST", json.dumps(rules))
        patch.setenv("DECANT_INGEST_REJECTS", "rejects")
        patch.setattr("chalicelib.doors.ingest.delivery.BATCH_MESSAGES_MAX", 3)
        yield
    wiring.use(None)


class Killed(BaseException):
    """The function's instance is gone."""


class World:
    """A source, an event of it, and a store that fails as told."""

    def __init__(self, source: str, plan: Plan, faults: list[str]) -> None:
        self.store = TroubledStore()
        self.client = self.instance = Client(self.store)
        self.orders, self.rejects = self.client.topic("orders", queues=2), self.client.topic("rejects")
        self.is_in_order = source in IN_ORDER
        self.reports_first, self.is_asynchronous = source == "kinesis", source == "s3"
        self.keys = {str(number): key for number, (key, _) in enumerate(plan)}
        self.bad = {str(number) for number, (_, is_good) in enumerate(plan) if not is_good}
        self.records = [
            SOURCES[source](str(number) if is_good else "", number, key) for number, (key, is_good) in enumerate(plan)
        ]
        self._faults = iter(faults)

    def begin_trouble(self) -> None:
        fault = ""

        def before(verb: str, _about: Any) -> Exception | None:
            nonlocal fault
            fault = next(self._faults, "") if verb != "read" else ""
            if fault == "killed before":
                raise Killed
            return StoreUnavailable("throttled") if fault == "throttled" else None

        def after(_verb: str, _about: Any) -> Exception | None:
            if fault == "killed after":
                raise Killed
            return StoreUnavailable("lost", outcome="unknown") if fault == "lost" else None

        self.store.before, self.store.after = before, after

    def end_trouble(self) -> None:
        self.store.before = self.store.after = unavailable()

    def deliver(self, pending: list[Json]) -> list[Json]:
        """One invocation of a fresh instance. Which records the source gives again."""
        self.instance = self.instance.another()
        wiring.use(self.instance.api)
        try:
            answer = ingest(aws.event(*pending), aws.Context())
        except RecordsNotStored:
            assert self.is_asynchronous
            return pending
        except Killed:
            return pending
        reported = [failure["itemIdentifier"] for failure in answer["batchItemFailures"]]
        again = [record for record in pending if identifier(record) in reported]
        assert len(again) == len(reported)
        return pending[pending.index(again[0]) :] if again and self.reports_first else again

    def stored(self, topic: Topic) -> list[str]:
        """The numbers of the records in a topic, as they are read, queue by queue."""
        wiring.use(self.client.api)
        queues = range(topic.details()["queues"])
        messages = [message for queue in queues for message in topic.read(queue=queue, limit=1_000)["messages"]]
        ids = [message["properties"]["aws_id"] for message in messages]
        numbers = {identifier(record): str(number) for number, record in enumerate(self.records)}
        return [next(numbers[known] for known in numbers if known in given_id) for given_id in ids]


def identifier(record: Json) -> str:
    number: str = record.get("messageId") or record.get("kinesis", {}).get("sequenceNumber") or ""
    return number or record["s3"]["object"]["sequencer"]


@settings(max_examples=40)
@given(st.sampled_from(sorted(SOURCES)), plans, faults)
def test_every_record_ends_in_one_way_and_keys_keep_their_order(source: str, plan: Plan, faults: list[str]) -> None:
    world = World(source, plan, faults)
    pending = world.records
    for _ in range(ROUNDS):
        world.begin_trouble()
        pending = world.deliver(pending) if pending else []
        world.end_trouble()
        done = {*world.stored(world.orders), *world.stored(world.rejects)}
        waiting = {str(world.records.index(record)) for record in pending}
        assert done | waiting == world.keys.keys()
    if pending:
        assert world.deliver(pending) == []

    orders, rejects = world.stored(world.orders), world.stored(world.rejects)
    assert sorted(orders) == sorted(world.keys.keys() - world.bad)
    assert sorted(rejects) == sorted(world.bad)
    if world.is_in_order:
        for key in "ab":
            of_key = [int(number) for number in orders if world.keys[number] == key]
            assert of_key == sorted(of_key)
