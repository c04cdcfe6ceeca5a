"""A client of the SQS door in JSON 1.0, over the routes of one instance."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from chalicelib.doors.sqs.registry import GROUP_SETTINGS, NewQueue, queues_of
from tests.support.client import Answer, Client

Json = dict[str, Any]


@dataclass(frozen=True)
class Refused:
    """An error as clients see it. `code`: of the header, without its prefix."""

    status: int
    shape: str
    code: str
    message: str


class Sqs:
    """Each action is a method; it must succeed. `refused` calls one that must not."""

    def __init__(self, client: Client) -> None:
        self.client = client

    def ask(
        self, action: str, path: str = "/", raw: bytes | None = None, headers: Json | None = None, **members: Any
    ) -> Answer:
        sent = raw if raw is not None else json.dumps(members).encode()
        known = {
            "content-type": "application/x-amz-json-1.0",
            "x-amz-target": f"AmazonSQS.{action}",
            "host": "sqs.test",
        }
        return self.client.ask("POST", path, raw=sent, **{**known, **(headers or {})})

    def __getattr__(self, action: str) -> Any:
        def call(**members: Any) -> Json:
            answer = self.ask(action, **members)
            assert answer.status == 200, answer
            assert answer.headers["Content-Type"] == "application/x-amz-json-1.0"
            body: Json = answer.json or {}
            return body

        return call

    def refused(self, action: str, **members: Any) -> Refused:
        answer = self.ask(action, **members)
        return refusal_in(answer)


def refusal_in(answer: Answer) -> Refused:
    assert answer.status >= 400, answer
    assert "x-amzn-errortype" not in {name.lower() for name in answer.headers}
    code, fault = answer.headers["x-amzn-query-error"].split(";")
    assert fault == ("Sender" if answer.status < 500 else "Receiver")
    assert re.fullmatch(
        "[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", answer.headers["x-amzn-RequestId"]
    )
    shape = answer.json["__type"].split("#")[1]
    return Refused(answer.status, shape, code.removeprefix("AWS.SimpleQueueService."), answer.json["message"])


def queue(client: Client, name: str = "orders", queues: int = 1, **attributes: str) -> str:
    """Makes a queue over a topic of its own, and returns its URL."""
    made = NewQueue(name, name, {"queues": queues}, name, GROUP_SETTINGS, attributes, {})
    assert queues_of(client.api.service).make(made) is None
    return f"http://sqs.test/000000000000/{name}"
