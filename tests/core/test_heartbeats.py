"""A consumer that extends its lease again and again does not fill the cursor."""

from __future__ import annotations

from chalicelib.api import Api
from chalicelib.limits import WITNESSES_MAX
from chalicelib.store.memory import MemoryStore
from tests.instances import Clock, instance


def leases(store: MemoryStore) -> int:
    return max(len(item["leases"]) for part in store._items.values() for item in part.values() if "leases" in item)


def test_heartbeats_leave_few_witnesses() -> None:
    store, clock = MemoryStore(), Clock()
    api: Api = instance(store, clock, 1)
    api.put_topic("t", {"queues": 1})
    api.put_group("t", "g", {})
    api.produce("t", {"messages": [{"body": "x"}, {"body": "y"}]})
    [message] = api.pop("t", "g", {"max_messages": 1})["messages"]
    receipt = message["receipt"]
    for _ in range(2_100):
        [extended] = api.extend("t", "g", {"receipts": [receipt], "invisible_ms": 60_000})["extended"]
        receipt = extended["new_receipt"]
    assert leases(store) <= WITNESSES_MAX + 2
    assert api.ack("t", "g", {"receipts": [receipt]})["failed"] == []
    assert [each["body"] for each in api.pop("t", "g", {})["messages"]] == ["y"]


def test_a_cursor_that_is_full_of_witnesses_makes_room_again() -> None:
    store, clock = MemoryStore(), Clock()
    api: Api = instance(store, clock, 1)
    api.put_topic("t", {"queues": 1})
    api.put_group("t", "g", {})
    api.produce("t", {"messages": [{"body": "x"}, {"body": "y"}]})
    [message] = api.pop("t", "g", {"max_messages": 1})["messages"]
    receipt = message["receipt"]
    for seed in range(2_050):  # each by an instance that knows nothing of the cursor
        [extended] = instance(store, clock, seed).extend("t", "g", {"receipts": [receipt], "invisible_ms": 60_000})[
            "extended"
        ]
        receipt = extended["new_receipt"]
    assert [each["body"] for each in api.pop("t", "g", {})["messages"]] == ["y"]
