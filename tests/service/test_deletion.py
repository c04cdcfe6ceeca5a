"""What an instance does that has not heard that a topic was deleted."""

from __future__ import annotations

import pytest

from chalicelib.api import Api
from chalicelib.errors import TopicNotFound
from chalicelib.store.memory import MemoryStore
from tests.instances import Clock, instance


@pytest.fixture
def instances() -> tuple[Api, Api]:
    store, clock = MemoryStore(), Clock()
    one, other = instance(store, clock, 1), instance(store, clock, 2)
    one.put_topic("t", {"queues": 1})
    return one, other


def produce(api: Api, body: str) -> int | None:
    return api.produce("t", {"messages": [{"body": body}]})[0].offset


@pytest.mark.parametrize("before", [0, 1, 2])
def test_it_produces_to_the_topic_that_was_made_again(instances: tuple[Api, Api], before: int) -> None:
    one, other = instances
    for number in range(before):
        produce(other, str(number))
    other.list_groups("t", {})
    one.delete_topic("t")
    one.put_topic("t", {"queues": 1})
    one.put_group("t", "g", {})
    assert produce(other, "new") == 0
    assert [each["body"] for each in one.pop("t", "g", {})["messages"]] == ["new"]


@pytest.mark.parametrize("before", [0, 1, 2])
def test_it_hears_that_the_topic_is_gone(instances: tuple[Api, Api], before: int) -> None:
    one, other = instances
    for number in range(before):
        produce(other, str(number))
    other.list_groups("t", {})
    one.delete_topic("t")
    for ask in (lambda: produce(other, "new"), lambda: other.read_messages("t", {})):
        with pytest.raises(TopicNotFound):
            ask()
