"""The data dictionary says what the service writes: nothing more, nothing less."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from random import Random
from typing import Any
from unittest.mock import patch

from chalicelib.api import Demand
from chalicelib.core.base.errors import StoreUnavailable
from chalicelib.core.base.limits import DAY_MS, ENTRY_LATE_MS, HEARD_MS, HOUR_MS
from chalicelib.core.delays.promoter import DecisionChain
from chalicelib.core.table.writes import Item, Key
from chalicelib.push.outside import ConsumerResponse
from local.memory.store import MemoryStore
from tests.spark.service import busy_world
from tests.support.client import Client, Group, Topic
from tests.support.consumer import Consumer
from tests.support.data_dictionary import ATTRIBUTES, ITEMS, kind_of

_TYPES = {bool: "BOOL", int: "N", str: "S", bytes: "B", list: "L", dict: "M"}
_ENTRIES = {("segment", "entries"), ("decision", "e")} | {
    (kind, "entry") for kind in ("delayed", "transaction", "dedup", "reply")
}

Written = dict[str, dict[str, set[str]]]


class RecordingStore(MemoryStore):
    """Remembers which attributes of which types items had, also of those that are gone."""

    def __init__(self) -> None:
        super().__init__(keeps_blobs=True)
        self.written: Written = defaultdict(lambda: defaultdict(set))

    def _put(self, key: Key, item: Item | None) -> None:
        super()._put(key, item)
        kind = kind_of(*key)
        for name, value in (item or {}).items():
            if name in ("pk", "sk"):
                continue
            self.written[kind][name].add(_TYPES[type(value)])
            for entry in _entries(kind, name, value):
                for inner, part in entry.items():
                    self.written["entry"][inner].add(_TYPES[type(part)])


def _entries(kind: str, name: str, value: Any) -> Iterator[dict[str, Any]]:
    if (kind, name) in _ENTRIES:
        listed = value if isinstance(value, list) else [value]
        yield from (entry for entry in listed if not isinstance(entry, bytes))


def _everything() -> Written:
    """The attributes that the service writes when each of its features is used."""
    store = RecordingStore()
    client = busy_world(store).client
    group = Topic(client, "orders").group("steered", rate_limit=2.5, filter={"tags": ["paid"]}, start=1)
    group.pop(consumer_id="ann")
    named = Topic(client, "orders").group("named", start="latest")
    assert client.put("/topics/orders", retention_ms=30 * DAY_MS, max_depth=9_999, zones={"eu": [0]}).status == 200
    Topic(client, "orders").produce("near", zone="eu")
    named.take_one(zone="eu")
    topic = Topic(client, "delayed")
    topic.produce(
        {"body": "later", "dedup_id": "c", "ttl_ms": DAY_MS},
        {"body": Random(1).randbytes(2_000).hex(), "dedup_id": "d"},
        delay_ms=5_000,
    )
    for number, size in enumerate((2_000, 20)):
        half = {
            "messages": [{"body": Random(number).randbytes(size).hex()}, {"body": "b", "queue": 0, "ttl_ms": 5_000}]
        }
        begun = client.post("/topics/delayed/transactions", **half, check_after_ms=1).json
        client.clock.sleep(1)
        client.post("/topics/delayed/transactions/check")
        decision = f"/topics/delayed/transactions/{begun['transaction_id']}/{('commit', 'rollback')[number]}"
        assert client.post(decision).status == 200
    _ask(client)
    assert client.delete("/topics/delayed").status == 204
    _push(client)
    _trace(client)
    _purge(client)
    _deliver_late(client)
    _deliver_ahead(client)
    client.topic("elastic", queues=2)
    assert client.put("/topics/elastic", queues=1).status == 200
    client.clock.sleep(HEARD_MS + ENTRY_LATE_MS)
    client.api.service.sweeps.check()
    return store.written


def _purge(client: Client) -> None:
    topic = client.topic("waited")
    topic.produce("a", delay_ms=5_000)
    topic.group("purged").reset("now")


def _deliver_late(client: Client) -> None:
    """A promotion is decided, and carried out an hour later."""
    assert client.put("/topics/late", index_keys=True).status == 201
    topic = Topic(client, "late")
    group = topic.group("patient")
    topic.produce({"body": "a", "key": "k"}, delay_ms=1_000)
    client.clock.sleep(6_000)
    with patch.object(DecisionChain, "carry_out", side_effect=StoreUnavailable("died")):
        assert client.post(f"{group.path}/pop").status == 503
    client.clock.sleep(HOUR_MS)
    group.take_one()


def _deliver_ahead(client: Client) -> None:
    """A message is delivered after a clock was set back by half an hour."""
    topic = Topic(client, "late")
    for back_ms in (0, HOUR_MS // 2):
        client.clock.set_back_ms = back_ms
        topic.produce({"body": "a", "key": "k"}, delay_ms=1_000)
        client.clock.sleep(1_000)
        client.api.service.sweeps.forward()
    client.clock.set_back_ms = 0


def _trace(client: Client) -> None:
    """A message of a traced topic is popped and nacked, by the holder of a token."""
    assert client.put("/topics/traced", trace=True).status == 201
    topic = Topic(client, "traced")
    topic.group("watched")
    topic.produce("a")
    holder = Client(client.store, client.clock, seed=4, demand=Demand(requests=True))
    holder.token = holder.make_token()
    group = Group(holder, Topic(holder, "traced"), "watched")
    group.nack(group.take_one(consumer_id="ann"), reason="no stock")


def _ask(client: Client) -> None:
    """One request is answered, one times out."""
    group = client.topic("asked").group("workers")
    assert client.post("/topics/asked/requests", body="a", timeout_ms=100).status == 504
    client.post("/topics/asked/requests", body="a", wait_ms=0)
    request = group.take_one()
    path = f"/requests/{request['correlation_id']}/reply"
    assert client.post(path, body="b", receipt=request["receipt"]).json["acked"] == 1


def _push(client: Client) -> None:
    """A consumer fails once, and is then called again."""
    consumer = Consumer([ConsumerResponse(500)])
    pushing = Client(client.store, client.clock, seed=2, outside=consumer.outside())
    topic = pushing.topic("pushed")
    aside = {"topic": "orders"}
    group = topic.group("called", push={"url": "https://shop.example/"}, backoff_ms=[1_000], dead_letters=aside)
    assert pushing.post(f"{group.path}/push/secrets").status == 201
    topic.produce("a")
    pushing.api.service.pushing.run("pushed")
    assert len(consumer.calls) == 3  # one of them for the group that failed before


def test_the_data_dictionary_names_what_is_written_and_nothing_else() -> None:
    written = _everything()
    assert {kind: set(names) for kind, names in written.items()} == {
        kind: set(names) for kind, names in ATTRIBUTES.items()
    }
    found = {(kind, name): types for kind, names in written.items() for name, types in names.items()}
    assert found == {(kind, name): set(types) for kind, names in ATTRIBUTES.items() for name, types in names.items()}


def test_each_kind_of_item_has_its_attributes_documented() -> None:
    assert ATTRIBUTES.keys() == ITEMS.keys() | {"entry"}
