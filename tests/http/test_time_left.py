"""A function with little time left answers before Lambda ends it."""

from __future__ import annotations

import json
from typing import Any

import pytest

import app as functions
from chalicelib import wiring
from tests.support import events
from tests.support.client import EMPTY, Client, Group, Topic
from tests.support.clock import START_MS, Clock
from tests.support.events import Json, Sent


class Context:
    """The context of an invocation that began now."""

    def __init__(self, clock: Clock, timeout_ms: int) -> None:
        self._clock = clock
        self._ends_at_ms = clock.uptime() + timeout_ms

    def get_remaining_time_in_millis(self) -> int:
        return self._ends_at_ms - self._clock.uptime()


def pop(client: Client, timeout_ms: int, **fields: Any) -> Json:
    wiring.use(client.api)
    event = {"topic": "orders", "group": "billing", **fields}
    result: Json = functions.pop(event, Context(client.clock, timeout_ms))
    return result


@pytest.mark.parametrize(
    ("timeout_ms", "waits_ms"), [(29_000, 20_000), (15_000, 9_500), (8_000, 3_500), (4_000, 1_500)]
)
def test_a_pop_answers_empty_before_the_end(group: Group, clock: Clock, timeout_ms: int, waits_ms: int) -> None:
    assert pop(group.client, timeout_ms, wait_ms=20_000) == EMPTY
    assert clock.now() == START_MS + waits_ms


def test_a_message_that_is_ready_then_is_still_taken(topic: Topic, group: Group, clock: Clock) -> None:
    clock.at(START_MS + 9_500, lambda: topic.produce("a"))
    assert len(pop(group.client, 15_000, wait_ms=20_000)["messages"]) == 1


def test_a_request_is_202_before_the_end_and_can_be_fetched(client: Client, topic: Topic, clock: Clock) -> None:
    wiring.use(client.api)
    sent = Sent("POST", "/topics/orders/requests", '{"body": "how much?", "timeout_ms": 60000}')
    answer = functions.app(events.http_api(sent), Context(clock, 29_000))
    assert answer["statusCode"] == 202
    assert clock.now() == START_MS + 23_500
    correlation_id = json.loads(answer["body"])["correlation_id"]
    functions.reply({"correlation_id": correlation_id, "body": "5"}, Context(clock, 29_000))
    assert client.get(f"/requests/{correlation_id}").json["reply"]["body"] == "5"


def test_a_check_of_transactions_ends_in_time(client: Client, topic: Topic, clock: Clock) -> None:
    wiring.use(client.api)
    sent = Sent("POST", "/topics/orders/transactions/check", '{"wait_ms": 20000}')
    answer = functions.app(events.http_api(sent), Context(clock, 10_000))
    assert json.loads(answer["body"]) == {"transactions": []}
    assert clock.now() == START_MS + 4_500


def test_without_a_context_the_whole_time_counts(group: Group, clock: Clock) -> None:
    wiring.use(group.client.api)
    for context in (None, object()):
        began_ms = clock.now()
        assert functions.pop({"topic": "orders", "group": "billing", "wait_ms": 20_000}, context) == EMPTY
        assert clock.now() == began_ms + 20_000
