"""Whatever consumers do, a cursor stays small, and goes on."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

import pytest

from chalicelib.api import Api
from chalicelib.core.base.errors import StoreUnavailable
from chalicelib.core.base.limits import BATCH_MESSAGES_MAX, LEASES_MAX, TAKEOVERS_MAX
from chalicelib.core.cursors.cursor_writes import INERT_MAX, LEASES_ROOM, WITNESSES_MAX
from chalicelib.core.cursors.retries import RETRY_SOON_MS
from chalicelib.core.store import Outcome
from chalicelib.core.table.writes import Item, Key, Set, Write
from local.memory.sizes import item_bytes
from local.memory.store import MemoryStore
from tests.store.strict import StrictStore
from tests.support.clock import Clock
from tests.support.instances import instance, with_messages


def cursor_of(store: MemoryStore) -> Item:
    [found] = [item for part in store._items.values() for item in part.values() if "leases" in item]
    return found


def leases(store: MemoryStore) -> int:
    return len(cursor_of(store)["leases"])


def popped(api: Api, count: int) -> list[str]:
    found = api.pop("t", "g", {"max_messages": count})["messages"]
    assert len(found) == count
    return [message["receipt"] for message in found]


def test_a_pop_acks_again_what_others_have_acked_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The caller that acked the last part did not see that it was the last."""
    store, clock = StrictStore(), Clock()
    api, other = with_messages(store, clock, 3), instance(store, clock, seed=2)
    first, second = popped(api, 2)
    api.ack("t", "g", {"receipts": [first]})
    write_each = store.write_each

    def unheard(writes: Sequence[Write]) -> list[Outcome]:
        write_each(writes)
        raise StoreUnavailable("no answer", outcome="unknown")

    monkeypatch.setattr(store, "write_each", unheard)
    with pytest.raises(StoreUnavailable):
        other.ack("t", "g", {"receipts": [second]})
    monkeypatch.undo()
    assert leases(store) == 1
    told = instance(store, clock, seed=3).pop("t", "g", {"ack": [first]})
    assert (told["acked"], [each["body"] for each in told["messages"]], leases(store)) == (1, ["2"], 1)


def test_heartbeats_leave_few_witnesses() -> None:
    store, clock = MemoryStore(), Clock()
    api = with_messages(store, clock, 2)
    [receipt] = popped(api, 1)
    for _ in range(LEASES_MAX + 100):
        [extended] = api.extend("t", "g", {"receipts": [receipt], "invisible_ms": 60_000})["extended"]
        receipt = extended["new_receipt"]
    assert leases(store) <= WITNESSES_MAX + 2
    assert api.ack("t", "g", {"receipts": [receipt]})["failed"] == []
    assert [each["body"] for each in api.pop("t", "g", {})["messages"]] == ["1"]


@pytest.mark.parametrize("rule", ["delivery", "message"])
@pytest.mark.parametrize("size", [1, 3])
def test_heartbeats_in_place_leave_nothing(rule: str, size: int) -> None:
    store, clock = MemoryStore(), Clock()
    api = with_messages(store, clock, 4)
    api.put_group("t", "g", {"settle_by": rule})
    receipts = popped(api, size)
    before, began = leases(store), item_bytes(cursor_of(store))
    for _ in range(1_000):
        clock.sleep(1_000)
        for receipt in receipts:  # each by itself, from the lease of all
            [extended] = api.extend("t", "g", {"receipts": [receipt], "invisible_ms": 30_000})["extended"]
            assert extended["invisible_until_ms"] == clock.ms + 30_000
    assert leases(store) == before + size - 1
    assert item_bytes(cursor_of(store)) <= began + 40 * (size - 1)
    assert api.ack("t", "g", {"receipts": receipts})["failed"] == []
    assert leases(store) == 0


@pytest.mark.parametrize("ordered", [False, "key"])
def test_by_message_takeovers_leave_no_witnesses(ordered: bool | str) -> None:
    store, clock = MemoryStore(), Clock()
    api = with_messages(store, clock, 4, ordered=ordered)
    api.put_group("t", "g", {"settle_by": "message"})
    for _ in range(10):
        api.pop("t", "g", {"max_messages": 2, "invisible_ms": 0})
    assert leases(store) == 1


