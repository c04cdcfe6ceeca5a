"""Whatever brings a message back, a receive shows when it was received first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from chalicelib.core.base.errors import StoreUnavailable
from chalicelib.core.base.limits import INLINE_BYTES_MAX
from chalicelib.core.consuming.claim import UNREADABLE_MS
from chalicelib.core.cursors.retries import PARKED_MAX
from chalicelib.core.store import Read
from chalicelib.core.table.writes import Item
from tests.sqs.client import Sqs, queue
from tests.support.client import Client, Group, Topic
from tests.support.clock import Clock
from tests.support.orders import noise

Json = dict[str, Any]
FIRST = "ApproximateFirstReceiveTimestamp"


class Shop:
    """A queue, its topic and its group, which JSON clients share."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self.clock, self.sqs, self.url = clock, Sqs(client), queue(client)
        self.topic = Topic(client, "orders")
        self.group = Group(client, self.topic, "orders")

    def receive(self, **more: Any) -> list[Json]:
        asked = {"QueueUrl": self.url, "MaxNumberOfMessages": 10, "AttributeNames": ["All"], **more}
        messages: list[Json] = self.sqs.ReceiveMessage(**asked).get("Messages", [])
        return messages

    def change(self, message: Json, seconds: int) -> None:
        handle = message["ReceiptHandle"]
        self.sqs.ChangeMessageVisibility(QueueUrl=self.url, ReceiptHandle=handle, VisibilityTimeout=seconds)

    def wait(self, ms: int) -> None:
        self.clock.sleep(ms)


@pytest.fixture
def shop(client: Client, clock: Clock) -> Shop:
    return Shop(client, clock)


def expire(shop: Shop, _: Json) -> None:
    shop.wait(5_000)


def change_twice(shop: Shop, message: Json) -> None:
    shop.wait(2_000)
    shop.change(message, 100)
    shop.wait(2_000)
    shop.change(message, 3)
    shop.wait(3_000)


def show_at_once(shop: Shop, message: Json) -> None:
    shop.wait(1_234)
    shop.change(message, 0)


def nack(shop: Shop, message: Json) -> None:
    shop.wait(1_000)
    shop.group.nack(message["ReceiptHandle"], delay_ms=1_000)
    shop.wait(1_000)


def extend_a_nacked_one(shop: Shop, message: Json) -> None:
    shop.group.nack(message["ReceiptHandle"], delay_ms=1_000)
    shop.change(message, 9)
    shop.wait(9_000)


def nack_into_a_page(shop: Shop, message: Json) -> None:
    shop.topic.produce(*["b"] * 2 * PARKED_MAX)
    others = shop.group.take(2 * PARKED_MAX)
    shop.group.nack(*others[::2], delay_ms=30_000)  # each a lease of its own
    shop.group.ack(*others[1::2])
    shop.group.nack(message["ReceiptHandle"], delay_ms=60_000)
    kinds = [key.split("#")[0] for key in shop.topic.client.store._items]
    assert "retry" in kinds
    shop.wait(30_000)
    shop.group.ack(*shop.group.take(PARKED_MAX))
    shop.wait(30_000)


def let_json_clients_take_it(shop: Shop, _: Json) -> None:
    shop.wait(5_000)
    taken = shop.group.take_one(invisible_ms=1_000)
    shop.group.extend(taken, invisible_ms=2_000)
    shop.wait(2_000)


@pytest.mark.parametrize(
    "way",
    [
        expire,
        change_twice,
        show_at_once,
        nack,
        extend_a_nacked_one,
        nack_into_a_page,
        let_json_clients_take_it,
    ],
)
def test_the_first_receive_stays_the_first(shop: Shop, way: Callable[[Shop, Json], None]) -> None:
    shop.topic.produce("a")
    shop.wait(777)
    first_ms = shop.clock.now()
    [message] = shop.receive(VisibilityTimeout=5)
    for _ in range(2):
        assert message["Attributes"][FIRST] == str(first_ms)
        way(shop, message)
        [message] = [each for each in shop.receive(VisibilityTimeout=5) if each["Body"] == "a"]


def test_a_part_of_a_receive_keeps_its_time(shop: Shop) -> None:
    shop.topic.produce("a", "b", "c")
    first_ms = shop.clock.now()
    a, b, _ = shop.receive(VisibilityTimeout=5)
    shop.wait(1_000)
    shop.sqs.DeleteMessage(QueueUrl=shop.url, ReceiptHandle=a["ReceiptHandle"])
    shop.change(b, 10)
    for waited_ms, body in ((4_000, "c"), (6_000, "b")):
        shop.wait(waited_ms)
        [message] = shop.receive(VisibilityTimeout=60)
        assert (message["Body"], message["Attributes"][FIRST]) == (body, str(first_ms))


def test_a_receive_that_did_not_take_place_keeps_the_first(shop: Shop) -> None:
    shop.topic.produce("a")
    first_ms = shop.clock.now()
    shop.receive(VisibilityTimeout=5)
    shop.wait(5_000)
    [message] = shop.receive(VisibilityTimeout=5)
    service = shop.topic.client.api.service
    service.consuming.settler.give_back(service.env.catalogue.topic("orders"), "orders", [message["ReceiptHandle"]])
    shop.wait(1_000)
    [message] = shop.receive()
    told = message["Attributes"]
    assert (told[FIRST], told["ApproximateReceiveCount"]) == (str(first_ms), "2")


def test_a_receive_that_could_not_be_read_keeps_the_first(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    [body] = noise(1, 2 * INLINE_BYTES_MAX)
    shop.topic.produce(body)
    first_ms = shop.clock.now()
    shop.receive(VisibilityTimeout=5)
    shop.wait(5_000)
    store = shop.topic.client.store
    read = store.read

    def troubled(reads: Sequence[Read]) -> list[list[Item]]:
        if any("payload#" in repr(each) for each in reads):
            raise StoreUnavailable("throttled")
        return read(reads)

    monkeypatch.setattr(store, "read", troubled)
    assert shop.topic.client.another().post(f"{shop.group.path}/pop").status == 503
    monkeypatch.undo()
    shop.wait(UNREADABLE_MS)
    [message] = shop.receive()
    assert message["Attributes"][FIRST] == str(first_ms)


def test_a_reset_begins_anew(shop: Shop) -> None:
    shop.topic.produce("a")
    assert shop.receive()
    shop.wait(1_000)
    shop.group.reset("earliest")
    [message] = shop.receive()
    assert message["Attributes"][FIRST] == str(shop.clock.now())


def test_pops_over_json_do_not_count(shop: Shop) -> None:
    shop.topic.produce("a")
    shop.group.pop(invisible_ms=1_000)
    shop.wait(1_000)
    first_ms = shop.clock.now()
    for count in ("2", "3"):
        [message] = shop.receive(VisibilityTimeout=1)
        shown = {name: message["Attributes"][name] for name in ("ApproximateReceiveCount", FIRST)}
        assert shown == {"ApproximateReceiveCount": count, FIRST: str(first_ms)}
        shop.wait(1_000)
