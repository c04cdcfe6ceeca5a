"""A filter that takes long for each message: a pop ends all the same, and the next goes on behind it."""

from __future__ import annotations

import pytest

from chalicelib.base.limits import BATCH_MESSAGES_MAX, PASSED_AT_ONCE_MAX
from chalicelib.catalogue.filters import Filter
from chalicelib.consuming.view import FILTERING_MS
from local.memory.store import MemoryStore
from tests.support.clock import START_MS, Clock
from tests.support.instances import instance

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
