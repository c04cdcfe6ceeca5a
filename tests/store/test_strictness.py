"""The service never sends DynamoDB a request that it would refuse, for any request of a client: on a memory store as
strict as it, see `strict`."""

from __future__ import annotations

import base64
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chalicelib.api import Api
from chalicelib.core.base.errors import InvalidField, MessageNotFound
from chalicelib.core.base.limits import BATCH_MESSAGES_MAX
from tests.store.strict import StrictStore
from tests.support.clock import Clock
from tests.support.instances import instance

REFUSED_PLACES = ["\x80", "é", "\x7f", "\U0010ffff", "x" * 1_100]
REFUSED_IDS = ["-1", "f" * 900, "f" * 4_000]


class Queue:
    """A topic of one queue with a group, and instances that use it."""

    def __init__(self, **settings: Any) -> None:
        self.store = StrictStore()
        self.clock = Clock()
        self.api = self.fresh()
        self.api.put_topic("t", {"queues": 1})
        self.api.put_group("t", "g", settings)

    def fresh(self, seed: int = 0) -> Api:
        return instance(self.store, self.clock, seed)

    def produce(self, count: int) -> None:
        self.api.produce("t", {"messages": [{"body": str(number)} for number in range(count)]})

    def pop(self, **ask: Any) -> list[dict[str, Any]]:
        messages: list[dict[str, Any]] = self.api.pop("t", "g", ask)["messages"]
        return messages

    def singly(self, count: int, **ask: Any) -> list[str]:
        """Receipts of as many leases of one message each."""
        return [self.pop(max_messages=1, **ask)[0]["receipt"] for _ in range(count)]


# -- the biggest writes -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [64, BATCH_MESSAGES_MAX])
def test_messages_popped_one_by_one_are_acked_in_one_call(count: int) -> None:
    queue = Queue()
    queue.produce(count)
    receipts = queue.singly(count)
    assert queue.fresh().ack("t", "g", {"receipts": receipts}) == {"acked": count, "failed": []}


KINDS: list[dict[str, Any]] = [{}, {"ordered": "key"}, {"ordered": "key", "settle_by": "delivery"}]


@pytest.mark.parametrize("settings", KINDS)
def test_acks_of_many_leases_ride_along_with_many_takeovers(settings: dict[str, Any]) -> None:
    queue = Queue(**settings)
    queue.produce(BATCH_MESSAGES_MAX)
    queue.singly(100, invisible_ms=1_000)
    receipts = queue.singly(60)
    queue.clock.ms += 1_001
    answer = queue.api.pop("t", "g", {"max_messages": BATCH_MESSAGES_MAX, "ack": receipts})
    assert (len(answer["messages"]), answer["acked"]) == (BATCH_MESSAGES_MAX - 60, 60)


@pytest.mark.parametrize("settings", KINDS)
def test_acks_of_parts_ride_along_with_takeovers_of_parts(settings: dict[str, Any]) -> None:
    queue = Queue(**settings)
    keys = [f"k{number % 40}" for number in range(200)]
    queue.api.produce("t", {"messages": [{"body": "a", "key": key} for key in keys]})
    overdue = [each["receipt"] for _ in range(10) for each in queue.pop(max_messages=2, invisible_ms=1_000)]
    held = [queue.pop(max_messages=2) for _ in range(10)]
    queue.api.ack("t", "g", {"receipts": overdue[::5]})
    queue.clock.ms += 1_001
    answer = queue.api.pop("t", "g", {"max_messages": 100, "ack": [pair[0]["receipt"] for pair in held]})
    assert answer["acked"] == 10
    assert len(answer["messages"]) > 16


@pytest.mark.parametrize("settings", KINDS)
def test_many_leases_that_ran_out_are_taken_over_in_one_call(settings: dict[str, Any]) -> None:
    queue = Queue(**settings)
    queue.produce(BATCH_MESSAGES_MAX)
    queue.singly(BATCH_MESSAGES_MAX, invisible_ms=1_000)
    queue.clock.ms += 1_001
    assert len(queue.pop(max_messages=BATCH_MESSAGES_MAX)) == BATCH_MESSAGES_MAX


@pytest.mark.parametrize("scattered", [False, True])
def test_many_messages_are_nacked_and_extended_in_one_call(scattered: bool) -> None:
    queue = Queue()
    for verb, ask in (("nack", {"reason": "x" * 256, "delay_ms": 0}), ("extend", {"invisible_ms": 1_000})):
        queue.produce(BATCH_MESSAGES_MAX)
        if scattered:
            receipts = [each["receipt"] for each in queue.pop(max_messages=BATCH_MESSAGES_MAX)][::2]
        else:
            receipts = queue.singly(BATCH_MESSAGES_MAX)
        answer = getattr(queue.fresh(), verb)("t", "g", {"receipts": receipts, **ask})
        assert answer["failed"] == []
        queue.clock.ms += 60_000
        queue.api.reset_group("t", "g", {"to": "latest"})


def test_many_messages_are_buried_in_one_call() -> None:
    queue = Queue(max_attempts=1)
    queue.produce(BATCH_MESSAGES_MAX)
    receipts = queue.singly(28) + [each["receipt"] for each in queue.pop(max_messages=228)]
    assert queue.api.nack("t", "g", {"receipts": receipts, "reason": "x" * 256})["nacked"] == BATCH_MESSAGES_MAX


