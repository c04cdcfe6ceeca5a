"""Queues of SQS clients while two callers make, change and delete them: each may die or stop after each of its requests
to the store, and no queue is ever there in part."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import islice, product
from typing import Any, Self

import pytest

from chalicelib.core.base.errors import GroupNotFound, TopicNotFound
from chalicelib.core.catalogue.topic import Topic
from chalicelib.core.store import Range
from chalicelib.core.table import keys
from chalicelib.doors.sqs.registry import Change, NewQueue, QueueGone, TopicStands, queues_of
from chalicelib.service import Service
from tests.support.stopping import Stage, Work, finish, requests_of, stop_after

OWN = NewQueue("orders", "orders", {"queues": 1}, "orders", {}, {}, {})
SUBSCRIBED = NewQueue("billing", "orders", None, "billing", {}, {}, {})
CHANGED = ("7", 7_000, 77_000)
"""An attribute, the group's `invisible_ms` and the topic's `retention_ms`, which change together."""

REFUSALS = (QueueGone, TopicStands, TopicNotFound, GroupNotFound)
"""Errors that a caller may get when others were faster."""


class Scene(Stage):
    """`done`: the operations that came to their end."""

    def __init__(self, *made: str) -> None:
        super().__init__()
        self.done: set[str] = set()
        for name in made:
            OPERATIONS[name](self.instance())

    def copy(self) -> Self:
        other = super().copy()
        other.done = set()
        return other

    def work(self, name: str) -> Work:
        def work(stop: Callable[[], None]) -> None:
            with suppress(*REFUSALS):
                OPERATIONS[name](self.instance(stop))
                self.done.add(name)

        return work

    def items(self, pk: str) -> dict[str, Any]:
        found = self.store.read([Range(pk, keys.FIRST, keys.LAST)])[0]
        return {item["sk"]: item for item in found}


def _change(service: Service) -> None:
    attribute, invisible_ms, retention_ms = CHANGED
    change = Change({"DelaySeconds": attribute}, {}, {"invisible_ms": invisible_ms}, {"retention_ms": retention_ms})
    queues_of(service).change("orders", lambda _: change)


def _topic(service: Service) -> Topic:
    return service.env.catalogue.current_topic("orders")


OPERATIONS: dict[str, Callable[[Service], object]] = {
    "make orders": lambda service: queues_of(service).make(OWN),
    "make billing": lambda service: queues_of(service).make(SUBSCRIBED),
    "delete orders": lambda service: queues_of(service).delete("orders"),
    "delete billing": lambda service: queues_of(service).delete("billing"),
    "change orders": _change,
    "make a group": lambda service: service.admin.groups.put(_topic(service), "audit", {}),
    "make a topic": lambda service: service.admin.topics.put("orders", {}),
    "remove the topic": lambda service: service.admin.topics.delete(_topic(service)),
    "remove a group": lambda service: service.admin.groups.delete(_topic(service), "orders"),
}
REMOVING = {"remove the topic", "remove a group"}
"""They leave the records of queues that are gone, until somebody meets them."""

EVERY = 3
"""One in so many pairs of points is tried: other ones for other operations."""

SCENES = {
    "nothing": (),
    "one queue": ("make orders",),
    "two queues": ("make orders", "make billing"),
}


def wrong(scene: Scene, names: set[str]) -> Iterator[str]:
    """Yields inconsistent records after these operations began."""
    records, stored = scene.items(keys.subscriptions()), scene.items(keys.topic("orders").pk)
    topic = stored.get(keys.SETTINGS)
    listed = scene.items(keys.groups(topic["id"])) if topic else {}
    for name, record in records.items():
        is_whole = topic and topic["id"] == record["tid"] and record["group"] in listed
        if not is_whole and not names & REMOVING:
            yield f"of queue {name} only a part is there"
    for group in {"orders", "billing"} & listed.keys():
        if group not in records:
            yield f"group {group} has no queue"
    if topic and "for_sqs" in topic and not listed and "remove a group" not in names:
        yield "a topic is left, without queue and group"
    if topic and "orders" in records and records["orders"]["tid"] == topic["id"] and "orders" in listed:
        settings = scene.items(keys.group_partition(topic["id"], "orders"))[keys.SETTINGS]
        shown = (records["orders"]["attributes"].get("DelaySeconds"), settings["invisible_ms"], topic["retention_ms"])
        if len({new == now for new, now in zip(CHANGED, shown, strict=True)}) > 1:
            yield f"a change has come in part: {shown}"
    yield from wrong_ends(scene, names, listed)


def wrong_ends(scene: Scene, names: set[str], listed: dict[str, Any]) -> Iterator[str]:
    """Yields completed operations without their effect."""
    for queue in ("orders", "billing"):
        is_there = _is_there(scene.instance(), queue)
        if f"make {queue}" in scene.done and not names & {f"delete {queue}", *REMOVING} and not is_there:
            yield f"{queue} was made, and is not there"
        if f"delete {queue}" in scene.done and f"make {queue}" not in names and is_there:
            yield f"{queue} was deleted, and is there"
    if "make a group" in scene.done and "remove the topic" not in names and "audit" not in listed:
        yield "a queue has taken another's group along"


def _is_there(service: Service, name: str) -> bool:
    with suppress(QueueGone):
        return bool(queues_of(service).current(name))
    return False


def meetings(scene: Scene, first: str, second: str) -> Iterator[list[str]]:
    """Yields the violations when the second caller works, and dies, after each request of the first one, which then
    goes on or dies as well. Afterwards both are called once more."""
    points = [range(1, requests_of(scene.copy().work(name)) + 2) for name in (first, second)]
    number = [*OPERATIONS].index(second)
    for (at, until), goes_on in islice(product(product(*points), (False, True)), number % EVERY, None, EVERY):
        own = scene.copy()
        running = stop_after(own.work(first), at)
        other = stop_after(own.work(second), until)
        finish(running, goes_on)
        finish(other, goes_on=False)
        yield [*wrong(own, {first, second})]
        for name in (first, second):
            own.done.clear()
            own.work(name)(lambda: None)
        yield [*wrong(own, {first, second})]


@pytest.mark.parametrize("name", SCENES)
@pytest.mark.parametrize("first", OPERATIONS)
def test_two_callers_may_stop_or_die_at_any_request(name: str, first: str) -> None:
    scene = Scene(*SCENES[name])
    for second in OPERATIONS:
        for number, violations in enumerate(meetings(scene, first, second)):
            assert violations == [], f"{first} and {second}, over {name}, meeting {number}"
