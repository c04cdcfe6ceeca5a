"""Dead letters and retries: their cost in the cursor, their counts, and that they come once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from chalicelib.api import Api
from chalicelib.core.base.limits import HOUR_MS
from chalicelib.core.base.runtime import system
from chalicelib.core.store import Keys, Range, Store
from chalicelib.core.table import keys
from chalicelib.core.table.writes import key_of
from chalicelib.service import Service


def test_letters_are_counted_as_they_are(instance: Callable[[], Api], topic: str) -> None:
    api = instance()
    api.put_topic(topic, {"queues": 1})
    api.put_group(topic, "g", {"max_attempts": 1})
    api.produce(topic, {"messages": [{"body": str(number)} for number in range(120)]})
    for _ in range(2):
        taken = api.pop(topic, "g", {"max_messages": 120})["messages"]
        buried = api.bury(topic, "g", {"receipts": [each["receipt"] for each in taken], "reason": "r"})
        assert (buried["buried"], api.get_group(topic, "g")["dead"]) == (120, 120)
        api.reset_group(topic, "g", {"to": "latest"})
        letters = api.list_dead(topic, "g", {"limit": "200"})["messages"]
        assert [each["offset"] for each in letters] == list(range(120))
        api.reset_group(topic, "g", {"to": "earliest"})
    api.reset_group(topic, "g", {"to": "latest"})
    ids = [each["message_id"] for each in letters[::10]]
    assert api.redrive_dead(topic, "g", {"message_ids": ids}) == {"redriven": 12, "remaining": 108}
    again = instance().pop(topic, "g", {"max_messages": 12})["messages"]
    assert [(each["offset"], each["attempt"]) for each in again] == [(offset, 1) for offset in range(0, 120, 10)]
    assert api.purge_dead(topic, "g") == {"purged": 108}
    assert api.redrive_dead(topic, "g", {}) == {"redriven": 0, "remaining": 0}
    assert api.get_group(topic, "g")["in_flight"] == 12


def test_dead_letters_behind_holes_in_the_log_are_listed_and_redriven(
    store: Store, instance: Callable[[], Api], topic: str
) -> None:
    """A removal of the oldest segments that failed half-way leaves one."""
    api = instance()
    api.put_topic(topic, {"queues": 1})
    api.put_group(topic, "g", {})
    produced = [api.produce(topic, {"messages": [{"body": str(number)}]})["messages"][0] for number in range(60)]
    taken = api.pop(topic, "g", {"max_messages": 60})["messages"]
    assert api.bury(topic, "g", {"receipts": [message["receipt"] for message in taken]})["buried"] == 60
    log = keys.log(api.service.env.catalogue.current_topic(topic).id, 0)
    segments = store.read([Range(log, keys.FIRST, keys.LAST, strong=True)])[0]
    store.remove_all([key_of(segments[1]), key_of(segments[3])])
    holes = [range(int(segments[at]["sk"]), int(segments[at + 1]["sk"])) for at in (1, 3)]
    listed = [message["offset"] for message in instance().list_dead(topic, "g", {})["messages"]]
    assert listed == [offset for offset in range(60) if not any(offset in hole for hole in holes)]
    ids = [produced[0]["message_id"], produced[59]["message_id"]]
    assert instance().redrive_dead(topic, "g", {"message_ids": ids}) == {"redriven": 2, "remaining": 58}


def test_letters_of_a_queue_that_came_after_the_topic_was_read_are_listed(
    instance: Callable[[], Api], topic: str
) -> None:
    api = instance()
    api.put_topic(topic, {"queues": 1})
    api.put_group(topic, "g", {})
    before = api.service.env.catalogue.current_topic(topic)
    api.put_topic(topic, {"queues": 2})
    api.produce(topic, {"messages": [{"body": "late", "queue": 1}]})
    [taken] = api.pop(topic, "g", {})["messages"]
    api.bury(topic, "g", {"receipts": [taken["receipt"]]})
    [dead], _ = instance().service.dead_letters.queue.page(before, "g", 10, None)
    assert dead.stored.message_id == taken["message_id"]


def test_retries_go_into_pages_and_come_back(store: Store, instance: Callable[[], Api], topic: str) -> None:
    api = instance()
    api.put_topic(topic, {"queues": 1})
    api.put_group(topic, "g", {})
    api.produce(topic, {"messages": [{"body": str(number)} for number in range(130)]})
    taken = api.pop(topic, "g", {"max_messages": 130})["messages"]
    for each in taken[::2]:  # neighbours would share a lease
        assert api.nack(topic, "g", {"receipts": [each["receipt"]], "delay_ms": HOUR_MS})["nacked"] == 1
    api.ack(topic, "g", {"receipts": [each["receipt"] for each in taken[1::2]]})
    service = api.service
    group = service.env.catalogue.group(service.env.catalogue.current_topic(topic), "g")
    noted = service.env.store.read([Keys([group.cursor_key(0)], strong=True)])[0][0].get("pages", {})
    assert [count for _, count, _ in noted.values()] == [48]
    came: list[int] = []
    an_hour_later = replace(system(), now=lambda: system().now() + HOUR_MS)
    other = Api(Service(store, an_hour_later))
    while got := other.pop(topic, "g", {"max_messages": 100})["messages"]:
        came += [each["offset"] for each in got]
    assert sorted(came) == list(range(0, 130, 2))