def test_a_receipt_that_is_shown_many_times_settles_once() -> None:
    queue = Queue()
    queue.produce(3)
    receipts = [each["receipt"] for each in queue.pop()] * 80
    assert queue.fresh().ack("t", "g", {"receipts": receipts})["failed"] == []


# -- what clients spell -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", REFUSED_PLACES)
@pytest.mark.parametrize("verb", ["topics", "groups"])
def test_a_page_token_that_no_page_gave_is_refused(verb: str, place: str) -> None:
    queue = Queue()
    query = {"next": base64.urlsafe_b64encode(place.encode()).decode().rstrip("=")}
    with pytest.raises(InvalidField):
        queue.api.list_topics(query) if verb == "topics" else queue.api.list_groups("t", query)


@pytest.mark.parametrize("offset", REFUSED_IDS)
def test_a_message_id_that_no_message_has_is_not_found(offset: str) -> None:
    queue = Queue()
    queue.produce(1)
    with pytest.raises(MessageNotFound):
        queue.api.get_message("t", "00" * 8 + "00" + offset)


# -- repeats ----------------------------------------------------------------------------------------------------------


def test_a_repeated_pop_reads_each_segment_once() -> None:
    queue = Queue()
    chance = Random(0)
    for _ in range(12):
        queue.api.produce("t", {"messages": [{"body": chance.randbytes(100).hex()}]})
    got = queue.pop(attempt_id="x")
    queue.api.extend("t", "g", {"receipts": [each["receipt"] for each in got[2:4]], "invisible_ms": 60_000})
    again = queue.fresh().pop("t", "g", {"attempt_id": "x"})["messages"]
    assert [each["offset"] for each in again] == [each["offset"] for each in got]


def test_a_repeated_pop_gives_each_message_once() -> None:
    queue = Queue()
    queue.produce(4)
    queue.pop(max_messages=2, invisible_ms=1_000)
    queue.clock.ms += 1_000
    got = queue.pop(max_messages=4, attempt_id="x")
    again = queue.pop(max_messages=4, attempt_id="x")
    assert [each["offset"] for each in got] == [0, 1, 2, 3]
    assert again == got


# -- anything ---------------------------------------------------------------------------------------------------------


class Life:
    """Clients that call one topic at random, over instances with more or less in their caches."""

    def __init__(self, seed: int) -> None:
        self.chance = Random(seed)
        self.store = StrictStore()
        self.clock = Clock()
        self.instances = [instance(self.store, self.clock, self.chance.getrandbits(32)) for _ in range(2)]
        self.receipts: list[str] = []
        queues = self.chance.choice((1, 3))
        self.instances[0].put_topic("t", {"queues": queues})
        self.instances[0].put_group("t", "g", {"max_attempts": self.chance.choice((1, 2, 16))})

    def step(self) -> None:
        act = self.chance.choice((self.produce, self.pop, self.pop, self.ack, self.nack, self.extend, self.wait))
        api = self.chance.choice((*self.instances, instance(self.store, self.clock, self.chance.getrandbits(32))))
        act(api)

    def produce(self, api: Api) -> None:
        size = self.chance.choice((1, 100, 700, 2_000))
        count = self.chance.choice((1, 1, 3, 40))
        api.produce("t", {"messages": [{"body": self.chance.randbytes(size).hex()} for _ in range(count)]})

    def pop(self, api: Api) -> None:
        most = self.chance.choice((1, 2, 10, 100))
        riding = self.some() if self.chance.random() < 0.3 else []
        ask = {"max_messages": most, "ack": riding, "invisible_ms": self.chance.choice((100, 10_000))}
        is_repeatable = self.chance.random() < 0.4
        if is_repeatable:
            ask["attempt_id"] = self.chance.choice("abc")
        messages = api.pop("t", "g", ask)["messages"]
        places = [(each["queue"], each["offset"]) for each in messages]
        assert len(places) == len(set(places))
        if not is_repeatable:  # a repeat gives what the first call asked for
            assert len(places) <= most
            assert places == sorted(places)
            assert len({queue for queue, _ in places}) <= 1
        self.receipts += [each["receipt"] for each in messages]

    def ack(self, api: Api) -> None:
        if receipts := self.some():
            api.ack("t", "g", {"receipts": receipts})

    def nack(self, api: Api) -> None:
        if receipts := self.some():
            api.nack("t", "g", {"receipts": receipts, "delay_ms": self.chance.choice((0, 500)), "reason": "why"})

    def extend(self, api: Api) -> None:
        if receipts := self.some():
            answer = api.extend("t", "g", {"receipts": receipts, "invisible_ms": self.chance.choice((1, 5_000))})
            self.receipts += [each["new_receipt"] for each in answer["extended"]]

    def wait(self, _: Api) -> None:
        self.clock.ms += self.chance.choice((1, 200, 20_000))

    def some(self) -> list[str]:
        recent = self.receipts[-self.chance.choice((1, 10, 60)) :]
        return self.chance.sample(recent, self.chance.randint(0, len(recent)))


@settings(max_examples=40)
@given(st.integers(0, 2**32))
def test_no_life_of_a_topic_asks_for_what_is_refused(seed: int) -> None:
    life = Life(seed)
    for _ in range(60):
        life.step()
