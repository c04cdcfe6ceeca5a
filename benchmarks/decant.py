"""Decant as a contender: in this process, and over HTTP."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from benchmarks.http_client import Connection
from chalicelib.api import Api

GROUP = "billing"


class InProcess:
    """`group`: the one that takes and settles; it can be changed on the way."""

    def __init__(self, api: Api, topic: str) -> None:
        self._api = api
        self._topic = topic
        self.group = GROUP
        api.put_topic(topic, {})
        self.add_group(GROUP)

    def add_group(self, name: str, start: str = "earliest") -> None:
        self._api.put_group(self._topic, name, {"start": start})

    def send(self, bodies: Sequence[str]) -> None:
        self._api.produce(self._topic, _batch(bodies))

    def take(self, count: int, ack: Sequence[str] = ()) -> list[str]:
        return _receipts(self._api.pop(self._topic, self.group, {"max_messages": count, "ack": list(ack)}))

    def settle(self, receipts: list[str]) -> None:
        self._api.ack(self._topic, self.group, {"receipts": receipts})


class Asking(Protocol):
    def ask(self, method: str, path: str, body: object) -> Any:
        """Sends a request, and returns the JSON of its answer."""


class OverHttp:
    """As `InProcess`. `is_kept`: one connection for all requests. `connection`: by another HTTP client."""

    def __init__(self, port: int, topic: str, is_kept: bool = True, connection: Asking | None = None) -> None:
        self._connection = connection or Connection(port, is_kept)
        self._path = f"/topics/{topic}"
        self.group = GROUP
        self._connection.ask("PUT", self._path, {})
        self.add_group(GROUP)

    def add_group(self, name: str, start: str = "earliest") -> None:
        self._connection.ask("PUT", f"{self._path}/groups/{name}", {"start": start})

    def send(self, bodies: Sequence[str]) -> None:
        self._connection.ask("POST", f"{self._path}/messages", _batch(bodies))

    def take(self, count: int, ack: Sequence[str] = ()) -> list[str]:
        return _receipts(self._ask_group("pop", {"max_messages": count, "ack": list(ack)}))

    def settle(self, receipts: list[str]) -> None:
        self._ask_group("ack", {"receipts": receipts})

    def _ask_group(self, verb: str, body: object) -> Any:
        return self._connection.ask("POST", f"{self._path}/groups/{self.group}/{verb}", body)


class Riding:
    """Acknowledges a batch in the request that takes the next one."""

    def __init__(self, ridden: InProcess | OverHttp) -> None:
        self._ridden = ridden
        self._held: list[str] = []

    def send(self, bodies: Sequence[str]) -> None:
        self._ridden.send(bodies)

    def take(self, count: int) -> list[str]:
        return self._ridden.take(count, ack=self._held)

    def settle(self, receipts: list[str]) -> None:
        self._held = receipts


def _batch(bodies: Sequence[str]) -> dict[str, Any]:
    return {"messages": [{"body": body} for body in bodies]}


def _receipts(popped: dict[str, Any]) -> list[str]:
    assert not popped["failed"], popped["failed"]
    return [message["receipt"] for message in popped["messages"]]
