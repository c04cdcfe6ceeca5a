"""Many retries at once: those with long delays are stored in pages, and no client notices."""

from __future__ import annotations

from typing import Any

import pytest

from chalicelib.core.consuming.settle import Settler
from chalicelib.core.cursors.retries import PARKED_MAX, RETRY_PAGE_LEASES
from chalicelib.core.store import Keys
from chalicelib.core.table.writes import Item
from local.memory.sizes import item_bytes
from tests.store.strict import StrictStore
from tests.support.client import Client, Group, Json, Topic, failed, offsets
from tests.support.clock import Clock

HOUR_MS = 3_600_000
COUNT = 300


def nacked_one_by_one(topic: Topic, group: Group, count: int = COUNT, delay_ms: int = HOUR_MS) -> list[Json]:
    """Nacks each in a call of its own, a millisecond after the one before."""
    while topic.details()["queue_offsets"][0]["end_offset"] < count:
        topic.produce(*["x"] * 100)
    taken = [each for _ in range(count // 100) for each in group.take(100)]
    for each in taken:
        assert group.nack(each, delay_ms=delay_ms)["nacked"] == 1
        group.client.clock.sleep(1)
    return taken


def items(client: Client, prefix: str) -> list[Item]:
    return [item for pk, part in client.store._items.items() if pk.startswith(prefix) for item in part.values()]


def cursor(client: Client) -> Item:
    return next(item for item in items(client, "group#") if item["sk"].startswith("cursor#"))


def come_back(group: Group) -> list[Json]:
    came = []
    while taken := group.pop(max_messages=100)["messages"]:
        group.ack(*taken)
        came += taken
    return came


def test_the_cursor_stays_light_and_all_come_back_when_due_each_once(
    topic: Topic, group: Group, client: Client, clock: Clock
) -> None:
    began = clock.now()
    nacked_one_by_one(topic, group)
    assert len(items(client, "retry#")) == len(cursor(client)["pages"]) == (COUNT - PARKED_MAX) // RETRY_PAGE_LEASES + 1
    assert item_bytes(cursor(client)) < 10_000
    assert group.totals() == (0, 0, COUNT, 0)
    topic.produce("new")
    group.ack(group.take_one())
    assert group.pop()["messages"] == []
    clock.sleep(began + HOUR_MS - clock.now() - 1)
    assert group.pop()["messages"] == []
    clock.sleep(10)
    assert group.totals() == (10, 0, COUNT - 10, 0)
    first = group.seen_by(client.another()).pop(max_messages=100)["messages"]
    assert offsets(first) == list(range(10))
    clock.sleep(COUNT)
    assert group.totals() == (COUNT - 10, 10, 0, 0)
    came = [*first, *come_back(group)]
    assert sorted(offsets(came)) == list(range(COUNT))
    assert {each["attempt"] for each in came} == {2}
    assert items(client, "retry#") == []


def test_no_request_is_larger_than_dynamodb_takes(clock: Clock) -> None:
    client = Client(StrictStore(), clock)
    topic = client.topic("strict")
    group = topic.group("billing")
    nacked_one_by_one(topic, group)
    clock.sleep(HOUR_MS + COUNT)
    assert len(come_back(group)) == COUNT


def test_a_waiting_pop_gets_what_comes_out_of_a_page(topic: Topic, group: Group, client: Client, clock: Clock) -> None:
    nacked_one_by_one(topic, group)
    first = min(due for due, _, _ in cursor(client)["pages"].values())
    clock.sleep(first - 1 - clock.now())
    come_back(group)
    assert offsets(group.pop(wait_ms=1_000)["messages"])[0] == PARKED_MAX + 1 - RETRY_PAGE_LEASES


def test_retries_that_come_soon_are_not_put_away(topic: Topic, group: Group, client: Client, clock: Clock) -> None:
    nacked_one_by_one(topic, group, delay_ms=4_000)
    assert "pages" not in cursor(client)
    clock.sleep(4_000)
    assert len(come_back(group)) == COUNT


def test_a_pop_puts_away_what_a_dead_caller_left_in_the_cursor(
    topic: Topic, group: Group, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Settler, "lighten", lambda *_: None)
    nacked_one_by_one(topic, group)
    assert "pages" not in cursor(client)
    topic.produce("new")
    assert group.take_one()["body"] == "new"
    assert len(cursor(client)["pages"]) == 4
    assert group.progress()["retrying"] == COUNT


def test_a_late_ack_of_a_message_that_waits_in_a_page_is_lost(topic: Topic, group: Group, clock: Clock) -> None:
    taken = nacked_one_by_one(topic, group)
    clock.sleep(HOUR_MS // 2)
    topic.produce("new")
    group.ack(group.take_one())  # forgets the witnesses
    assert failed(group.ack(*taken[:256])) == ["LeaseLost"] * 256
    assert failed(group.nack(taken[COUNT - 1])) == ["LeaseLost"]
    assert group.totals() == (0, 0, COUNT, 0)


def test_a_repeated_ack_still_counts_beside_pages(topic: Topic, group: Group) -> None:
    nacked_one_by_one(topic, group)
    topic.produce("new")
    message = group.take_one()
    for _ in range(2):
        assert group.ack(message)["acked"] == 1


def test_a_reset_drops_pages_too(topic: Topic, group: Group, client: Client, clock: Clock) -> None:
    nacked_one_by_one(topic, group)
    group.reset("latest")
    assert group.totals() == (0, 0, 0, 0)
    assert items(client, "retry#") == []
    clock.sleep(2 * HOUR_MS)
    assert group.pop()["messages"] == []
    group.reset("earliest")
    assert len(come_back(group)) == COUNT


def test_pages_of_a_deleted_group_are_removed(topic: Topic, group: Group, client: Client) -> None:
    nacked_one_by_one(topic, group)
    group.delete()
    assert items(client, "retry#") == []


@pytest.mark.parametrize("before", ["read", "write_together"])
def test_two_pops_that_bring_back_one_page_bring_it_once(
    topic: Topic, group: Group, client: Client, clock: Clock, before: str
) -> None:
    nacked_one_by_one(topic, group)
    clock.sleep(HOUR_MS + COUNT)
    other, request = group.seen_by(client.another()), getattr(client.store, before)
    came: list[Json] = []

    def meanwhile(asked: Any) -> Any:
        if before != "read" or (isinstance(asked[0], Keys) and asked[0].keys[0].pk.startswith("retry#")):
            setattr(client.store, before, request)
            came.extend(other.take(100))
        return request(asked)

    setattr(client.store, before, meanwhile)
    came += group.pop(max_messages=100)["messages"]
    came += come_back(group)
    assert sorted(offsets(came)) == list(range(COUNT))


def test_a_group_is_deleted_while_its_retries_move_into_a_page(topic: Topic, group: Group, client: Client) -> None:
    topic.produce(*["x"] * 100)
    topic.produce(*["x"] * 100)
    halves = [group.take(100)[::2] for _ in range(2)]
    group.nack(*halves[0], delay_ms=HOUR_MS)
    together = client.store.write_together

    def meanwhile(writes: Any) -> None:
        client.store.write_together = together  # type: ignore[method-assign]
        group.delete()
        together(writes)

    client.store.write_together = meanwhile  # type: ignore[method-assign]
    assert group.nack(*halves[1], delay_ms=HOUR_MS)["nacked"] == 50


def test_a_cap_on_messages_in_flight_holds_for_what_comes_out_of_pages(topic: Topic, clock: Clock) -> None:
    group = topic.group("capped")
    nacked_one_by_one(topic, group)
    group.change(max_in_flight=100)
    clock.sleep(HOUR_MS + COUNT)
    assert sum(len(group.pop(max_messages=30)["messages"]) for _ in range(8)) == 100
    assert group.pop()["limited"] == "in_flight"


def test_a_group_with_a_rate_gets_what_comes_out_of_pages(topic: Topic, clock: Clock) -> None:
    group = topic.group("slow", rate_limit=500)
    nacked_one_by_one(topic, group)
    clock.sleep(HOUR_MS + COUNT)
    assert sorted(offsets(come_back(group))) == list(range(COUNT))


def test_an_ordered_group_keeps_its_retries_in_the_cursor(topic: Topic, client: Client, clock: Clock) -> None:
    group = topic.group("strict", ordered=True)
    topic.produce(*["x"] * 200)
    taken = group.take(200)
    for each in taken[::2]:
        group.nack(each, delay_ms=HOUR_MS)
    group.ack(*taken[1::2])
    topic.produce("later")
    assert group.pop()["messages"] == []
    assert "pages" not in cursor(client)
    clock.sleep(HOUR_MS)
    assert offsets(come_back(group)) == [*range(0, 200, 2), 200]
