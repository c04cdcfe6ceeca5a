"""The calls of a pushed group, and how the answers settle messages."""

from __future__ import annotations

import re
from typing import Any

import pytest

from chalicelib.core.base.errors import StoreUnavailable
from chalicelib.core.base.limits import NACK_DELAY_MS_MAX
from chalicelib.push.outside import ConsumerResponse
from tests.http.pushed import URL, client, consumer, group, run
from tests.http.test_metrics import Scrape
from tests.support.client import Group, Topic, bodies
from tests.support.clock import START_MS, Clock
from tests.support.consumer import OK, Call, Consumer, failing
from tests.support.troubled_store import Trouble, TroubledStore, unavailable

__all__ = ["client", "consumer", "group"]


def test_a_call_carries_messages_as_a_pop_does_without_receipts(topic: Topic, group: Group, consumer: Consumer) -> None:
    [sent] = topic.produce({"body": "a", "key": "k", "tag": "t", "properties": {"p": "q"}})
    run(group)
    [call] = consumer.calls
    assert (call.url, call.timeout_ms, call.headers["content-type"]) == (URL, 10_000, "application/json")
    assert call.headers["user-agent"].startswith("Decant/")
    assert re.fullmatch("msg_[0-9a-f]{32}", call.headers["webhook-id"])
    assert call.json == {
        "topic": "orders",
        "group": "billing",
        "messages": [
            {
                "message_id": sent["message_id"],
                "topic": "orders",
                "queue": 0,
                "offset": 0,
                "body": "a",
                "key": "k",
                "tag": "t",
                "properties": {"p": "q"},
                "attempt": 1,
                "stored_at_ms": START_MS,
                "invisible_until_ms": START_MS + 25_000,
            }
        ],
    }


def test_an_answer_in_the_two_hundreds_acks_all(topic: Topic, group: Group, consumer: Consumer) -> None:
    topic.produce(*map(str, range(25)))
    group.change(push={"url": URL, "batch": 5})
    consumer.answers = [
        *(ConsumerResponse(200, b"thanks"), ConsumerResponse(204), ConsumerResponse(299, b'{"batchItemFailures": []}')),
        *(ConsumerResponse(200, b'["batchItemFailures"]'), ConsumerResponse(200, b'{"has": "no batchItemFailures"}')),
    ]
    run(group)
    assert [len(batch) for batch in consumer.bodies] == [5] * 5
    assert group.totals() == (0, 0, 0, 0)
    assert group.queue()["last_consumer_id"] == "push"
    assert Scrape(topic.client).value("acked_messages_total", topic="orders", group="billing") == 25


def test_a_function_gets_the_same_and_acks_by_returning(topic: Topic, consumer: Consumer) -> None:
    group = topic.group("billing", push={"function": "bill", "batch": 2, "timeout_ms": 500})
    topic.produce("a", "b", "c")
    run(group)
    assert [(call.url, call.bodies, call.timeout_ms) for call in consumer.calls] == [
        ("bill", ["a", "b"], 500),
        ("bill", ["c"], 500),
    ]
    assert group.totals() == (0, 0, 0, 0)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (ConsumerResponse(500, b"oops"), "status 500"),
        (ConsumerResponse(300), "status 300"),
        (ConsumerResponse(199), "status 199"),
        (ConsumerResponse.missing("no answer within 10000 ms"), "no answer within 10000 ms"),
        (ConsumerResponse(200, b'{"batchItemFailures": 1}'), "status 200, but batchItemFailures is 1, not a list"),
        (
            ConsumerResponse(200, b'{"batchItemFailures": ['),
            "status 200, but its body with batchItemFailures is not JSON",
        ),
        (failing({"itemIdentifier": "other"}), "names no message of the call"),
        (failing({"itemIdentifier": ""}), "names no message of the call"),
        (failing({"messageId": "other"}), "names no message of the call"),
        (ConsumerResponse(200, b'{"batchItemFailures": ["a"]}'), "names no message of the call"),
    ],
)
def test_any_other_answer_nacks_all_with_its_reason(
    topic: Topic, group: Group, consumer: Consumer, answer: ConsumerResponse, reason: str
) -> None:
    group.change(max_attempts=1)
    topic.produce("a", "b")
    consumer.otherwise = answer
    run(group)
    dead = topic.client.get(f"{group.path}/dead").json["messages"]
    assert bodies(dead) == ["a", "b"]
    assert all(reason in letter["reason"] for letter in dead)


DEEP = b"[" * 1_000 + b"]" * 1_000


