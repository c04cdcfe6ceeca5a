"""An instance forgets what it has cached of topics and groups that were deleted."""

from __future__ import annotations

import ast
import gc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from chalicelib.api import Api
from chalicelib.core.base.cache import FORGOTTEN_TOGETHER, BoundedCache
from chalicelib.core.base.errors import TopicNotFound
from chalicelib.doors.sqs.registry import NewQueue, queues_of
from chalicelib.service import Service
from local.memory.store import MemoryStore
from tests.support.clock import Clock
from tests.support.emulators import ROOT

LIVES = 2 * FORGOTTEN_TOGETHER
"""So many topics or groups come and go; the caches may keep fewer than `FORGOTTEN_TOGETHER` of them."""

GROUPS: dict[str, dict[str, Any]] = {"plain": {}, "by-key": {"ordered": "key"}, "limited": {"rate_limit": 1_000}}

Count = Callable[[], int]


@pytest.fixture
def cached() -> Count:
    """Counts the entries of all caches that exist since the test began."""
    others = [*_caches()]
    return lambda: sum(len(cache.entries()) for cache in _caches() if all(cache is not other for other in others))


def _caches() -> Iterator[BoundedCache[Any]]:
    return (found for found in gc.get_objects() if isinstance(found, BoundedCache))


@pytest.fixture
def apis(cached: Count) -> tuple[Api, Api]:
    store, clock = MemoryStore(), Clock()
    return Api(Service(store, clock.runtime(1))), Api(Service(store, clock.runtime(2)))


def use_topic(api: Api, name: str) -> None:
    """Leaves something in every cache that a topic can be in."""
    api.put_topic(name, {"queues": 2, "max_depth": 1_000})
    for group, settings in GROUPS.items():
        api.put_group(name, group, settings)
    api.produce(name, {"messages": [{"body": "x" * 9_000, "key": str(number)} for number in range(4)]})
    api.produce(name, {"messages": [{"body": "later", "delay_ms": 60_000}]})
    for group in GROUPS:
        use_group(api, name, group)


def use_group(api: Api, topic: str, group: str) -> None:
    for _ in range(3):
        popped = api.pop(topic, group, {"max_messages": 2})["messages"]
        if popped:
            api.nack(topic, group, {"receipts": [popped[0]["receipt"]]})


def test_topics_that_came_and_went_leave_little_in_the_caches(apis: tuple[Api, Api], cached: Count) -> None:
    api, _ = apis
    before = cached()
    use_topic(api, "t")
    of_one = cached() - before
    api.delete_topic("t")
    for number in range(LIVES):
        use_topic(api, f"t{number}")
        api.delete_topic(f"t{number}")
    assert of_one > len(GROUPS)
    assert cached() - before < FORGOTTEN_TOGETHER * of_one


def test_groups_that_came_and_went_leave_little_in_the_caches(apis: tuple[Api, Api], cached: Count) -> None:
    api, _ = apis
    use_topic(api, "t")
    before = cached()
    api.put_group("t", "g", {})
    use_group(api, "t", "g")
    of_one = cached() - before
    api.delete_group("t", "g")
    for number in range(LIVES):
        api.put_group("t", f"g{number}", {})
        use_group(api, "t", f"g{number}")
        api.delete_group("t", f"g{number}")
    assert of_one > 0
    assert cached() - before < FORGOTTEN_TOGETHER * of_one


def test_queues_of_sqs_that_came_and_went_leave_little_in_the_caches(apis: tuple[Api, Api], cached: Count) -> None:
    api, _ = apis
    queues = queues_of(api.service)
    for number in range(LIVES):
        queues.make(NewQueue(f"q{number}", f"q{number}", {"queues": 1}, "g", {}, {}, {}))
        queues.find(f"q{number}")
        use_group(api, f"q{number}", "g")
        queues.delete(f"q{number}")
    assert cached() < LIVES


def test_what_another_instance_deleted_is_forgotten_once_it_is_missed(apis: tuple[Api, Api], cached: Count) -> None:
    api, other = apis
    of_one = 0
    for number in range(LIVES):
        api.put_topic(f"t{number}", {"queues": 1})
        other.produce(f"t{number}", {"messages": [{"body": "x"}]})
        of_one = of_one or cached()
        api.delete_topic(f"t{number}")
        with pytest.raises(TopicNotFound):
            other.produce(f"t{number}", {"messages": [{"body": "x"}]})
    assert cached() < FORGOTTEN_TOGETHER * of_one


def test_every_cache_of_topics_is_among_those_that_forget() -> None:
    makers = {
        str(path.relative_to(ROOT))
        for path in (Path(ROOT) / "chalicelib").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "BoundedCache"
    }
    assert makers == {
        "chalicelib/core/base/cache.py",
        "chalicelib/core/access/callers.py",
    }  # and tokens, which belong to none