def test_a_cursor_that_is_full_of_witnesses_makes_room_again() -> None:
    store, clock = MemoryStore(), Clock()
    api = with_messages(store, clock, 2)
    [receipt] = popped(api, 1)
    for seed in range(20):  # each by an instance that knows nothing of the cursor
        [extended] = instance(store, clock, seed).extend("t", "g", {"receipts": [receipt], "invisible_ms": 60_000})[
            "extended"
        ]
        receipt = extended["new_receipt"]
        if seed == 9:  # as if there had been very many more
            token, witness = next(iter(cursor_of(store)["leases"].items()))
            more = range(LEASES_MAX)
            cursor_of(store)["leases"].update({f"{token}{number:06}": [*witness] for number in more})
    assert leases(store) > LEASES_MAX
    assert [each["body"] for each in api.pop("t", "g", {})["messages"]] == ["1"]


def test_many_single_leases_nacked_at_once_leave_few_witnesses() -> None:
    store, clock = MemoryStore(), Clock()
    api = with_messages(store, clock, 2 * BATCH_MESSAGES_MAX)
    for _ in range(2):
        receipts = [receipt for _ in range(BATCH_MESSAGES_MAX) for receipt in popped(api, 1)]
        assert api.nack("t", "g", {"receipts": receipts, "reason": "x" * 256})["failed"] == []
    assert leases(store) <= 2 * BATCH_MESSAGES_MAX + INERT_MAX
    clock.ms += 60_000
    for _ in range(10):
        popped(api, TAKEOVERS_MAX)
    assert leases(store) <= 2 * BATCH_MESSAGES_MAX + INERT_MAX + TAKEOVERS_MAX


def test_messages_acked_one_by_one_leave_the_cursor_small() -> None:
    store, clock = MemoryStore(), Clock()
    api = with_messages(store, clock, BATCH_MESSAGES_MAX)
    receipts = popped(api, BATCH_MESSAGES_MAX)
    largest = 0
    for receipt in [*receipts[::2], *receipts[1::2]]:
        assert api.ack("t", "g", {"receipts": [receipt]})["failed"] == []
        largest = max(largest, item_bytes(cursor_of(store)))
    assert largest < 1_300
    assert leases(store) == 0


@pytest.mark.parametrize("ordered", [False, "key"])
def test_a_nack_that_finds_no_room_changes_nothing_and_says_so(ordered: bool | str) -> None:
    store, clock = MemoryStore(), Clock()
    api = with_messages(store, clock, 21 * BATCH_MESSAGES_MAX + 1, max_in_flight=10_000, ordered=ordered)
    taken = [popped(api, BATCH_MESSAGES_MAX)[::2] for _ in range(21)]
    with pytest.raises(StoreUnavailable, match="as many leases and retries"):
        [api.nack("t", "g", {"receipts": evens, "delay_ms": RETRY_SOON_MS}) for evens in taken]
    assert leases(store) <= LEASES_MAX + LEASES_ROOM + TAKEOVERS_MAX
    clock.ms += RETRY_SOON_MS
    assert len(popped(api, TAKEOVERS_MAX)) == TAKEOVERS_MAX
    assert api.ack("t", "g", {"receipts": taken[-1]})["failed"] == []


def test_an_instance_reads_a_full_cursor_again_before_it_refuses() -> None:
    store, clock = MemoryStore(), Clock()
    api, other = (
        with_messages(store, clock, 12 * BATCH_MESSAGES_MAX, max_in_flight=10_000),
        instance(store, clock, 9),
    )
    taken = [receipt for _ in range(2) for receipt in popped(api, BATCH_MESSAGES_MAX)]
    for receipts in [taken[first : first + BATCH_MESSAGES_MAX : 2] for first in (0, BATCH_MESSAGES_MAX)]:
        api.nack("t", "g", {"receipts": receipts, "delay_ms": 60_000})
    key = next(Key(item["pk"], item["sk"]) for item in [cursor_of(store)])
    full = {f"x{number}": [0, 1, clock.ms + 60_000, 1] for number in range(LEASES_MAX + LEASES_ROOM)}
    before = cursor_of(store)["leases"]
    full = dict(islice(full.items(), len(full) - len(before)))
    store.write(Write(key, (), (Set(("leases",), {**before, **full}),)))
    with pytest.raises(StoreUnavailable, match="as many leases"):
        api.nack("t", "g", {"receipts": taken[1:2]})
    assert len(api.nack("t", "g", {"receipts": taken[:1]})["failed"]) == 1
    store.write(Write(key, (), (Set(("leases",), before),)))
    assert api.nack("t", "g", {"receipts": taken[1:2]})["failed"] == []
    assert other.ack("t", "g", {"receipts": taken[3:4]})["failed"] == []
