"""Functions that answer messages, in a loop that pops and as the target of a push, over the routes."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import Any

import pytest

from chalicelib.push.outside import ConsumerResponse as PushAnswer
from decant import DecantError
from decant.calls import NoAnswer, NotSent
from decant.worker import Message, Refused, Reply, Retry, Service, Worker
from tests.support.client import Answer, Client, Group, Json, Topic
from tests.support.clock import Clock
from tests.support.consumer import Consumer
from tests.support.troubled_store import TroubledStore, unknown


@pytest.fixture
def service(client: Client) -> Service:
    """Calls the routes in this process."""

    def call(path: str, body: Json) -> tuple[int, Json]:
        answer = client.ask("POST", path, body)
        return answer.status, answer.json

    return Service("", call=call, **times_of(client.clock))


def times_of(clock: Clock) -> dict[str, Any]:
    """Settings of a client that keeps the time of this clock."""

    def sleep(seconds: float) -> None:
        clock.sleep(int(seconds * 1_000))

    return {"clock": lambda: clock.ms / 1_000, "sleep": sleep}


def ask(topic: Topic, body: str = "2+2", **fields: Any) -> str:
    correlation_id: str = topic.client.post(f"{topic.path}/requests", body=body, wait_ms=0, **fields).json[
        "correlation_id"
    ]
    return correlation_id


def reply_to(topic: Topic, correlation_id: str) -> Answer:
    return topic.client.get(f"/requests/{correlation_id}")


def times(count: int) -> Callable[[], bool]:
    """True from the call after this number on."""
    calls = iter([False] * count)
    return lambda: next(calls, True)


def add(message: Message) -> str:
    return str(sum(map(int, message.text.split("+"))))


def pushed(group: Group) -> Json:
    """The event that a push of the ready messages would send."""
    popped = group.pop(max_messages=256)["messages"]
    messages = [{name: value for name, value in each.items() if name != "receipt"} for each in popped]
    return {"topic": group.topic.name, "group": group.name, "messages": messages}


def test_a_loop_answers_requests_and_acks_them(service: Service, topic: Topic, group: Group) -> None:
    asked = [ask(topic, f"{number}+1") for number in range(3)]
    service.worker(add).run("orders", "billing", times(3), wait_ms=0)
    answers = [reply_to(topic, each).json["reply"]["body"] for each in asked]
    assert answers == ["1", "2", "3"]
    assert group.totals() == (0, 0, 0, 0)


def test_a_pushed_function_answers_requests_and_returns_what_failed(
    service: Service, topic: Topic, group: Group
) -> None:
    asked = [ask(topic, body) for body in ("1+1", "one+one", "2+2")]
    event = pushed(group)
    failures = service.worker(add).on_push(event, None)["batchItemFailures"]
    assert [each["itemIdentifier"] for each in failures] == [event["messages"][1]["message_id"]]
    assert failures[0]["reason"].startswith("ValueError: ")
    assert [reply_to(topic, each).status for each in asked] == [200, 202, 200]


def test_a_function_that_a_group_pushes_to_answers_its_requests(client: Client, service: Service) -> None:
    topic = client.topic("sums")
    worker = service.worker(add)
    consumer = Consumer(react=lambda call: PushAnswer(200, json.dumps(worker.on_push(call.json)).encode()))
    pushing = Client(client.store, client.clock, 7, consumer.outside())
    group = Topic(pushing, "sums").group("adders", push={"function": "adder"}, max_attempts=1)
    asked = [ask(topic, body) for body in ("1+1", "one+one", "2+2")]
    pushing.api.service.pushing.run("sums")
    assert [reply_to(topic, each).status for each in asked] == [200, 202, 200]
    [letter] = pushing.get(f"{group.path}/dead").json["messages"]
    assert (letter["body"], letter["reason"][:12]) == ("one+one", "ValueError: ")
    assert group.totals() == (0, 0, 0, 1)


@pytest.mark.parametrize(
    ("returned", "reply"),
    [
        ("text", {"body": "text", "properties": {}}),
        (b"\xff", {"body_base64": "/w==", "properties": {}}),
        ({"sum": [1, None]}, {"body": '{"sum":[1,null]}', "properties": {}}),
        (0, {"body": "0", "properties": {}}),
        (Reply([], {"unit": "m"}), {"body": "[]", "properties": {"unit": "m"}}),
    ],
)
def test_what_the_function_returns_is_the_reply(
    service: Service, topic: Topic, group: Group, returned: Any, reply: Json
) -> None:
    correlation_id = ask(topic)
    assert service.worker(lambda _message: returned).on_push(pushed(group)) == {"batchItemFailures": []}
    found = reply_to(topic, correlation_id).json["reply"]
    assert {name: value for name, value in found.items() if name != "replied_at_ms"} == reply


@pytest.mark.parametrize("is_request", [True, False])
def test_none_and_a_message_that_is_no_request_get_no_reply(
    service: Service, topic: Topic, group: Group, is_request: bool
) -> None:
    if is_request:
        ask(topic)
    else:
        topic.produce("2+2")
    seen: list[Message] = []
    worker = service.worker(seen.append if is_request else add)
    worker.run("orders", "billing", times(1), wait_ms=0)
    assert group.totals() == (0, 0, 0, 0)
    if is_request:
        assert reply_to(topic, str(seen[0].correlation_id)).status == 202


@pytest.mark.parametrize("delay_ms", [500.0, -1, "5", True])
def test_a_retry_with_a_delay_that_is_none_is_a_nack_that_says_so(
    service: Service, topic: Topic, delay_ms: Any
) -> None:
    group = topic.group("strict", max_attempts=1)
    ask(topic, timeout_ms=60_000)

    def fail(_message: Message) -> None:
        raise Retry("busy", delay_ms)

    service.worker(fail).run("orders", "strict", times(1), wait_ms=0)
    [letter] = topic.client.get(f"{group.path}/dead").json["messages"]
    assert letter["reason"].endswith(f"it is {delay_ms!r}")


@pytest.mark.parametrize(
    ("error", "delay_ms"),
    [
        (KeyError("no such order"), 10_000),
        (Retry("busy"), 10_000),
        (ValueError("half \ud800"), 10_000),
        (Retry("busy", 50), 50),
    ],
)
def test_an_exception_is_a_nack_with_its_reason(
    service: Service, topic: Topic, clock: Clock, caplog: pytest.LogCaptureFixture, error: Exception, delay_ms: int
) -> None:
    caplog.set_level(logging.CRITICAL, "decant.consumer")  # xdist cannot send a log line with half a character

    def fail(_message: Message) -> None:
        raise error

    group = topic.group("strict", max_attempts=2)
    ask(topic, timeout_ms=60_000)
    service.worker(fail).run("orders", "strict", times(1), wait_ms=0)
    clock.sleep(delay_ms - 1)
    assert group.pop()["messages"] == []
    clock.sleep(1)
    service.worker(fail).run("orders", "strict", times(1), wait_ms=0)
    [letter] = topic.client.get(f"{group.path}/dead").json["messages"]
    assert letter["reason"] in ("KeyError: 'no such order'", "busy", "ValueError: half ?")


def test_a_late_return_is_told_and_settled(service: Service, topic: Topic, group: Group, clock: Clock) -> None:
    refused: list[tuple[str, str]] = []

    def slow(_message: Message) -> str:
        clock.sleep(3_000)
        return "late"

    correlation_id = ask(topic)
    worker = Worker(service, slow, lambda message, code: refused.append((str(message.correlation_id), code)))
    worker.run("orders", "billing", times(1), wait_ms=0)
    assert refused == [(correlation_id, "RequestExpired")]
    assert group.totals() == (0, 0, 0, 0)
    assert reply_to(topic, correlation_id).problem == (504, "ReplyTimeout")


def test_a_reply_after_another_consumers_is_told(
    service: Service, topic: Topic, group: Group, caplog: pytest.LogCaptureFixture
) -> None:
    correlation_id = ask(topic)
    topic.client.post(f"/requests/{correlation_id}/reply", body="first")
    with caplog.at_level(logging.WARNING, "decant.consumer"):
        service.worker(add).run("orders", "billing", times(1), wait_ms=0)
    assert "AlreadyReplied" in caplog.text
    assert group.totals() == (0, 0, 0, 0)


def test_a_reply_that_cannot_be_sent_is_a_nack(service: Service, topic: Topic, group: Group) -> None:
    ask(topic)
    event = pushed(group)
    for returned in ("", object(), float("nan"), "x" * 4_194_305):
        [failure] = service.worker(lambda _message: returned).on_push(event)["batchItemFailures"]  # noqa: B023
        assert failure["reason"].startswith(("InvalidField: ", "MessageTooLarge: ", "SettingError: "))
        assert len(failure["reason"]) <= 256


def test_a_worker_goes_on_when_the_store_is_back(
    service: Service, topic: Topic, group: Group, store: TroubledStore
) -> None:
    """A reply whose answer was lost is sent again, and is the same."""
    correlation_id = ask(topic)
    event = pushed(group)
    store.after = unknown("write")
    topic.client.clock.at(topic.client.clock.ms + 50, lambda: setattr(store, "after", unknown()))
    assert service.worker(add).on_push(event) == {"batchItemFailures": []}
    assert reply_to(topic, correlation_id).json["reply"]["body"] == "4"


def test_a_service_that_stays_away_ends_the_loop(client: Client) -> None:
    began_ms = client.clock.ms
    away = Service("http://127.0.0.1:1", **times_of(client.clock))
    with pytest.raises(DecantError, match="refused"):
        away.worker(add).run("orders", "billing")
    assert 20_000 < client.clock.ms - began_ms <= 30_000


def test_a_loop_waits_while_its_group_is_paused(service: Service, topic: Topic, group: Group, clock: Clock) -> None:
    """A pop of a paused group answers at once, however long it may wait."""
    correlation_id = ask(topic, timeout_ms=60_000)
    group.change(paused=True)
    began_ms = clock.ms
    clock.at(began_ms + 9_500, lambda: group.change(paused=False))
    service.worker(add).run("orders", "billing", times(11))
    assert reply_to(topic, correlation_id).json["reply"]["body"] == "4"
    assert clock.ms - began_ms == 10_000


def test_a_loop_outlives_an_answer_that_is_lost(client: Client, topic: Topic, group: Group) -> None:
    """Before and after the call was carried out: the same messages come, and none is leased to nobody."""
    correlation_id = ask(topic)
    troubles: list[Exception] = [NotSent("no route"), NoAnswer("cut off")]

    def call(path: str, body: Json) -> tuple[int, Json]:
        if len(troubles) == 2:
            raise troubles.pop(0)
        answer = client.ask("POST", path, body)
        if troubles:
            raise troubles.pop(0)
        return answer.status, answer.json

    Service("", call=call, **times_of(client.clock)).worker(add).run("orders", "billing", times(1), wait_ms=0)
    assert reply_to(topic, correlation_id).json["reply"]["body"] == "4"


def test_a_loop_on_a_missing_group_ends_with_the_problem(service: Service, topic: Topic) -> None:
    with pytest.raises(Refused, match="GroupNotFound") as refused:
        service.worker(add).run("orders", "nobody")
    assert (refused.value.status, refused.value.code) == (404, "GroupNotFound")


def test_a_message_is_text_and_bytes(group: Group, topic: Topic) -> None:
    topic.produce("é", {"body_base64": "/w=="})
    text, data = (Message(fields) for fields in group.take(2))
    assert (text.text, text.data, data.data, text.correlation_id) == ("é", "é".encode(), b"\xff", None)
    assert json.dumps(text.fields)
