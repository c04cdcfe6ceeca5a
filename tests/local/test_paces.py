"""Which requests the event loop carries out itself: none that may wait, however it is spelled and whatever its headers
say of another door."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice, product
from types import SimpleNamespace

import pytest

from chalicelib import wiring
from chalicelib.api import Api
from chalicelib.service import Service
from local import server
from local.http1 import Head
from local.memory.store import MemoryStore
from local.workload import Pace, Task
from tests.support.clock import Clock

POP = "/topics/orders/groups/billing/pop"
MESSAGES = "/topics/orders/messages"
QUEUE = "/000000000000/mine"
RECEIVE = f"Action=ReceiveMessage&WaitTimeSeconds=20&QueueUrl={QUEUE}"

MQ = {"x-mq-version": "2015-06-06"}


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def service(clock: Clock) -> Iterator[Service]:
    """In memory, with a topic, a group and a queue of SQS in it."""
    service = Service(MemoryStore(), clock.runtime())
    api = Api(service)
    api.put_topic("orders", {})
    api.put_group("orders", "billing", {})
    wiring.use(api)
    task_of("POST", "/", b"Action=CreateQueue&QueueName=mine").run(lambda: False)
    yield service
    wiring.use(None)


def task_of(method: str, target: str, body: bytes | None, **headers: str) -> Task:
    return server.find(Head("", method, target, headers, keeps=True), body)


def pace_of(method: str, target: str, body: bytes | None, **headers: str) -> Pace:
    return task_of(method, target, body, **headers).pace


@pytest.mark.parametrize(
    ("method", "target", "body", "pace"),
    [
        ("POST", MESSAGES, b"{}", Pace.AT_ONCE),
        ("POST", "http://localhost/topics/orders/messages?a=b", None, Pace.AT_ONCE),
        ("POST", MESSAGES, bytes(server.BODY_BYTES_AT_ONCE_MAX + 1), Pace.SOON),
        ("POST", POP, b'{"max_messages": 10}', Pace.AT_ONCE),
        ("POST", POP, b'{"wait_ms": 1}', Pace.LONG),
        ("POST", POP, b'{"wait\\u005fms": 1}', Pace.LONG),
        ("POST", "/topics/orders/requests", b"{}", Pace.LONG),
        ("GET", "/requests/1?wait_ms=1", None, Pace.LONG),
        ("POST", "/topics/orders/transactions/check", b'{"wait_ms": 1}', Pace.LONG),
        ("PUT", "/topics/orders", b"{}", Pace.SOON),
        ("GET", POP, None, Pace.SOON),
        ("GET", "/nowhere", None, Pace.SOON),
        ("GET", "/?Action=ReceiveMessage", None, Pace.LONG),
        ("POST", QUEUE, b"Action=ReceiveMessage&WaitTimeSeconds=1", Pace.LONG),
        ("POST", QUEUE, b"Action=SendMessage&MessageBody=a", Pace.AT_ONCE),
        ("POST", QUEUE, b"Action=SendMessage&MessageBody=Action=ReceiveMessage", Pace.AT_ONCE),
        ("POST", QUEUE, b"Action=GetQueueAttributes", Pace.SOON),
        ("POST", QUEUE, b"MessageBody=a", Pace.SOON),
    ],
)
def test_only_frequent_small_requests_that_cannot_wait_keep_the_loop(
    service: Service, method: str, target: str, body: bytes | None, pace: Pace
) -> None:
    assert pace_of(method, target, body) is pace


@pytest.mark.parametrize(
    ("action", "pace"),
    [
        ("SendMessageBatch", Pace.AT_ONCE),
        ("DeleteMessage", Pace.AT_ONCE),
        ("ChangeMessageVisibility", Pace.AT_ONCE),
        ("ReceiveMessage", Pace.LONG),
        ("CreateQueue", Pace.SOON),
        ("SendMessages", Pace.SOON),
    ],
)
def test_actions_of_sqs_in_json_have_the_pace_of_their_kind(service: Service, action: str, pace: Pace) -> None:
    assert pace_of("POST", "/", b"{}", **{"x-amz-target": f"AmazonSQS.{action}"}) is pace


@pytest.mark.parametrize(
    ("method", "query", "body", "pace"),
    [
        ("POST", "", b"<Message/>", Pace.AT_ONCE),
        ("POST", "", bytes(server.BODY_BYTES_AT_ONCE_MAX + 1), Pace.SOON),
        ("GET", "?consumer=billing", None, Pace.LONG),
        ("GET", "?trans=pop", None, Pace.LONG),
        ("GET", "?trans=nonsense", None, Pace.SOON),
        ("DELETE", "?consumer=billing", b"<ReceiptHandles/>", Pace.AT_ONCE),
        ("DELETE", "?consumer=billing&trans=commit", b"<ReceiptHandles/>", Pace.SOON),
    ],
)
def test_requests_of_mq_that_may_wait_run_elsewhere(
    service: Service, method: str, query: str, body: bytes | None, pace: Pace
) -> None:
    assert pace_of(method, MESSAGES + query, body, **MQ) is pace


# -- no request that waits is taken for another -----------------------------------------------------------------------

FOREIGN = [
    {},
    {"x-amz-target": "AmazonSQS.SendMessage"},
    {"x-amz-target": "AmazonSQS.ReceiveMessage"},
    {"x-amz-target": "DynamoDB_20120810.Scan"},
    {"x-amz-target": ""},
    MQ,
    {**MQ, "x-amz-target": "AmazonSQS.SendMessage"},
]
"""Headers by which a request could pass for one of another door."""

TARGETS = [
    POP,
    f"{POP}?Action=SendMessage",
    f"http://localhost{POP}",
    MESSAGES,
    f"{MESSAGES}?consumer=billing&waitseconds=20",
    f"{MESSAGES}?trans=pop&waitseconds=20",
    f"{MESSAGES}?trans=pop&trans=order&consumer=billing&waitseconds=20",
    "/topics/orders/requests",
    "/requests/ID?wait_ms=20000",
    "/topics/orders/transactions/check",
    "/",
    QUEUE,
    f"/?{RECEIVE}",
    f"{QUEUE}?{RECEIVE}",
    f"{QUEUE}?%41ction=Receive%4Dessage&WaitTimeSeconds=20",
    f"http://localhost?{RECEIVE}",
]

FORMS = [
    RECEIVE,
    RECEIVE.replace("Action", "%41c%74ion"),
    RECEIVE.replace("Receive", "%52eceiv%65"),
    RECEIVE.replace("Action", "Acti%6fn").replace("Message", "%4Dessage", 1),
    RECEIVE.replace("Action", "Acti%6Fn"),
    f"&&{RECEIVE}&Action=ReceiveMessage",
    f"MessageBody=%26Action=SendMessage&{RECEIVE}",
    f"xAction=SendMessage&{RECEIVE}",
    f"Action.1=SendMessage&{RECEIVE}",
    f"action=SendMessage&{RECEIVE}",
    f"Action=SendMessage&{RECEIVE}",
    f"{RECEIVE}&Action=SendMessage",
    f"Action&{RECEIVE}",
]

BODIES = [
    b"",
    b'{"wait_ms": 20000}',
    b'{"wait\\u005fms": 20000}',
    b'{"body": "a", "timeout_ms": 20000}',
    b'{"QueueUrl": "%s", "WaitTimeSeconds": 20}' % QUEUE.encode(),
    *(form.encode() for form in FORMS),
]


ONE_IN = 5
"""The share of the combinations that is tried. No list has a multiple of it: each pair of members is there."""


def test_a_request_that_waits_is_known_to_whatever_else_it_looks_like(service: Service, clock: Clock) -> None:
    asked = task_of("POST", "/topics/orders/requests", b'{"body": "a", "timeout_ms": 3600000, "wait_ms": 0}')
    request_id = json.loads(asked.run(lambda: False).body)["correlation_id"]
    waited = set[tuple[str, str]]()
    every = product(("GET", "POST", "PUT", "DELETE"), TARGETS, FOREIGN, BODIES)
    for method, target, headers, body in islice(every, 0, None, ONE_IN):
        task = task_of(method, target.replace("ID", request_id), body, **headers)
        clock.slept.clear()
        task.run(lambda: False)
        if clock.slept:
            assert task.pace is Pace.LONG, (method, target, headers, body)
            waited.add((method, target))
    assert len(waited) >= len(TARGETS) - 1  # but of `MESSAGES`


@pytest.mark.parametrize("form", FORMS)
def test_a_receive_of_sqs_is_one_however_its_form_is_spelled(service: Service, form: str) -> None:
    """Or it is refused."""
    for method, target, body in (("POST", QUEUE, form), ("POST", "/", form), ("GET", f"{QUEUE}?{form}", "")):
        task = task_of(method, target, body.encode())
        assert task.pace is Pace.LONG or task.run(lambda: False).status == 400


def test_no_request_keeps_the_loop_where_a_hook_may_wait(service: Service) -> None:
    service.producing.hooks.before.append(lambda *_: None)
    assert pace_of("POST", POP, b"{}") is Pace.SOON


def test_no_request_keeps_the_loop_where_the_store_may_wait(service: Service) -> None:
    env = SimpleNamespace(store=object())
    wiring.use(SimpleNamespace(service=SimpleNamespace(env=env, producing=service.producing)))  # type: ignore[arg-type]
    assert pace_of("POST", POP, b"{}") is Pace.SOON
