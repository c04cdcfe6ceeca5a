"""A client of the real routes, over a store in memory and a clock that only sleeping moves."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from chalicelib import wiring
from chalicelib.api import NOBODY, Api, Demand
from chalicelib.core.cursors.retries import PARKED_MAX, RETRY_PAGE_LEASES, RETRY_SOON_MS
from chalicelib.doors.http.door import respond
from chalicelib.push.outside import NOWHERE, Outside
from chalicelib.service import Service
from local.memory.store import MemoryStore
from local.server import request_of
from tests.support import documented
from tests.support.clock import Clock

Json = dict[str, Any]

EMPTY = {"messages": [], "acked": 0, "failed": []}
"""The answer to a pop that finds nothing."""

FRESH_QUEUE = {
    "queue": 0,
    "committed_offset": 0,
    "next_offset": 0,
    "end_offset": 0,
    "ready": 0,
    "in_flight": 0,
    "oldest_ready_at_ms": None,
    "last_pop_at_ms": None,
    "last_consumer_id": None,
}
"""The progress of a queue where nothing has happened."""

ALL_RIGHTS: Json = {"operations": ["produce", "consume", "read", "admin"], "topics": "*"}


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    raw: bytes

    @property
    def json(self) -> Any:
        """The body as JSON; a text stays as it is."""
        if self.headers.get("Content-Type", "").startswith("text/"):
            return self.raw.decode()
        return json.loads(self.raw) if self.raw else None

    @property
    def problem(self) -> tuple[int, str]:
        """Status and code; asserts that the answer is a complete problem."""
        body = self.json
        assert self.headers["Content-Type"] == "application/problem+json"
        assert body["status"] == self.status
        assert all(isinstance(body[member], str) and body[member] for member in ("type", "title", "code", "detail"))
        return self.status, body["code"]


class Client:
    """One instance of the service. `another` is a second one over the same store. `demand`: which callers have to show
    a token; `token` is the one that it shows."""

    def __init__(
        self,
        store: MemoryStore | None = None,
        clock: Clock | None = None,
        seed: int = 1,
        outside: Outside = NOWHERE,
        demand: Demand = NOBODY,
    ) -> None:
        self.store = store or MemoryStore()
        self.clock = clock or Clock()
        self.seed = seed
        self.outside = outside
        self.demand = demand
        self.token: str | None = None
        self.api = Api(Service(self.store, self.clock.runtime(seed), outside=outside), demand)

    def another(self) -> Client:
        return Client(self.store, self.clock, self.seed + 1, self.outside, self.demand)

    def make_token(self, *rights: Json, **fields: Any) -> str:
        """Makes a token, without showing one."""
        made: str = self.api.make_token({"name": "a", "rights": [*rights] or [ALL_RIGHTS], **fields})["token"]
        return made

    def ask(
        self, method: str, path: str, body: Any = None, *, raw: bytes | None = None, query: Any = (), **headers: str
    ) -> Answer:
        """Sends `body` as JSON, or `raw` as it is. Fails unless the document describes the answer, except for answers
        of other doors."""
        wiring.use(self.api)
        sent = raw if raw is not None else self.encoded(body)
        target = f"{path}?{urlencode(query, doseq=True)}" if query else path
        given = {"content-type": "application/json", **self.credentials(), **headers}
        lowered = {name.lower(): value for name, value in given.items()}
        response = respond(request_of(method, target, lowered, sent))
        answer = Answer(response.status, response.headers, response.text.encode())
        operation = None if "x-mq-version" in lowered else documented.operation_of(method, path)
        if operation:
            documented.check(operation, answer.status, answer.headers, answer.json)
        return answer

    @staticmethod
    def encoded(body: Any) -> bytes:
        return b"" if body is None else json.dumps(body).encode()

    def credentials(self) -> Json:
        return {} if self.token is None else {"authorization": f"Bearer {self.token}"}

    def get(self, path: str, **query: Any) -> Answer:
        return self.ask("GET", path, query=query)

    def put(self, path: str, **body: Any) -> Answer:
        return self.ask("PUT", path, body)

    def post(self, path: str, **body: Any) -> Answer:
        return self.ask("POST", path, body)

    def delete(self, path: str) -> Answer:
        return self.ask("DELETE", path)

    def topic(self, name: str, queues: int = 1) -> Topic:
        """A new topic."""
        assert self.put(f"/topics/{name}", queues=queues).status == 201
        return Topic(self, name)


class Topic:
    """The operations of one topic; each must succeed."""

    def __init__(self, client: Client, name: str) -> None:
        self.client = client
        self.name = name
        self.path = f"/topics/{name}"

    def group(self, name: str, **settings: Any) -> Group:
        """A new group."""
        assert self.client.put(f"{self.path}/groups/{name}", **settings).status == 201
        return Group(self.client, self, name)

    def produce(self, *messages: str | Json, **fields: Any) -> list[Json]:
        """Stores messages, a string as the body of one. `fields` go into each."""
        batch = [{**({"body": message} if isinstance(message, str) else message), **fields} for message in messages]
        answer = self.client.post(f"{self.path}/messages", messages=batch)
        assert answer.status == 200, answer.json
        results: list[Json] = answer.json["messages"]
        return results

    def read(self, **query: Any) -> Json:
        answer = self.client.get(f"{self.path}/messages", **query)
        assert answer.status == 200, answer.json
        page: Json = answer.json
        return page

    def details(self) -> Json:
        details: Json = self.client.get(self.path).json
        return details

    def delete(self) -> None:
        assert self.client.delete(self.path).status == 204


class Group:
    """The operations of one group; each must succeed."""

    def __init__(self, client: Client, topic: Topic, name: str) -> None:
        self.client = client
        self.topic = topic
        self.name = name
        self.path = f"{topic.path}/groups/{name}"

    def seen_by(self, client: Client) -> Group:
        return Group(client, Topic(client, self.topic.name), self.name)

    def change(self, **settings: Any) -> None:
        assert self.client.put(self.path, **settings).status == 200

    def delete(self) -> None:
        assert self.client.delete(self.path).status == 204

    def pop(self, **fields: Any) -> Json:
        return self._post("pop", **fields)

    def take(self, count: int, **fields: Any) -> list[Json]:
        """Pops exactly `count` messages."""
        messages: list[Json] = self.pop(max_messages=count, **fields)["messages"]
        assert len(messages) == count
        return messages

    def take_one(self, **fields: Any) -> Json:
        return self.take(1, **fields)[0]

    def drained(self) -> list[Json]:
        """Pops all messages, and acks them."""
        got: list[Json] = []
        while messages := self.pop(max_messages=256)["messages"]:
            self.ack(*messages)
            got += messages
        return got

    def nack_into_a_page(self, delay_ms: int, **fields: Any) -> None:
        """Leaves the group `RETRY_PAGE_LEASES` new messages, all of them in a retry page, due a little earlier."""
        self.topic.produce(*["x"] * (PARKED_MAX + 1), **fields)
        for place, message in enumerate(self.take(PARKED_MAX + 1)):
            is_first = place <= PARKED_MAX - RETRY_PAGE_LEASES
            self.nack(message, delay_ms=RETRY_SOON_MS + 1 if is_first else delay_ms)
        self.client.clock.sleep(RETRY_SOON_MS + 1)
        assert len(self.drained()) == PARKED_MAX + 1 - RETRY_PAGE_LEASES

    def ack(self, *messages: Json | str) -> Json:
        """Shows the receipts of these messages, or these receipts."""
        return self._post("ack", receipts=receipts(*messages))

    def nack(self, *messages: Json | str, **fields: Any) -> Json:
        return self._post("nack", receipts=receipts(*messages), **fields)

    def extend(self, *messages: Json | str, invisible_ms: int = 60_000) -> Json:
        return self._post("extend", receipts=receipts(*messages), invisible_ms=invisible_ms)

    def reset(self, to: Any) -> Json:
        return self._post("reset", to=to)

    def progress(self) -> Json:
        details: Json = self.client.get(self.path).json
        return details

    def totals(self) -> tuple[int, int, int, int]:
        """ready, in_flight, retrying, dead; and `lag` must be the sum of the first two."""
        now = self.progress()
        assert now["lag"] == now["ready"] + now["in_flight"]
        return now["ready"], now["in_flight"], now["retrying"], now["dead"]

    def queue(self, number: int = 0) -> Json:
        queue: Json = self.progress()["queues"][number]
        assert queue["queue"] == number
        return queue

    def _post(self, verb: str, **body: Any) -> Json:
        answer = self.client.post(f"{self.path}/{verb}", **body)
        assert answer.status == 200, answer.json
        result: Json = answer.json
        return result


def receipts(*messages: Json | str) -> list[str]:
    return [message if isinstance(message, str) else message["receipt"] for message in messages]


def failed(answer: Json) -> list[str]:
    """The codes of the receipts that did not count, in the order of the answer."""
    return [failure["code"] for failure in answer["failed"]]


def bodies(messages: list[Json]) -> list[str]:
    return [message["body"] for message in messages]


def offsets(messages: list[Json]) -> list[int]:
    return [message["offset"] for message in messages]
