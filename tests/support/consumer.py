"""A consumer of pushes, without sockets: it records its calls, and gives the answers that tests set."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from chalicelib.push.outside import ConsumerResponse, Crew, Outside, Threads

Json = dict[str, Any]
OK = ConsumerResponse(200)


@dataclass
class Call:
    url: str
    headers: Mapping[str, str]
    body: bytes
    timeout_ms: int

    @property
    def json(self) -> Json:
        told: Json = json.loads(self.body)
        return told

    @property
    def messages(self) -> list[Json]:
        messages: list[Json] = self.json["messages"]
        return messages

    @property
    def bodies(self) -> list[str]:
        return [message["body"] for message in self.messages]


class InTurn:
    """A crew whose tasks run one after another."""

    def __init__(self) -> None:
        self._tasks: list[Callable[[], None]] = []

    def start(self, task: Callable[[], None]) -> None:
        self._tasks.append(task)

    def join(self) -> None:
        for task in self._tasks:
            task()


@dataclass
class Consumer:
    """`answers`: the next ones; then `otherwise`. `react`: called instead, if it is set. `woken`: the wakes."""

    answers: list[ConsumerResponse] = field(default_factory=list)
    otherwise: ConsumerResponse = OK
    react: Callable[[Call], ConsumerResponse] | None = None
    calls: list[Call] = field(default_factory=list)
    woken: list[tuple[str, bool]] = field(default_factory=list)

    def post(self, url: str, headers: Mapping[str, str], body: bytes, timeout_ms: int) -> ConsumerResponse:
        call = Call(url, headers, body, timeout_ms)
        self.calls.append(call)
        if self.react:
            return self.react(call)
        return self.answers.pop(0) if self.answers else self.otherwise

    def invoke(self, function: str, body: bytes, timeout_ms: int) -> ConsumerResponse:
        return self.post(function, {}, body, timeout_ms)

    def wake(self, topic_name: str, is_staying: bool) -> None:
        self.woken.append((topic_name, is_staying))

    def outside(self, crew: Callable[[], Crew] = InTurn, allows_loopback: bool = False) -> Outside:
        return Outside(self.post, self.invoke, self.wake, crew, allows_loopback)

    def outside_in_threads(self) -> Outside:
        return self.outside(Threads)

    @property
    def bodies(self) -> list[list[str]]:
        return [call.bodies for call in self.calls]


def failing(*reports: Json) -> ConsumerResponse:
    """A 200 that reports failures of some messages."""
    return ConsumerResponse(200, json.dumps({"batchItemFailures": list(reports)}).encode())