@pytest.mark.parametrize(
    ("report", "told"),
    [
        (b"[%b]" % DEEP, ""),
        (b'[{"itemIdentifier": %b}]' % DEEP, ""),
        (b"[" * 100_000, "nested too deeply"),
        (b'[{"itemIdentifier": 1}]', "names no message of the call"),
        (b'[{"itemIdentifier": "%b"}]', "names no message of the call"),
        (b'[{"itemIdentifier": "{}", "reason": "\\ud800"}]', "not text"),
        (b'[{"itemIdentifier": "{}", "reason": "\xff"}]', "is not JSON"),
        (b'[{"itemIdentifier": "{}", "delay_ms": %b}]' % (b"9" * 10_000), "a 'delay_ms'"),
        (b'[{"itemIdentifier": "{}", "delay_ms": 1e999}]', "a 'delay_ms'"),
        (b'[{"itemIdentifier": "{}", "delay_ms": true}]', "a 'delay_ms' in batchItemFailures is"),
        (b'[{"itemIdentifier": "{}", "delay_ms": -1}]', "a 'delay_ms' in batchItemFailures is"),
        (
            b'[{"itemIdentifier": "{}", "delay_ms": %d}]' % (NACK_DELAY_MS_MAX + 1),
            "a 'delay_ms' in batchItemFailures is",
        ),
        (b'[{"itemIdentifier": "{}", "reason": 1}]', "a 'reason' in batchItemFailures is"),
        (b'[{"itemIdentifier": "{}", "delay_ms": NaN}]', "NaN is not JSON"),
        (b'[{"itemIdentifier": "{}"}], "batchItemFailures": []', '"batchItemFailures" twice'),
        (b'[{"itemIdentifier": "{}", "itemIdentifier": "x"}]', '"itemIdentifier" twice'),
    ],
)
def test_a_report_that_cannot_be_understood_is_a_failed_call(
    topic: Topic, consumer: Consumer, clock: Clock, report: bytes, told: str
) -> None:
    group = topic.group("billing", push={"url": URL}, backoff_ms=[5_000], max_attempts=2)
    first, _ = topic.produce("a", "b")
    report = report.replace(b"{}", first["message_id"].encode())
    consumer.otherwise = ConsumerResponse(200, b'{"batchItemFailures": %b}' % report)
    run(group)
    assert [call.messages[0]["attempt"] for call in consumer.calls] == [1, 2]
    assert clock.now() >= START_MS + 5_000
    dead = topic.client.get(f"{group.path}/dead").json["messages"]
    assert bodies(dead) == ["a", "b"]
    assert all(letter["reason"].startswith("status 200, but ") and told in letter["reason"] for letter in dead)


def test_a_report_whose_name_is_spelled_with_escapes_counts(topic: Topic, group: Group, consumer: Consumer) -> None:
    group.change(max_attempts=1)
    first, _ = topic.produce("a", "b")
    spelled = b'{"batch\\u0049temFailures": [{"itemIdentifier": "%b"}]}' % first["message_id"].encode()
    consumer.answers = [ConsumerResponse(200, spelled)]
    run(group)
    assert bodies(topic.client.get(f"{group.path}/dead").json["messages"]) == ["a"]


def test_a_report_nacks_what_it_names_and_acks_the_others(topic: Topic, group: Group, consumer: Consumer) -> None:
    group.change(max_attempts=1)
    _, b, c = topic.produce("a", "b", "c")
    reports = [{"itemIdentifier": b["message_id"], "reason": "no stock"}, {"itemIdentifier": c["message_id"]}]
    consumer.answers = [failing(*reports)]
    run(group)
    dead = topic.client.get(f"{group.path}/dead").json["messages"]
    assert [(letter["body"], letter["reason"]) for letter in dead] == [("b", "no stock"), ("c", "")]
    assert group.totals() == (0, 0, 0, 2)


@pytest.mark.parametrize("delay_ms", [0, 700, NACK_DELAY_MS_MAX])
def test_a_report_says_when_a_message_is_tried_again(
    topic: Topic, group: Group, consumer: Consumer, clock: Clock, delay_ms: int
) -> None:
    _, b = topic.produce("a", "b")
    consumer.answers = [failing({"itemIdentifier": b["message_id"], "delay_ms": delay_ms})]
    run(group)
    if delay_ms == NACK_DELAY_MS_MAX:
        assert group.totals() == (0, 0, 1, 0)
        clock.sleep(delay_ms)
        run(group)
    assert [(call.bodies, call.messages[-1]["attempt"]) for call in consumer.calls] == [(["a", "b"], 1), (["b"], 2)]
    assert group.totals() == (0, 0, 0, 0)


def refusing_a_write(store: TroubledStore) -> Trouble:
    """The next one alone."""

    def once(verb: str, _about: Any) -> Exception | None:
        if verb != "write":
            return None
        store.before = unavailable()
        return StoreUnavailable("the store throttled")

    return once


