"""`make run` and `chalice local` call the consumers of pushed groups, on this machine too."""

from __future__ import annotations

import json
import queue
from collections.abc import Callable
from contextlib import AbstractContextManager
from http.server import BaseHTTPRequestHandler

import pytest

from tests.local.serving import ANSWER_SECONDS, Running, chalice_local, running
from tests.service.test_webhooks import answering, serving


@pytest.mark.parametrize(
    "serve",
    [running, lambda: chalice_local("--no-autoreload")],  # which would restart it when a test writes into the clone
    ids=["make run", "chalice local"],
)
def test_a_produce_is_pushed_to_a_webhook_on_this_machine(serve: Callable[[], AbstractContextManager[Running]]) -> None:
    had: queue.Queue[list[str]] = queue.Queue()

    def respond(handler: BaseHTTPRequestHandler, body: bytes) -> None:
        had.put([message["body"] for message in json.loads(body)["messages"]])
        answering(200)(handler, body)

    with serving(respond) as consumer, serve() as server:
        assert server.ask("PUT", "/topics/orders")[0] == 201
        group = "/topics/orders/groups/billing"
        assert server.ask("PUT", group, json.dumps({"push": {"url": f"{consumer.url}/hooks"}}))[0] == 201
        unreachable = json.dumps({"push": {"function": "bill"}})
        assert server.ask("PUT", "/topics/orders/groups/shipping", unreachable)[0] == 201
        for body in ("a", "b"):
            sent = json.dumps({"messages": [{"body": body}]})
            assert server.ask("POST", "/topics/orders/messages", sent)[0] == 200
            assert had.get(timeout=ANSWER_SECONDS) == [body]
        delayed = json.dumps({"messages": [{"body": "c", "delay_ms": 1_500}]})
        assert server.ask("POST", "/topics/orders/messages", delayed)[0] == 200
        assert had.get(timeout=ANSWER_SECONDS) == ["c"]
        shipping = json.loads(server.ask("GET", "/topics/orders/groups/shipping")[2])
        assert (shipping["lag"] + shipping["retrying"], shipping["dead"]) == (3, 0)  # there are no functions here
