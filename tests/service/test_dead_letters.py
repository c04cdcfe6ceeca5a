"""Dead letters on every store: buried twice, redriven, purged, each letter counted once."""

from __future__ import annotations

from collections.abc import Callable

from chalicelib.api import Api


def test_letters_are_counted_as_they_are_on_every_store(instance: Callable[[], Api], topic: str) -> None:
    api = instance()
    api.put_topic(topic, {"queues": 1})
    api.put_group(topic, "g", {"max_attempts": 1})
    api.produce(topic, {"messages": [{"body": str(number)} for number in range(120)]})
    for _ in range(2):
        taken = api.pop(topic, "g", {"max_messages": 120})["messages"]
        buried = api.bury(topic, "g", {"receipts": [each["receipt"] for each in taken], "reason": "r"})
        assert (buried["buried"], api.get_group(topic, "g")["dead"]) == (120, 120)
        api.reset(topic, "g", {"to": "latest"})
        letters = api.list_dead(topic, "g", {"limit": "200"})["messages"]
        assert [each["offset"] for each in letters] == list(range(120))
        api.reset(topic, "g", {"to": "earliest"})
    api.reset(topic, "g", {"to": "latest"})
    ids = [each["message_id"] for each in letters[::10]]
    assert api.redrive(topic, "g", {"message_ids": ids}) == {"redriven": 12, "remaining": 108}
    again = instance().pop(topic, "g", {"max_messages": 12})["messages"]
    assert [(each["offset"], each["attempt"]) for each in again] == [(offset, 1) for offset in range(0, 120, 10)]
    assert api.purge_dead(topic, "g") == {"purged": 108}
    assert api.redrive(topic, "g", {}) == {"redriven": 0, "remaining": 0}
    assert api.get_group(topic, "g")["in_flight"] == 12
