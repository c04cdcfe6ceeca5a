"""A filter that takes long for each message: a pop ends all the same, and the next goes on behind it."""

from __future__ import annotations

from typing import Any

import pytest

from chalicelib.api import Api
from chalicelib.core.base.limits import BATCH_MESSAGES_MAX, PASSED_AT_ONCE_MAX, PROPERTIES_BYTES_MAX
from chalicelib.core.base.message import Message
from chalicelib.core.catalogue.filter_expressions import judge
from chalicelib.core.catalogue.group_forms import Filter
from chalicelib.core.consuming.view import FILTERING_MS, FILTERING_STEPS
from chalicelib.push import dispatcher
from chalicelib.service import Service
from local.memory.store import MemoryStore
from tests.support.clock import START_MS, Clock
from tests.support.consumer import Consumer
from tests.support.instances import SIGNING_KEY, instance

EACH_MS, COUNT = 100, 60


def test_pops_that_sift_for_long_end_and_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    api = instance(MemoryStore(), clock)
    api.put_topic("t", {"queues": 1})
    api.put_group("t", "g", {"filter": {"expression": "tag == 'last'"}})
    tags = [{"tag": "last"} if number == COUNT - 1 else {} for number in range(COUNT)]
    api.produce("t", {"messages": [{"body": "b", **tag} for tag in tags]})
    for _ in range(PASSED_AT_ONCE_MAX // BATCH_MESSAGES_MAX):
        api.produce("t", {"messages": [{"body": "b"}] * BATCH_MESSAGES_MAX})
    wants = Filter.wants

    def slow(self: Filter, message: object) -> bool:
        clock.ms += EACH_MS
        return wants(self, message)  # type: ignore[arg-type]

    monkeypatch.setattr(Filter, "wants", slow)
    offsets: list[int] = []
    while not offsets:
        began_ms = clock.ms
        offsets = [each["offset"] for each in api.pop("t", "g", {"invisible_ms": 60_000})["messages"]]
        assert clock.ms - began_ms <= 3 * FILTERING_MS
    assert offsets == [COUNT - 1]
    assert clock.ms >= START_MS + COUNT * EACH_MS


# -- steps ------------------------------------------------------------------------------------------------------------

HEAVY = "contains(values(properties), 'wanted')"
FULL = {f"{number:03x}": "x" for number in range(PROPERTIES_BYTES_MAX // 4 - 3)}
TAKEN = judge(HEAVY, Message("", None, key=None, tag=None, properties=FULL))[1]
AT_ONCE = FILTERING_STEPS // TAKEN + 1
"""How many such messages are judged at one look."""
MANY = 4 * AT_ONCE


@pytest.fixture
def judged(monkeypatch: pytest.MonkeyPatch) -> list[Message]:
    """The messages of which a filter was asked."""
    seen: list[Message] = []
    wants = Filter.wants

    def seeing(self: Filter, message: Message) -> bool:
        seen.append(message)
        return wants(self, message)

    monkeypatch.setattr(Filter, "wants", seeing)
    return seen


def filled(clock: Clock, queues: int = 1, **settings: Any) -> Api:
    """A group whose filter is asked of many messages before one that it wants."""
    api = instance(MemoryStore(), clock)
    api.put_topic("t", {"queues": queues})
    api.put_group("t", "g", {"filter": {"expression": HEAVY}, **settings})
    produce(api, *[{"body": str(number), "properties": FULL} for number in range(MANY)], WANTED)
    return api


WANTED: dict[str, Any] = {"body": "wanted", "properties": {"a": "wanted"}}


def produce(api: Api, *messages: dict[str, Any]) -> None:
    for first in range(0, len(messages), 10):
        api.produce("t", {"messages": [{"queue": 0, "key": "k", **each} for each in messages[first : first + 10]]})


def pop(api: Api, **asked: Any) -> list[str]:
    return [each["body"] for each in api.pop("t", "g", {"invisible_ms": 60_000, **asked})["messages"]]


@pytest.mark.parametrize("ordered", [False, True, "key"])
def test_the_steps_of_a_filter_are_counted_for_the_pop(judged: list[Message], ordered: bool | str) -> None:
    api = filled(Clock(), ordered=ordered)
    pops: list[list[str]] = []
    while not any(pops):
        before = len(judged)
        pops.append(pop(api, max_messages=100))
        assert len(judged) - before <= AT_ONCE
    assert pops[-1] == ["wanted"]
    assert len(pops) <= 5
    assert len(judged) == MANY + 1


def test_the_steps_are_those_of_all_queues_together(judged: list[Message]) -> None:
    for ordered in (False, "key"):
        api = filled(Clock(), queues=4, ordered=ordered)
        produce(api, *[{"body": "b", "properties": FULL, "queue": number % 4} for number in range(4 * AT_ONCE)])
        judged.clear()
        pop(api, max_messages=100)
        assert len(judged) <= AT_ONCE


def test_a_long_poll_goes_on_where_a_look_ran_out_of_steps(judged: list[Message]) -> None:
    assert pop(filled(Clock()), wait_ms=20_000) == ["wanted"]
    assert len(judged) == MANY + 1


def test_a_queue_gets_its_turn_beside_one_with_much_to_sift(judged: list[Message]) -> None:
    """In a group ordered by key, all queues are looked through before one is chosen."""
    clock = Clock()
    api = filled(clock, queues=2, ordered="key")
    clock.ms += 1
    produce(api, {**WANTED, "queue": 1})
    clock.ms += 1
    produce(api, *[{"body": "b", "properties": FULL}] * MANY)
    assert [pop(api) for _ in range(7)].count(["wanted"]) == 2
    assert len(judged) < 2 * MANY


def test_a_message_is_judged_once_while_it_cannot_be_taken(judged: list[Message]) -> None:
    api = instance(MemoryStore(), Clock())
    api.put_topic("t", {"queues": 1})
    api.put_group("t", "g", {"filter": {"expression": HEAVY}, "ordered": "key"})
    produce(api, *[{**WANTED, "body": str(number)} for number in range(3)])
    assert [pop(api, max_messages=1) for _ in range(5)] == [["0"], [], [], [], []]
    assert len(judged) == 3


def test_a_pushed_group_gets_what_its_filter_wants(judged: list[Message], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatcher, "LOOKING_MS", 0)
    clock, consumer = Clock(), Consumer()
    api = filled(clock)
    pushing = Api(Service(api.service.env.store, clock.runtime(0), SIGNING_KEY, outside=consumer.outside()))
    pushing.put_group("t", "g", {"push": {"function": "f"}})
    pushing.service.pushing.run("t")
    assert consumer.bodies == [["wanted"]]
    assert len(judged) == MANY + 1
