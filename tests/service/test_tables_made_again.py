"""The table is deleted and created again while instances run."""

from __future__ import annotations

import pytest

from chalicelib.api import Api
from chalicelib.service import Service
from local.memory.store import MemoryStore
from tests.support.clock import Clock


class Table(MemoryStore):
    def empty(self) -> None:
        """Empties the table, as if it was deleted and created again."""
        self._items.clear()
        self._order.clear()


def instance(store: Table, clock: Clock, seed: int) -> Api:
    """Without a configured key: they share the one in the table."""
    return Api(Service(store, clock.runtime(seed)))


def popped(api: Api) -> str:
    api.produce("t", {"messages": [{"body": "b"}]})
    return str(api.pop("t", "g", {})["messages"][0]["receipt"])


def prepare(api: Api) -> None:
    api.put_topic("t", {"queues": 1})
    api.put_group("t", "g", {})


@pytest.mark.parametrize("after_ms", [0, 10_000])
def test_instances_from_before_and_after_settle_each_others_receipts(after_ms: int) -> None:
    store, clock = Table(), Clock()
    old = instance(store, clock, 1)
    prepare(old)
    popped(old)
    store.empty()
    new = instance(store, clock, 2)
    prepare(new)
    clock.ms += after_ms
    assert old.ack("t", "g", {"receipts": [popped(new)]}) == {"acked": 1, "failed": []}
    assert new.ack("t", "g", {"receipts": [popped(old)]}) == {"acked": 1, "failed": []}
