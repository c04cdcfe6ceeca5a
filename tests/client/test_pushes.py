"""Consumers as Lambda functions and webhooks, called by the real service."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import threading
import time
from collections.abc import Iterator
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, make_server

import pytest

from decant import AsyncDecant, Bury, Decant, Message, Retry, SettingError
from decant.aio_transport import InThreads
from decant.pushes import Guard, Refusal
from decant.testing import Server
from decant.testing.server import ADDRESS, InProcess
from tests.client.support.crews import until

SECRET, OTHER = (f"whsec_{base64.b64encode(bytes([number]) * 24).decode()}" for number in range(2))
NOW_S = 1_700_000_000


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as server:
        server.client.api.put_topic("orders", queues=1)
        yield server


@pytest.fixture(params=["threads", "asyncio"])
def mq(request: pytest.FixtureRequest, server: Server) -> Any:
    if request.param == "threads":
        return Decant(ADDRESS, transport=InProcess(server))
    return AsyncDecant(ADDRESS, transport=InThreads(InProcess(server)))


def consumer(mq: Any, handle: Any, **how: Any) -> Any:
    async def handle_batch(messages: Any) -> Any:
        return handle(messages)

    async def handle_one(value: Any, message: Any) -> Any:
        return handle(value, message)

    later = handle_batch if how.get("batch") else handle_one
    return mq.consumer("orders", group="billing", **how)(handle if isinstance(mq, Decant) else later)


def event(*bodies: str, **fields: Any) -> dict[str, Any]:
    about = {"topic": "orders", "queue": 0, "key": None, "properties": {}, **fields}
    messages = [{"message_id": f"id {body}", "body": body, "offset": n, **about} for n, body in enumerate(bodies)]
    return {"topic": "orders", "group": "billing", "messages": messages}


def by_word(value: str, _message: Message[str]) -> None:
    if value == "retry":
        raise Retry(7, "busy")
    if value == "fail":
        raise ValueError("no")
    if value == "bury":
        raise Bury("malformed")


# -- functions ---------------------------------------------------------------------------------------------------------


def test_a_function_returns_which_messages_failed(mq: Any) -> None:
    bill = consumer(mq, by_word)
    assert bill.on_push(event("a", "retry", "fail", "bury", "b"), None) == {
        "batchItemFailures": [
            {"itemIdentifier": "id retry", "reason": "busy", "delay_ms": 7_000},
            {"itemIdentifier": "id fail", "reason": "ValueError: no"},
            {"itemIdentifier": "id bury", "reason": "malformed"},
        ]
    }


@pytest.mark.parametrize(("ordered", "failed"), [(True, ["id fail", "id b"]), ("key", ["id fail", "id b"])])
def test_a_function_in_order_goes_no_further_than_a_failure(mq: Any, ordered: Any, failed: list[str]) -> None:
    bill = consumer(mq, by_word, ordered=ordered)
    report = bill.on_push(event("a", "fail", "b", key="k"))
    assert [failure["itemIdentifier"] for failure in report["batchItemFailures"]] == failed


def test_a_function_gets_batches(mq: Any) -> None:
    sizes: list[int] = []
    bill = consumer(mq, lambda messages: sizes.append(len(messages)), batch=2)
    assert bill.on_push(event("a", "b", "c")) == {"batchItemFailures": []}
    assert sizes == [2, 1]


def test_a_function_replies(server: Server, mq: Any) -> None:
    asked = server.client.api.request("orders", body="2+2", wait_ms=0)
    bill = consumer(mq, lambda _value, _message: "4")
    bill.on_push(event("2+2", correlation_id=asked["correlation_id"]))
    found: Any = server.client.api.get_reply(asked["correlation_id"])
    assert found["reply"]["body"] == "4"


@pytest.mark.parametrize("wrong", [None, [], {}, {"messages": 3}, {"messages": [{}]}])
def test_what_is_no_push_is_refused(mq: Any, wrong: Any) -> None:
    with pytest.raises(ValueError, match="list of messages"):
        consumer(mq, by_word).on_push(wrong)


# -- signatures --------------------------------------------------------------------------------------------------------


def signed(body: bytes, *secrets: str, sent_at: int = NOW_S) -> dict[str, str]:
    """As the service signs."""
    from chalicelib.core.catalogue.push import PushSecret
    from chalicelib.push.courier import signed

    keys = [PushSecret("id", base64.b64decode(secret.removeprefix("whsec_")), 0) for secret in secrets]
    return signed("msg_1", sent_at, body, keys)


@pytest.mark.parametrize("secrets", [(SECRET,), (OTHER, SECRET), (SECRET, OTHER)], ids=["one", "second", "first"])
def test_a_call_signed_by_any_known_secret_is_accepted(secrets: tuple[str, ...]) -> None:
    guard = Guard([SECRET], clock=lambda: NOW_S + 299)
    assert guard.event("POST", signed(b"{}", *secrets), b"{}") == {}
    assert Guard([OTHER, SECRET], clock=lambda: NOW_S).event("POST", signed(b"{}", SECRET), b"{}") == {}


@pytest.mark.parametrize(
    ("headers", "body", "status", "detail"),
    [
        (signed(b"{}", OTHER), b"{}", 401, "known secret"),
        (signed(b"{}"), b"{}", 401, "known secret"),
        (signed(b"{}", SECRET), b"{} ", 401, "known secret"),
        ({**signed(b"{}", SECRET), "webhook-id": "msg_2"}, b"{}", 401, "known secret"),
        ({**signed(b"{}", SECRET), "webhook-signature": "v1,\xff v2,"}, b"{}", 401, "known secret"),
        (signed(b"{}", SECRET, sent_at=NOW_S - 301), b"{}", 401, "too far"),
        (signed(b"{}", SECRET, sent_at=NOW_S + 301), b"{}", 401, "too far"),
        ({}, b"{}", 401, "webhook-timestamp"),
        ({**signed(b"{}", SECRET), "webhook-timestamp": "\u0661"}, b"{}", 401, "webhook-timestamp"),
        (signed(b"{", SECRET), b"{", 400, "no JSON"),
    ],
)
def test_other_calls_are_refused(headers: dict[str, str], body: bytes, status: int, detail: str) -> None:
    with pytest.raises(Refusal, match=detail) as refused:
        Guard([SECRET], clock=lambda: NOW_S).event("POST", headers, body)
    assert refused.value.answer.status == status


def test_a_webhook_without_secrets_refuses_all() -> None:
    with pytest.raises(Refusal, match="no secrets"):
        Guard([]).event("POST", {}, b"{}")


@pytest.mark.parametrize("secret", ["", "whsec_", "whsec_!", "secret", 5])
def test_a_secret_that_is_none_is_refused(mq: Any, secret: Any) -> None:
    with pytest.raises(SettingError, match="looks like whsec_"):
        consumer(mq, by_word, secrets=[secret])


# -- webhooks ----------------------------------------------------------------------------------------------------------


class Quiet(WSGIRequestHandler):
    def log_message(self, *_: Any) -> None:
        pass


def test_the_service_calls_a_webhook_of_wsgi(server: Server) -> None:
    api, seen = server.client.api, list[tuple[str, str]]()
    api.put_group("orders", "billing", max_attempts=1)
    secret = api.make_push_secret("orders", "billing")["secret"]

    @server.client.consumer("orders", group="billing", secrets=[secret])
    def bill(order: str, message: Message[str]) -> None:
        seen.append((order, message.id))
        by_word(order, message)

    with make_server("127.0.0.1", 0, bill.wsgi, handler_class=Quiet) as web:
        threading.Thread(target=web.serve_forever, args=(0.01,), daemon=True).start()
        api.put_group("orders", "billing", push={"url": f"http://127.0.0.1:{web.server_port}/hook"})
        sent = server.client.send_all("orders", ["a", "fail", "b"])
        until(lambda: api.get_group("orders", "billing")["lag"] == 0, server.clock, 1)
        web.shutdown()
    assert seen == [("a", sent[0].id), ("fail", sent[1].id), ("b", sent[2].id)]
    assert [dead["reason"] for dead in api.list_dead("orders", "billing")["messages"]] == ["ValueError: no"]


def call_wsgi(application: Any, body: bytes, **environ: Any) -> tuple[str, Any]:
    said: list[Any] = []
    headers = {f"HTTP_{name.upper().replace('-', '_')}": value for name, value in signed_now(body).items()}
    about = {"REQUEST_METHOD": "POST", "CONTENT_LENGTH": str(len(body)), "wsgi.input": io.BytesIO(body), **headers}
    [answer] = application({**about, **environ}, lambda status, _headers: said.append(status))
    return said[0][:3], json.loads(answer)


def signed_now(body: bytes) -> dict[str, str]:
    return signed(body, SECRET, sent_at=int(time.time()))


def test_a_webhook_of_wsgi_answers_bad_calls(server: Server) -> None:
    bill: Any = server.client.consumer("orders", group="billing", secrets=[SECRET])(lambda order: order)
    assert call_wsgi(bill.wsgi, b"{}", REQUEST_METHOD="GET")[0] == "405"
    assert call_wsgi(bill.wsgi, b"{}", CONTENT_LENGTH="")[0] == "411"
    assert call_wsgi(bill.wsgi, b"{}", CONTENT_LENGTH="99999999999")[0] == "413"
    assert call_wsgi(bill.wsgi, b"{}", HTTP_WEBHOOK_SIGNATURE="v1,a")[0] == "401"
    assert call_wsgi(bill.wsgi, b"{}") == ("400", {"detail": "a push has a list of messages"})
    assert call_wsgi(bill.wsgi, json.dumps(event("a")).encode()) == ("200", {"batchItemFailures": []})


async def call_asgi(application: Any, body: bytes, *, is_cut: bool = False) -> tuple[int, Any]:
    parts = [{"type": "http.request", "body": body[:3], "more_body": True}]
    parts.append({"type": "http.disconnect"} if is_cut else {"type": "http.request", "body": body[3:]})
    said: list[Any] = []

    async def receive() -> Any:
        return parts.pop(0)

    async def send(event: Any) -> None:
        said.append(event)

    headers = [(name.encode(), value.encode()) for name, value in signed_now(body).items()]
    await application({"type": "http", "method": "POST", "headers": headers}, receive, send)
    return said[0]["status"], json.loads(said[1]["body"])


def test_a_webhook_of_asgi(mq: Any) -> None:
    bill = consumer(mq, by_word, secrets=[SECRET])

    async def calls() -> list[Any]:
        push = json.dumps(event("a", "fail")).encode()
        return [
            await call_asgi(bill.asgi, push),
            await call_asgi(bill.asgi, b"[1, 2]"),
            await call_asgi(bill.asgi, push, is_cut=True),
        ]

    done, malformed, cut = asyncio.run(calls())
    assert done == (200, {"batchItemFailures": [{"itemIdentifier": "id fail", "reason": "ValueError: no"}]})
    assert (malformed[0], cut[0]) == (400, 400)
