"""The age of a cached topic or group counts from before the read, since the answer may be under way for seconds."""

from __future__ import annotations

from typing import Any

from chalicelib.core.base.limits import METADATA_AGE_MS_MAX, SECOND_MS
from chalicelib.core.table import keys
from chalicelib.core.table.writes import Key
from tests.support.client import Client, Json, receipts
from tests.support.clock import Clock
from tests.support.troubled_store import TroubledStore, unavailable

_ON_ITS_WAY_MS = 4 * SECOND_MS


def slow_answer(store: TroubledStore, clock: Clock, key: Key) -> None:
    """The answer to the next read of this item is on its way for long."""

    def trouble(verb: str, about: Any) -> None:
        if verb == "read" and any(key in getattr(read, "keys", ()) for read in about):
            store.after = unavailable()
            clock.sleep(_ON_ITS_WAY_MS)

    store.after = trouble


def test_settings_of_a_topic_whose_read_took_long_are_read_again_in_time() -> None:
    store = TroubledStore()
    client = Client(store)
    topic, other, clock = client.topic("orders"), client.another(), client.clock
    catalogue = other.api.service.env.catalogue
    clock.at(clock.ms + 1, lambda: client.put(topic.path, queues=2))
    slow_answer(store, clock, keys.topic("orders"))
    seen = [catalogue.topic("orders").queues]
    for ms in (METADATA_AGE_MS_MAX - _ON_ITS_WAY_MS, 1):
        clock.sleep(ms)
        seen.append(catalogue.topic("orders").queues)
    assert seen == [1, 1, 2]


def test_a_rule_of_settling_whose_read_took_long_is_read_again_in_time() -> None:
    store = TroubledStore()
    client = Client(store)
    topic, other, clock = client.topic("orders"), client.another(), client.clock
    group = topic.group("billing", settle_by="delivery", invisible_ms=SECOND_MS)
    topic.produce("a")
    message: Json = group.take_one()
    clock.at(clock.ms + 1, lambda: group.change(settle_by="message"))
    slow_answer(store, clock, keys.group(client.api.service.env.catalogue.current_topic("orders").id, "billing"))
    assert other.get(group.path).json["settle_by"] == "delivery"
    clock.sleep(METADATA_AGE_MS_MAX - _ON_ITS_WAY_MS + 1)
    assert other.post(f"{group.path}/ack", receipts=receipts(message)).json == {"acked": 1, "failed": []}
