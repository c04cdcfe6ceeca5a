"""An `attempt_id` that is used again, when nothing of the first pop is leased any more, makes a new pop; what is left
of the first one must not touch it."""

from __future__ import annotations

from typing import Any

import pytest

from chalicelib.api import Api
from local.memory.store import MemoryStore
from tests.support.clock import Clock
from tests.support.instances import instance


class Queue:
    def __init__(self, messages: int) -> None:
        self.store = MemoryStore()
        self.clock = Clock()
        self.seeds = 0
        api = self.fresh()
        api.put_topic("t", {"queues": 1})
        api.put_group("t", "g", {})
        api.produce("t", {"messages": [{"body": str(number)} for number in range(messages)]})

    def fresh(self) -> Api:
        self.seeds += 1
        return instance(self.store, self.clock, self.seeds)

    def pop(self, **ask: Any) -> list[dict[str, Any]]:
        messages: list[dict[str, Any]] = self.fresh().pop("t", "g", {"max_messages": 1, **ask})["messages"]
        return messages

    def expire(self) -> None:
        self.clock.ms += 30_001


@pytest.mark.parametrize("verb", ["ack", "nack", "extend"])
def test_a_late_receipt_does_not_touch_another_message_of_the_same_attempt(verb: str) -> None:
    queue = Queue(2)
    [old] = queue.pop(attempt_id="a")
    queue.expire()
    [again] = queue.pop()
    assert queue.fresh().ack("t", "g", {"receipts": [again["receipt"]]})["acked"] == 1
    [new] = queue.pop(attempt_id="a")
    assert (old["offset"], again["offset"], new["offset"]) == (0, 0, 1)
    more = {"invisible_ms": 1_000} if verb == "extend" else {}
    getattr(queue.fresh(), verb)("t", "g", {"receipts": [old["receipt"]], **more})
    assert queue.fresh().ack("t", "g", {"receipts": [new["receipt"]]})["failed"] == []


@pytest.mark.parametrize("verb", ["ack", "nack", "extend"])
@pytest.mark.parametrize("same_instance", [False, True])
def test_a_repeated_ack_does_not_touch_what_the_attempt_took_since(verb: str, same_instance: bool) -> None:
    queue = Queue(2)
    api = queue.fresh()
    [old] = queue.pop(attempt_id="a")
    assert api.ack("t", "g", {"receipts": [old["receipt"]]})["acked"] == 1
    [new] = queue.pop(attempt_id="a")
    assert (old["offset"], new["offset"]) == (0, 1)
    more = {"invisible_ms": 1_000} if verb == "extend" else {}
    getattr(api if same_instance else queue.fresh(), verb)("t", "g", {"receipts": [old["receipt"]], **more})
    queue.expire()
    assert [each["offset"] for each in queue.pop()] == [1]


@pytest.mark.parametrize("verb", ["ack", "nack", "extend"])
@pytest.mark.parametrize("is_forgotten", [False, True])
def test_an_old_receipt_does_not_settle_what_its_attempt_took_since(verb: str, is_forgotten: bool) -> None:
    """`is_forgotten`: nothing in the cursor remembers the first lease any more."""
    queue = Queue(1)
    [old] = queue.pop(attempt_id="a")
    queue.expire()
    queue.pop()
    if is_forgotten:
        queue.clock.ms += 20 * 60_000
        queue.pop()
    queue.expire()
    [new] = queue.pop(attempt_id="a")
    assert (old["attempt"], new["attempt"]) == (1, 3 + is_forgotten)
    more = {"invisible_ms": 1_000} if verb == "extend" else {}
    late = getattr(queue.fresh(), verb)("t", "g", {"receipts": [old["receipt"]], **more})
    assert late["failed"] == [{"receipt": old["receipt"], "code": "LeaseLost"}]
    assert queue.fresh().ack("t", "g", {"receipts": [new["receipt"]]})["failed"] == []
