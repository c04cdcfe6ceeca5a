"""A late ack looks again where a read shows a transaction by halves, as DynamoDB's reads may."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from unittest.mock import patch

import pytest

from chalicelib.api import Api
from chalicelib.core.base.errors import StoreUnavailable
from chalicelib.core.base.limits import HOUR_MS
from chalicelib.core.cursors import retries
from chalicelib.core.cursors.cursor import Cursor, RetryPage
from chalicelib.core.store import Keys, Read
from chalicelib.core.table import keys
from chalicelib.core.table.writes import Item, Key, Remove, Write
from local.memory.store import MemoryStore
from tests.support.clock import Clock
from tests.support.instances import instance, with_messages
from tests.support.late_store import LateStore
from tests.support.small import small_pages


class Halved(MemoryStore):
    """Once `cursor` is named, the first read of a retry page finds it brought back a moment ago, and the next read of
    the cursor shows it as it was before."""

    cursor: Key | None = None
    stale: list[Item] | None = None
    bring_back: Any = None

    def read(self, reads: Sequence[Read]) -> list[list[Item]]:
        asked = [key for read in reads if isinstance(read, Keys) for key in read.keys]
        if self.cursor and self.stale is None and any(key.pk.startswith("retry#") for key in asked):
            self.stale = super().read([Keys([self.cursor], strong=True)])[0]
            self.bring_back()
        elif self.cursor in asked and self.stale:
            stale, self.stale = self.stale, []
            return [stale]
        return super().read(reads)


def test_a_late_ack_of_a_message_whose_page_is_brought_back_is_refused() -> None:
    clock, store = Clock(), Halved()
    api = with_messages(store, clock, 130)
    page, late, acked = _in_a_page(api, store)
    clock.ms += HOUR_MS + 1
    store.bring_back = lambda: _bring_back(api, store, page)
    store.cursor = _cursor_key(api)
    answer = instance(store, clock, seed=7).ack("t", "g", {"receipts": [acked, late]})
    assert store.stale == []
    assert answer == {"acked": 1, "failed": [{"receipt": late, "code": "LeaseLost"}]}


def _in_a_page(api: Api, store: MemoryStore) -> tuple[RetryPage, str, str]:
    """A page of the cursor, and late receipts of a message in it and of one before it, which was acked. The group has
    130 messages."""
    taken = api.pop("t", "g", {"max_messages": 130})["messages"]
    for message in taken[::2]:  # neighbours would share a lease
        api.nack("t", "g", {"receipts": [message["receipt"]], "delay_ms": HOUR_MS})
    api.ack("t", "g", {"receipts": [message["receipt"] for message in taken[1::2]]})
    _forget_settled(api, store)
    [page] = _cursor(api, store).pages.values()
    [retries] = api.service.cursors.retries.read([(_cursor(api, store), [page])])
    paged = {offset for lease in retries[page.id] for offset in lease.offsets}
    late = next(message["receipt"] for message in taken if message["offset"] in paged)
    return page, late, next(message["receipt"] for message in taken[1::2] if message["offset"] < page.low)


def _cursor_key(api: Api, consumer: str = "") -> Key:
    topic = api.service.env.catalogue.current_topic("t")
    return api.service.env.catalogue.group(topic, "g").cursor_key(0, keys.consumer(consumer) if consumer else "")


def _cursor(api: Api, store: MemoryStore, consumer: str = "") -> Cursor:
    return Cursor.of(MemoryStore.read(store, [Keys([_cursor_key(api, consumer)], strong=True)])[0][0])


def _forget_settled(api: Api, store: MemoryStore, consumer: str = "") -> None:
    """As if there had been too many to keep."""
    settled = [lease for lease in _cursor(api, store, consumer).leases.values() if not lease.owed]
    if settled:  # by message there are no witnesses
        store.write(Write(_cursor_key(api, consumer), (), tuple(Remove(lease.path) for lease in settled)))


def _bring_back(api: Api, store: MemoryStore, page: RetryPage) -> None:
    api.service.cursors.retries.bring_back(_cursor(api, store), page)


def test_by_message_an_ack_finds_the_page_of_a_retry_by_stale_reads() -> None:
    store, clock = LateStore(), Clock()
    api = with_messages(store, clock, 130, settle_by="message")
    taken = api.pop("t", "g", {"max_messages": 130})["messages"]
    store.fall_behind()
    receipts = [message["receipt"] for message in taken[::2]]  # neighbours would share a lease
    api.nack("t", "g", {"receipts": receipts, "delay_ms": HOUR_MS})
    assert instance(store, clock, seed=2).ack("t", "g", {"receipts": receipts}) == {"acked": 65, "failed": []}


@pytest.mark.parametrize("consumer", ["", "ann"])
def test_a_late_ack_of_a_message_that_has_just_died_is_refused(consumer: str) -> None:
    """A consumer of a broadcast group is refused too."""
    store, clock = LateStore(), Clock()
    api = with_messages(store, clock, 2, mode="broadcast" if consumer else "clustering")
    taken = api.pop("t", "g", {"consumer_id": consumer} if consumer else {})["messages"]
    store.fall_behind()
    dead, acked = ([message["receipt"]] for message in taken)
    api.bury("t", "g", {"receipts": dead})
    api.ack("t", "g", {"receipts": acked})
    _forget_settled(api, store, consumer)
    answer = instance(store, clock, seed=7).ack("t", "g", {"receipts": dead + acked})
    assert answer == {"acked": 1, "failed": [{"receipt": dead[0], "code": "LeaseLost"}]}


class Overtaken(MemoryStore):
    """`before` and `after` happen around the first read of a key whose partition starts with `near`."""

    near: str | None = None
    before: Callable[[], object]
    after: Callable[[], object]

    def read(self, reads: Sequence[Read]) -> list[list[Item]]:
        asked = [key.pk for read in reads if isinstance(read, Keys) for key in read.keys]
        if self.near is None or not any(pk.startswith(self.near) for pk in asked):
            return super().read(reads)
        self.near = None
        self.before()
        answer = super().read(reads)
        self.after()
        return answer


@pytest.mark.parametrize("settle_by", ["message", "receipt"])
def test_a_late_ack_of_what_dies_again_meanwhile_is_refused(settle_by: str) -> None:
    store, clock = Overtaken(), Clock()
    api = with_messages(store, clock, 1, settle_by=settle_by)
    [old] = _take_and_bury(api)
    _forget_settled(api, store)
    store.near, store.before, store.after = "dead#", lambda: api.redrive_dead("t", "g", {}), lambda: _take_and_bury(api)
    answer = instance(store, clock, seed=2).ack("t", "g", {"receipts": [old]})
    assert store.near is None
    assert answer == {"acked": 0, "failed": [{"receipt": old, "code": "LeaseLost"}]}


def test_a_late_ack_of_a_retry_that_dies_meanwhile_is_refused() -> None:
    store, clock = Overtaken(), Clock()
    api = with_messages(store, clock, 130)
    page, late, _ = _in_a_page(api, store)
    clock.ms += HOUR_MS + 1
    store.near, store.before, store.after = "retry#", lambda: _bring_back(api, store, page), lambda: _take_and_bury(api)
    answer = instance(store, clock, seed=2).ack("t", "g", {"receipts": [late]})
    assert store.near is None
    assert answer == {"acked": 0, "failed": [{"receipt": late, "code": "LeaseLost"}]}


def _take_and_bury(api: Api) -> list[str]:
    receipts = [message["receipt"] for message in api.pop("t", "g", {"max_messages": 130})["messages"]]
    assert api.bury("t", "g", {"receipts": receipts})["failed"] == []
    return receipts


def test_by_message_an_ack_finds_a_page_beside_a_message_before_it() -> None:
    store, clock = MemoryStore(), Clock()
    api = with_messages(store, clock, 130, settle_by="message")
    _, late, acked = _in_a_page(api, store)
    answer = instance(store, clock, seed=2).ack("t", "g", {"receipts": [acked, late]})
    assert answer == {"acked": 2, "failed": []}


def test_by_message_a_nack_of_what_is_brought_back_meanwhile_counts() -> None:
    store, clock = Overtaken(), Clock()
    api = with_messages(store, clock, 130, settle_by="message")
    page, late, _ = _in_a_page(api, store)
    store.near, store.before, store.after = "retry#", lambda: _bring_back(api, store, page), lambda: None
    answer = instance(store, clock, seed=2).nack("t", "g", {"receipts": [late]})
    assert store.near is None
    assert answer == {"nacked": 1, "failed": []}


def test_by_message_a_late_ack_of_what_is_redriven_meanwhile_counts() -> None:
    store, clock = Overtaken(), Clock()
    api = with_messages(store, clock, 1, settle_by="message")
    [old] = _take_and_bury(api)
    _forget_settled(api, store)
    store.near, store.before, store.after = "dead#", lambda: api.redrive_dead("t", "g", {}), lambda: None
    answer = instance(store, clock, seed=2).ack("t", "g", {"receipts": [old]})
    assert store.near is None
    assert answer == {"acked": 1, "failed": []}


def test_an_ack_of_a_retry_that_finds_no_room_is_not_refused() -> None:
    clock, store = Clock(), MemoryStore()
    api = with_messages(store, clock, 4, settle_by="message")
    taken = [message["receipt"] for message in api.pop("t", "g", {"max_messages": 4})["messages"]]
    with small_pages():
        for receipt in taken[::2]:
            api.nack("t", "g", {"receipts": [receipt], "delay_ms": HOUR_MS})
    with patch.object(retries, "LEASES_MAX", 0), pytest.raises(StoreUnavailable, match="as many leases"):
        api.ack("t", "g", {"receipts": taken[:1]})
    assert api.ack("t", "g", {"receipts": taken[:1]}) == {"acked": 1, "failed": []}
