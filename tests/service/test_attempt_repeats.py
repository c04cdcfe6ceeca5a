"""A pop that is repeated by its attempt id, where reads show the past."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from itertools import count

import pytest

from chalicelib.base.errors import StoreUnavailable
from chalicelib.base.limits import TAKEOVERS_MAX
from chalicelib.store import Keys, Read
from chalicelib.table.writes import Item
from local.memory.store import MemoryStore
from tests.support.clock import Clock
from tests.support.instances import instance, with_messages
from tests.support.troubled_store import TroubledStore


class LateStore(MemoryStore):
    """Weak reads of logs show what was there at the time of `stop`."""

    past: MemoryStore | None = None

    def stop(self) -> None:
        self.past = MemoryStore()
        self.past._items, self.past._order = copy.deepcopy(self._items), copy.deepcopy(self._order)

    def read(self, reads: Sequence[Read]) -> list[list[Item]]:
        return [self._read_late(read) for read in reads]

    def _read_late(self, read: Read) -> list[Item]:
        return self.past.read([read])[0] if self.past and _is_weak(read) else super().read([read])[0]


def _is_weak(read: Read) -> bool:
    names = [key.pk for key in read.keys] if isinstance(read, Keys) else [read.pk]
    return not read.strong and all(name.startswith("log#") for name in names)


def test_a_repeat_returns_all_its_attempt_holds_though_reads_are_stale() -> None:
    store, clock = LateStore(), Clock()
    api = instance(store, clock)
    api.put_topic("t", {"queues": 1})
    api.put_group("t", "g", {})
    api.produce("t", {"messages": [{"body": "old"}]})
    store.stop()
    api.produce("t", {"messages": [{"body": "new"}]})
    ask = {"max_messages": 10, "attempt_id": "a"}
    past, store.past = store.past, None
    first = api.pop("t", "g", ask)["messages"]
    store.past = past
    again = instance(store, clock, seed=2).pop("t", "g", ask)["messages"]
    assert [each["body"] for each in again] == ["old", "new"]
    assert [each["receipt"] for each in again] == [each["receipt"] for each in first]


def test_an_attempt_with_a_claim_without_answer_is_repeated_whole() -> None:
    """One write cannot take over all leases that have expired. A part of them would not be what the repeat returns."""
    store, clock = TroubledStore(), Clock()
    api = with_messages(store, clock, TAKEOVERS_MAX + 5)
    for _ in range(TAKEOVERS_MAX + 5):
        api.pop("t", "g", {"max_messages": 1, "invisible_ms": 1_000})
    clock.sleep(1_000)
    claims = count()
    lost = StoreUnavailable("no answer", outcome="unknown")
    store.after = lambda verb, _: lost if verb == "write" and next(claims) == 1 else None
    ask = {"max_messages": TAKEOVERS_MAX + 5, "attempt_id": "a"}
    with pytest.raises(StoreUnavailable, match="no answer"):
        api.pop("t", "g", ask)
    assert len(api.pop("t", "g", ask)["messages"]) == TAKEOVERS_MAX + 5
