"""One request to each operation that succeeds, and what makes it be answered otherwise."""

from __future__ import annotations

from typing import Any

import pytest

from chalicelib.api import Demand
from chalicelib.doors.http import exchange, openapi
from tests.support.client import ALL_RIGHTS, Answer, Client, receipts
from tests.support.troubled_store import TroubledStore, broken, throttled_queue, unavailable


class Provoked:
    """A topic with a group that holds one message, and one request to each operation that succeeds on it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.monkeypatch = monkeypatch
        self.store = TroubledStore()
        self.client = Client(self.store)
        self.guarded = Client(self.store, self.client.clock, demand=Demand(requests=True))
        topic = self.client.topic("orders", queues=2)
        stored = topic.produce({"body": "a", "queue": 0}, {"body": "b", "queue": 1})
        group = topic.group("billing")
        waiting = topic.produce("c", delay_ms=1_000)
        held = receipts(group.take_one())
        halves = f"{topic.path}/transactions"
        half = f"{halves}/{self.client.post(halves, messages=[{'body': 'd'}]).json['transaction_id']}"
        self.correlation_id = self.client.post(f"{topic.path}/requests", body="a", wait_ms=0).json["correlation_id"]
        path = "/topics/orders/groups/billing"
        secret_id = self.client.post(f"{path}/push/secrets").json["secret_id"]
        token = {"name": "reader", "rights": [{"operations": ["read"], "topics": "refunds"}]}
        token_path = f"/tokens/{self.client.post('/tokens', **token).json['token_id']}"
        self.requests: dict[str, tuple[str, str, Any]] = {
            "listTopics": ("GET", "/topics", None),
            "putTopic": ("PUT", "/topics/orders", {}),
            "getTopic": ("GET", "/topics/orders", None),
            "deleteTopic": ("DELETE", "/topics/orders", None),
            "produce": ("POST", "/topics/orders/messages", {"messages": [{"body": "a", "queue": 0}]}),
            "readMessages": ("GET", "/topics/orders/messages", None),
            "getTrace": ("GET", f"/topics/orders/messages/{stored[0]['message_id']}/trace", None),
            "getMessage": ("GET", f"/topics/orders/messages/{stored[0]['message_id']}", None),
            "listDelayed": ("GET", "/topics/orders/delayed", None),
            "countDelayed": ("GET", "/topics/orders/waiting", None),
            "cancelDelayed": ("DELETE", f"/topics/orders/delayed/{waiting[0]['message_id']}", None),
            "beginTransaction": ("POST", halves, {"messages": [{"body": "e"}]}),
            "commitTransaction": ("POST", f"{half}/commit", None),
            "rollbackTransaction": ("POST", f"{half}/rollback", None),
            "checkTransactions": ("POST", f"{halves}/check", {}),
            "listTransactions": ("GET", halves, None),
            "listGroups": ("GET", "/topics/orders/groups", None),
            "putGroup": ("PUT", path, {"paused": False}),
            "getGroup": ("GET", path, None),
            "deleteGroup": ("DELETE", path, None),
            "pop": ("POST", f"{path}/pop", {"ack": held}),
            "ack": ("POST", f"{path}/ack", {"receipts": held}),
            "nack": ("POST", f"{path}/nack", {"receipts": held}),
            "bury": ("POST", f"{path}/bury", {"receipts": held}),
            "extend": ("POST", f"{path}/extend", {"receipts": held, "invisible_ms": 1_000}),
            "listDead": ("GET", f"{path}/dead", None),
            "redriveDead": ("POST", f"{path}/dead/redrive", {}),
            "purgeDead": ("DELETE", f"{path}/dead", None),
            "makePushSecret": ("POST", f"{path}/push/secrets", None),
            "listPushSecrets": ("GET", f"{path}/push/secrets", None),
            "deletePushSecret": ("DELETE", f"{path}/push/secrets/{secret_id}", None),
            "resetGroup": ("POST", f"{path}/reset", {"to": "earliest"}),
            "request": ("POST", "/topics/orders/requests", {"body": "a", "wait_ms": 0}),
            "getReply": ("GET", f"/requests/{self.correlation_id}", None),
            "reply": ("POST", f"/requests/{self.correlation_id}/reply", {"body": "a"}),
            "makeToken": ("POST", "/tokens", token),
            "listTokens": ("GET", "/tokens", None),
            "getToken": ("GET", token_path, None),
            "deleteToken": ("DELETE", token_path, None),
            "rotateToken": ("POST", f"{token_path}/rotate", {}),
            "getHealth": ("GET", "/health", None),
            "getMetrics": ("GET", "/metrics", None),
            "getOpenapi": ("GET", "/openapi.json", None),
        }

    def make_too_late(self, operation: str) -> None:
        """A delivered message is too late to cancel, a group with a push to pop; a transaction is decided once, and a
        queue drains first."""
        opposite = {"commitTransaction": "rollbackTransaction", "rollbackTransaction": "commitTransaction"}
        if operation in opposite:
            self.client.ask(*self.requests[opposite[operation]])
        self.client.clock.sleep(1_000)
        self.client.post("/topics/orders/groups/billing/pop")
        if operation == "pop":
            self.client.put("/topics/orders/groups/billing", push={"function": "bill"})
        if operation == "putTopic":
            self.client.put("/topics/orders", queues=1)
            self.requests[operation] = ("PUT", "/topics/orders", {"queues": 2})

    def prepare(self, operation: str, status: int) -> None:
        """Replies to the request, or lets it time out. A new one waits for that. Fills the queues, or lets them be."""
        if status == 429:
            self.client.put("/topics/orders/groups/slow")
            self.client.put("/topics/orders", max_depth=1)
        clock, path = self.client.clock, f"/requests/{self.correlation_id}"
        if operation == "request" and status in (200, 504):
            self.requests["request"] = ("POST", "/topics/orders/requests", {"body": "a"})
            if status == 200:
                clock.at(clock.ms + 100, self.reply)
        elif status == 409 or (operation, status) == ("getReply", 200):
            self.client.post(f"{path}/reply", body="b")
        elif status in (410, 504):
            clock.sleep(3_000)
            self.client.get(path)

    def reply(self) -> None:
        """To every request, through another instance."""
        other = self.client.another()
        for message in other.post("/topics/orders/groups/billing/pop").json["messages"]:
            if "correlation_id" in message:
                other.post(f"/requests/{message['correlation_id']}/reply", body="b")

    def refused(self, operation: str, status: int) -> Answer:
        self.guarded.token = self.client.make_token({**ALL_RIGHTS, "deny": True}) if status == 403 else None
        return self.guarded.ask(*self.requests[operation])

    def answer(self, operation: str, status: int) -> Answer:
        method, path, body = self.requests[operation]
        ask = self.client.ask
        match status:
            case 201 if method == "PUT":
                return ask(method, f"{path}-2", body)
            case 204 if operation == "produce":
                return ask(method, path, body, prefer="return=minimal")
            case 207:
                self.store.before = throttled_queue(1)
                return ask(method, path, {"messages": [{"body": "a", "queue": queue} for queue in (0, 1)]})
            case 400:
                return ask(method, path, body, query={"limt": 1})
            case 404:
                elsewhere = path.replace("orders", "others").replace(self.correlation_id, "x")
                return ask(method, elsewhere.replace("tokens/", "tokens/x"), body)
            case 405:
                return ask("PATCH", path, body)
            case 413:
                self.monkeypatch.setattr(exchange, "REQUEST_BYTES_MAX", 1_000)
                return ask(method, path, raw=b" " * 1_001)
            case 500:
                self.monkeypatch.setattr(openapi, "document", None)
                self.store.before = broken("the inside")
                return ask(method, path, body)
            case 503:
                return self.failing(operation).ask(method, path, body)
        return ask(method, path, body)

    def failing(self, operation: str) -> Client:
        """A caller whose store does not answer. Some operations read nothing but a token."""
        self.guarded.token = self.client.make_token(ALL_RIGHTS)
        self.store.before = unavailable("read", "write", "write_together")
        return self.guarded if operation in ("getMetrics", "getOpenapi") else self.client
