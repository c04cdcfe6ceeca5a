"""A late ack looks again where a read shows a transaction by halves, as DynamoDB's reads may."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from chalicelib.api import Api
from chalicelib.base.limits import HOUR_MS
from chalicelib.cursors.cursor import Cursor
from chalicelib.service import Service
from chalicelib.store import Keys, Range, Read
from chalicelib.table import keys
from chalicelib.table.writes import Item, Key, Remove, Write
from local.memory.store import MemoryStore
from tests.support.clock import Clock
from tests.support.instances import instance, with_messages
from tests.support.late_store import LateStore


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
    api = Api(Service(store, clock.runtime(5)))
    api.put_topic("t", {"queues": 1})
    api.put_group("t", "g", {})
    api.produce("t", {"messages": [{"body": str(number)} for number in range(130)]})
    taken = api.pop("t", "g", {"max_messages": 130})["messages"]
    for message in taken[::2]:  # neighbours would share a lease
        api.nack("t", "g", {"receipts": [message["receipt"]], "delay_ms": HOUR_MS})
    api.ack("t", "g", {"receipts": [message["receipt"] for message in taken[1::2]]})
    topic = api.service.env.catalogue.current_topic("t")
    group = api.service.env.catalogue.group(topic, "g")
    cursor_key = group.cursor_key(0)

    def cursor() -> Cursor:
        return Cursor.of(MemoryStore.read(store, [Keys([cursor_key])])[0][0])

    [page] = cursor().pages.values()
    [item] = store.read([Range(keys.retry_partition(topic.id, group.id, 0), keys.FIRST, keys.LAST)])[0]
    paged = {offset for start, count, *_ in item["retries"] for offset in range(start, start + count)}
    for token in [token for token, lease in cursor().leases.items() if not lease.parked]:  # it is forgotten
        store.write(Write(cursor_key, (), (Remove(("leases", token)),)))
    late = next(message["receipt"] for message in taken if message["offset"] in paged)
    clock.ms += HOUR_MS + 1
    store.bring_back = lambda: Service(store, clock.runtime(9)).cursors.retries.bring_back(cursor(), page)
    store.cursor = cursor_key
    answer = Api(Service(store, clock.runtime(7))).ack("t", "g", {"receipts": [late]})
    assert store.stale == []
    assert answer == {"acked": 0, "failed": [{"receipt": late, "code": "LeaseLost"}]}


def test_by_message_an_ack_finds_the_page_of_a_retry_by_stale_reads() -> None:
    store, clock = LateStore(), Clock()
    api = with_messages(store, clock, 130, settle_by="message")
    taken = api.pop("t", "g", {"max_messages": 130})["messages"]
    store.fall_behind()
    receipts = [message["receipt"] for message in taken[::2]]  # neighbours would share a lease
    api.nack("t", "g", {"receipts": receipts, "delay_ms": HOUR_MS})
    assert instance(store, clock, seed=2).ack("t", "g", {"receipts": receipts}) == {"acked": 65, "failed": []}