def test_a_report_during_trouble_with_the_store_loses_nothing(
    store: TroubledStore, topic: Topic, group: Group, consumer: Consumer, clock: Clock
) -> None:
    _, b = topic.produce("a", "b")

    def answer(_call: Call) -> ConsumerResponse:
        consumer.react, store.before = None, refusing_a_write(store)
        return failing({"itemIdentifier": b["message_id"]})

    consumer.react = answer
    run(group)
    assert group.totals() == (0, 1, 0, 0)
    clock.sleep(25_000)
    run(group)
    assert consumer.bodies == [["a", "b"], ["b"]]


def test_what_a_call_has_acked_is_settled_though_the_next_pop_fails(
    store: TroubledStore, topic: Topic, group: Group, consumer: Consumer
) -> None:
    group.change(push={"url": URL, "batch": 1})
    topic.produce("a", "b")

    def answer(_call: Call) -> ConsumerResponse:
        store.before = refusing_a_write(store)
        return OK

    consumer.react = answer
    run(group)
    assert (consumer.bodies, group.totals()) == ([["a"]], (1, 0, 0, 0))


def test_what_was_delivered_often_enough_dies_also_at_the_cap(topic: Topic, consumer: Consumer, clock: Clock) -> None:
    group = topic.group("billing", max_attempts=1, max_in_flight=2)
    topic.produce("a", "b")
    for invisible_ms in (1_000, 60_000):
        group.take_one(invisible_ms=invisible_ms)
    group.change(push={"url": URL}, max_in_flight=1)
    clock.sleep(1_000)
    run(group)
    assert (consumer.calls, group.totals()) == ([], (0, 1, 0, 1))


def test_many_that_a_report_names_are_tried_again(topic: Topic, consumer: Consumer) -> None:
    """More than the item of a queue holds: the last wait in pages."""
    group = topic.group("billing", push={"url": URL, "batch": 250})
    ids = [each["message_id"] for each in topic.produce(*map(str, range(250)))][::2]
    reports = [{"itemIdentifier": each, "delay_ms": 9_000} for each in ids[:29]]
    reports += [{"itemIdentifier": each, "delay_ms": 18_000} for each in ids[29:]]  # two pages
    consumer.answers = [failing(*reports)]
    run(group, is_staying=True)
    assert sum(len(batch) for batch in consumer.bodies) == 250 + 125
    assert group.totals() == (0, 0, 0, 0)


@pytest.mark.parametrize(
    ("header", "wait_ms"),
    [
        *(("20", 20_000), (" 20 ", 20_000), ("Thu, 01 Jan 2026 00:00:20 GMT", 20_000), ("0", 1_000), ("soon", 5_000)),
        *(("Thu, 01 Jan 99999 00:00:20 GMT", 5_000), (f"Thu, 01 Jan {10**20} 00:00:20 GMT", 5_000)),
    ],
)
def test_a_retry_after_delays_the_next_call(
    topic: Topic, consumer: Consumer, clock: Clock, header: str, wait_ms: int
) -> None:
    group = topic.group("billing", push={"url": URL, "batch": 1}, backoff_ms=[5_000])
    topic.produce("a", "b")
    at: list[int] = []

    def answer(_call: Call) -> ConsumerResponse:
        at.append(clock.now() - START_MS)
        return OK if at[1:] else ConsumerResponse(503, retry_after=header)

    consumer.react = answer
    run(group)
    assert at == [0, wait_ms, wait_ms]


def test_a_410_pauses_the_group_and_counts_no_attempt(
    store: TroubledStore, topic: Topic, group: Group, consumer: Consumer
) -> None:
    topic.produce("a", "b")
    consumer.answers = [ConsumerResponse(410)]
    run(group)
    assert (group.progress()["paused"], group.totals()) == (True, (2, 0, 0, 0))
    before = store.meter.write_units
    run(group)
    assert (len(consumer.calls), store.meter.write_units) == (1, before)
    group.change(paused=False)
    run(group)
    assert [message["attempt"] for message in consumer.calls[1].messages] == [1, 1]
    assert group.totals() == (0, 0, 0, 0)


def test_a_410_of_an_old_url_does_not_pause_a_new_one(topic: Topic, group: Group, consumer: Consumer) -> None:
    def moved(_call: Any) -> ConsumerResponse:
        consumer.react = None
        group.change(push={"url": "https://new.example/"})
        return ConsumerResponse(410)

    topic.produce("a")
    consumer.react = moved
    run(group)
    assert group.progress()["paused"] is False
    assert [call.url for call in consumer.calls] == [URL, "https://new.example/"]


def test_a_410_does_not_pause_a_group_that_is_made_again_meanwhile(
    topic: Topic, group: Group, consumer: Consumer
) -> None:
    def made_again(_call: Call) -> ConsumerResponse:
        consumer.react = None
        group.delete()
        topic.group("billing", push={"url": URL})
        return ConsumerResponse(410)

    topic.produce("a")
    consumer.react = made_again
    run(group)
    assert group.progress()["paused"] is False
