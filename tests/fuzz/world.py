"""A small service with some content. A seed decides its ids and receipts, so that tests can make requests with them
before there is a service to answer."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from chalicelib import wiring
from chalicelib.doors.http.door import respond
from local.memory.store import MemoryStore
from local.server import request_of
from tests.support.client import Answer, Client, Group

TOPIC = "orders"
GROUP = "billing"
QUEUES = 2
BODIES = ("one", "two", "three", "four", "five", "six", "seven", "eight")


@dataclass(frozen=True)
class Known:
    """Identifiers that a client could know. `transaction_ids`: undecided, committed, rolled back. `correlation_ids`: of
    a request that is answered, and of one that is not. `secret_id`: of the group. `token_id`: of a token. `receipts`:
    of messages in flight, acked, nacked, extended, and of another group. `tokens`: of pages of topics, groups and
    messages."""

    message_ids: tuple[str, ...]
    transaction_ids: tuple[str, ...]
    correlation_ids: tuple[str, ...]
    secret_id: str
    token_id: str
    receipts: tuple[str, ...]
    tokens: tuple[str, ...]


class World:
    """An instance of the service over a store of its own, with the content that `Known` names."""

    def __init__(self) -> None:
        self._client = Client(_copy(_furnished()[0].store), seed=2)

    def ask(self, method: str, target: str, raw: bytes | None, headers: dict[str, str]) -> Answer:
        """Sends a request as it is, query string and all."""
        wiring.use(self._client.api)
        lowered = {name.lower(): value for name, value in headers.items()}
        response = respond(request_of(method, target, lowered, raw))
        return Answer(response.status, response.headers, response.text.encode())


def known() -> Known:
    return _furnished()[1]


@cache
def _furnished() -> tuple[Client, Known]:
    client = Client()
    topic, other = client.topic(TOPIC, QUEUES), client.topic("payments")
    group, second = topic.group(GROUP, max_attempts=2), topic.group("shipping")
    stored = [topic.produce(body, queue=number % QUEUES, tag="x", key="k")[0] for number, body in enumerate(BODIES)]
    other.produce("elsewhere")
    receipts = (*_receipts(group), second.take_one()["receipt"])
    tokens = [client.get(path, limit=1).json["next"] for path in ("/topics", f"{topic.path}/groups")]
    ids = tuple(each["message_id"] for each in stored)
    halves = tuple(_begun(client, topic.path, number) for number in range(3))
    client.ask("POST", f"{topic.path}/transactions/{halves[1]}/commit")
    client.ask("POST", f"{topic.path}/transactions/{halves[2]}/rollback")
    requests = _asked(client, topic.path)
    secret_id = client.post(f"{group.path}/push/secrets").json["secret_id"]
    right = {"operations": ["read"], "topics": "*"}
    token_id = client.post("/tokens", name="reader", rights=[right]).json["token_id"]
    return client, Known(ids, halves, requests, secret_id, token_id, receipts, (*tokens, topic.read(limit=1)["next"]))


def _asked(client: Client, topic_path: str) -> tuple[str, ...]:
    path = f"{topic_path}/requests"
    answered, unanswered = (client.post(path, body="a", wait_ms=0).json["correlation_id"] for _ in range(2))
    client.post(f"/requests/{answered}/reply", body="b")
    return answered, unanswered


def _begun(client: Client, topic_path: str, number: int) -> str:
    half = client.post(f"{topic_path}/transactions", messages=[{"body": "half", "queue": number % QUEUES}])
    transaction_id: str = half.json["transaction_id"]
    return transaction_id


def _receipts(group: Group) -> list[str]:
    """Leases a part of each queue; acks the first message, nacks the second, extends the third."""
    first, second, third, *rest = [each for _ in range(QUEUES) for each in group.take(3)]
    group.ack(first)
    group.nack(second, delay_ms=0)
    extended = group.extend(third)["extended"][0]["new_receipt"]
    return [extended, *(each["receipt"] for each in (first, second, third, *rest))]


def _copy(store: MemoryStore) -> MemoryStore:
    """Items never change in place, so two stores can share them."""
    copied = MemoryStore()
    copied.put_all([item for partition in store._items.values() for item in partition.values()])
    return copied
