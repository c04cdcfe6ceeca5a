"""Pushed groups: the setting, what a call carries, and how its answer settles."""

from __future__ import annotations

import base64
import logging
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from chalicelib.core.base import deadline
from chalicelib.core.base.errors import StoreUnavailable
from chalicelib.core.base.limits import NACK_DELAY_MS_MAX, PUSH_SECRETS_MAX
from chalicelib.core.consuming import claim
from chalicelib.core.table.writes import Item, Write
from chalicelib.push.courier import Courier
from chalicelib.push.dispatcher import RUN_MS
from chalicelib.push.outside import ConsumerResponse
from tests.http.test_metrics import Scrape
from tests.support.client import Client, Group, Json, Topic, bodies
from tests.support.clock import START_MS, Clock
from tests.support.consumer import OK, Call, Consumer, failing
from tests.support.troubled_store import Trouble, TroubledStore, unavailable

URL = "https://shop.example/hooks"


@pytest.fixture
def consumer() -> Consumer:
    return Consumer()


@pytest.fixture
def client(store: TroubledStore, consumer: Consumer, caplog: pytest.LogCaptureFixture) -> Iterator[Client]:
    yield Client(store, outside=consumer.outside())
    assert [line.getMessage() for line in caplog.get_records("call") if line.levelno >= logging.ERROR] == []


@pytest.fixture
def group(topic: Topic) -> Group:
    return topic.group("billing", push={"url": URL})


def run(group: Group, is_staying: bool = False) -> None:
    group.client.api.service.pushing.run(group.topic.name, is_staying)


def refusal(group: Group, push: Any, **settings: Any) -> str:
    """The detail of the error, after which nothing has changed."""
    before = group.progress()
    answer = group.client.put(group.path, push=push, **settings)
    assert answer.problem[0] == 400
    assert group.progress() == before
    return str(answer.json["detail"])


# -- the setting -------------------------------------------------------------------------------------------------------


def test_a_push_is_answered_as_given_and_an_empty_one_removes_it(topic: Topic) -> None:
    push = {"url": URL, "batch": 256, "concurrency": 100, "timeout_ms": 60_000}
    group = topic.group("billing", push=push)
    assert group.progress()["push"] == push
    group.change(push={"function": "bill"})
    assert group.progress()["push"] == {"function": "bill"}
    group.change(paused=False)
    assert group.progress()["push"] == {"function": "bill"}
    group.change(push={})
    assert group.progress()["push"] is None
    topic.produce("a")
    assert bodies(group.take(1)) == ["a"]


@pytest.mark.parametrize(
    ("push", "wrong"),
    [
        ({"url": URL, "function": "f"}, "'push.url' and field 'push.function' must be given; both are"),
        ({"batch": 5}, "'push.url' and field 'push.function' must be given; neither is"),
        ({"url": URL, "batch": 0}, "'push.batch'"),
        ({"url": URL, "batch": 257}, "257"),
        ({"url": URL, "concurrency": 101}, "'push.concurrency'"),
        ({"url": URL, "timeout_ms": 99}, "'push.timeout_ms'"),
        ({"url": URL, "timeout_ms": 60_001}, "60001"),
        ({"url": URL, "retries": 1}, "'push.retries'"),
        ({"url": URL, "secret_id": "none"}, "'push.secret_id'"),
        ({"function": "f", "secret_id": "x"}, "'push.secret_id'"),
        ({"function": "no such name"}, "'push.function'"),
        ("https://shop.example", "'push'"),
        ({"url": ""}, "'push.url'"),
        ({"url": "shop.example/hooks"}, "shop.example/hooks"),
        ({"url": "ftp://shop.example/"}, "ftp://"),
        ({"url": "https:///hooks"}, "'push.url'"),
        ({"url": "https://user:word@shop.example/"}, "'push.url'"),
        ({"url": "https://shop.example/#there"}, "'push.url'"),
        ({"url": "https://shop.example/a b"}, "'push.url'"),
        ({"url": "https://shop.example:99999/"}, "'push.url'"),
        ({"url": "https://[::1/"}, "'push.url'"),
        ({"url": "https://schön.example/"}, "'push.url'"),
        ({"url": "http://shop.example/"}, "an https URL"),
    ],
)
def test_an_invalid_push_is_refused_by_its_field(topic: Topic, push: Any, wrong: str) -> None:
    assert wrong in refusal(topic.group("billing"), push)


@pytest.mark.parametrize(
    "host",
    [
        *("127.0.0.1", "10.1.2.3", "192.168.0.1", "172.16.0.1", "169.254.169.254", "100.64.0.1", "0.0.0.0"),  # noqa: S104
        *("224.0.1.1", "127.1", "2130706433", "0x7f000001", "localhost", "a.localhost", "localhost."),
        *("[::1]", "[fe80::1]", "[fd00::1]", "[4000::1]", "[ff0e::1]"),
        *("[::ffff:10.0.0.1]", "[64:ff9b::a00:1]", "[2002:a00:1::]"),
        *("192.0.0.8", "192.0.0.9", "192.0.0.192", "192.0.2.1", "192.88.99.1", "198.18.0.1", "198.51.100.1"),
        *("203.0.113.1", "239.255.255.255", "240.0.0.1", "255.255.255.255", "100.127.255.255", "172.31.255.255"),
        *("168.63.129.16", "100.100.100.200", "[fd00:ec2::254]", "[fd20:ce::254]", "[::ffff:168.63.129.16]"),
        *("[fec0::1]", "[::]", "[::8.8.8.8]", "[100::1]", "[5f00::1]", "[1fff::1]", "[2001:db8::1]", "[3fff::1]"),
        *("[2001::1]", "[2001:0:808:808::f7f7:f7f7]", "[2001:2::1]", "[2001:10::1]", "[2001:20::1]", "[2001:1ff::1]"),
        *("[64:ff9b:1::808:808]", "[64:ff9b::a83f:8110]", "[2002:7f00:1::1]", "[2002:a83f:8110::1]"),
        *(
            "[2606:4700::5efe:7f00:1]",
            "[2606:4700::200:5efe:a00:1]",
            "[2002:808:808::5efe:a00:1]",
            "[fe80::5efe:808:808]",
        ),
    ],
)
def test_an_address_that_is_not_public_is_refused(topic: Topic, host: str) -> None:
    assert "a public address" in refusal(topic.group("billing"), {"url": f"https://{host}/hooks"})


@pytest.mark.parametrize(
    "host",
    [
        *("8.8.8.8", "[2606:4700::1111]", "shop.example"),
        *("[::ffff:8.8.8.8]", "[64:ff9b::808:808]", "[2002:808:808::]"),  # these carry one of IPv4
        *("[2606:4700::5efe:808:808]", "[2002:808:808::5efe:909:909]"),
        *("192.0.1.1", "192.31.196.1", "172.32.0.1", "100.128.0.1", "168.63.129.17", "11.0.0.1", "223.255.255.255"),
        *("[2001:200::1]", "[2a00:1450::1]", "[2620:4f:8000::1]", "[3ffe::1]"),
    ],
)
def test_a_public_address_or_a_name_is_taken(topic: Topic, host: str) -> None:
    topic.group("billing", push={"url": f"https://{host}:8443/hooks?a=b"})


def test_only_where_it_is_allowed_a_url_may_be_on_this_machine(store: TroubledStore, consumer: Consumer) -> None:
    client = Client(store, outside=consumer.outside(allows_loopback=True))
    group = client.topic("orders").group("billing", push={"url": "http://localhost:8080/hooks"})
    group.change(push={"url": "http://127.0.0.1:8080/hooks"})
    assert "a public address" in refusal(group, {"url": "http://10.0.0.1/"})


def test_a_broadcast_group_cannot_be_pushed(topic: Topic) -> None:
    answer = topic.client.put(f"{topic.path}/groups/all", mode="broadcast", push={"url": URL})
    assert answer.problem == (400, "InvalidField")
    assert topic.details()["groups"] == []
    group = topic.group("all", mode="broadcast")
    assert "'push' needs a clustering group" in refusal(group, {"url": URL})


def test_a_pushed_group_refuses_to_be_popped(topic: Topic, group: Group) -> None:
    topic.produce("a")
    answer = topic.client.post(f"{group.path}/pop", wait_ms=20_000)
    assert answer.problem == (409, "GroupIsPushed")
    assert group.totals() == (1, 0, 0, 0)


def test_what_was_popped_before_the_push_can_still_be_settled(topic: Topic) -> None:
    topic.produce("a", "b")
    group = topic.group("billing")
    first, second = group.take(2)
    group.change(push={"url": URL})
    assert group.ack(first)["acked"] == 1
    assert group.nack(second)["nacked"] == 1


# -- a call ------------------------------------------------------------------------------------------------------------


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


@pytest.mark.parametrize(
    "wrong", [{"reason": 1}, {"delay_ms": -1}, {"delay_ms": True}, {"delay_ms": NACK_DELAY_MS_MAX + 1}]
)
def test_a_report_with_a_wrong_member_acks_nothing(topic: Topic, group: Group, consumer: Consumer, wrong: Json) -> None:
    group.change(max_attempts=1)
    first, _ = topic.produce("a", "b")
    consumer.otherwise = failing({"itemIdentifier": first["message_id"], **wrong})
    run(group)
    dead = topic.client.get(f"{group.path}/dead").json["messages"]
    assert bodies(dead) == ["a", "b"]
    assert all(f"a '{name}' in batchItemFailures is" in letter["reason"] for letter in dead for name in wrong)


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


def test_a_nacked_message_waits_for_the_backoff_of_its_group(topic: Topic, consumer: Consumer, clock: Clock) -> None:
    group = topic.group("billing", push={"url": URL}, backoff_ms=[5_000])
    topic.produce("a")
    consumer.answers = [ConsumerResponse(500)]
    run(group)
    assert [call.messages[0]["attempt"] for call in consumer.calls] == [1, 2]
    assert clock.now() >= START_MS + 5_000
    assert group.totals() == (0, 0, 0, 0)


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


def test_the_next_call_goes_by_a_push_that_is_new(topic: Topic, group: Group, consumer: Consumer) -> None:
    def changed(_call: Call) -> ConsumerResponse:
        consumer.react = None
        group.change(push={"url": URL, "batch": 1})
        topic.produce("b", "c")
        return OK

    topic.produce("a")
    consumer.react = changed
    run(group)
    assert consumer.bodies == [["a"], ["b"], ["c"]]


def test_a_slot_that_is_one_too_many_makes_no_further_call(topic: Topic, consumer: Consumer, client: Client) -> None:
    group = topic.group("billing", push={"url": URL, "batch": 1, "concurrency": 2})
    under_way: list[int] = []
    seen: list[int] = []

    def called(_call: Call) -> ConsumerResponse:
        under_way.append(1)
        seen.append(len(under_way))
        if len(seen) == 1:
            run(group.seen_by(client.another()))  # has the second slot
        elif len(seen) == 2:
            group.change(push={"url": URL, "batch": 1})
        under_way.pop()
        return OK

    topic.produce("a", "b", "c")
    consumer.react = called
    run(group)
    assert seen == [1, 2, 1]


def test_filters_rates_and_delays_are_those_of_the_group(topic: Topic, consumer: Consumer, clock: Clock) -> None:
    group = topic.group("billing", push={"url": URL}, rate_limit=1, filter={"tags": ["x"]})
    topic.produce("a", "b", "c", tag="x")
    topic.produce("no", tag="y")
    topic.produce("later", tag="x", delay_ms=8_000)
    run(group, is_staying=True)
    assert consumer.bodies == [["a"], ["b"], ["c"], ["later"]]
    assert clock.now() < START_MS + 10_000


def test_an_ordered_group_calls_with_no_later_message_before_a_failed_one(
    topic: Topic, consumer: Consumer, clock: Clock
) -> None:
    group = topic.group("billing", push={"url": URL, "batch": 1, "concurrency": 5}, ordered=True, backoff_ms=[1_000])
    topic.produce("a", "b", "c")
    consumer.answers = [ConsumerResponse(200), ConsumerResponse(500)]
    run(group)
    assert consumer.bodies == [["a"], ["b"], ["b"], ["c"]]


@pytest.mark.parametrize(
    ("ordered", "sent", "ready", "later"),
    [("key", {"a2": "a", "b1": "b"}, ["b1"], ["a1", "a2"]), (False, {"a2": "a"}, ["a2"], ["a1"])],
)
def test_a_message_that_failed_holds_up_its_key_at_most(
    topic: Topic, consumer: Consumer, clock: Clock, ordered: Any, sent: Json, ready: list[str], later: list[str]
) -> None:
    group = topic.group("billing", push={"url": URL}, ordered=ordered, backoff_ms=[30_000])
    [first] = topic.produce({"body": "a1", "key": "a"})
    consumer.answers = [failing({"itemIdentifier": first["message_id"]})]
    run(group)
    topic.produce(*({"body": body, "key": key} for body, key in sent.items()))
    run(group)
    assert (consumer.bodies, clock.now() < START_MS + 30_000) == ([["a1"], ready], True)
    run(group, is_staying=True)
    assert consumer.bodies[2:] == [later]


def test_a_run_passes_whatever_a_filter_rejects(
    topic: Topic, group: Group, consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claim, "PASSED_MAX", 1)  # then the next pop goes on
    group.change(filter={"tags": ["x"]})
    for _ in range(5):
        topic.produce(*["no"] * 256, tag="y")
    topic.produce("a", tag="x")
    run(group, is_staying=True)
    assert consumer.bodies == [["a"]]


def test_what_is_due_in_a_queue_is_called_while_another_is_held_up(consumer: Consumer, client: Client) -> None:
    topic = client.topic("orders", queues=2)
    group = topic.group("billing", ordered=True)
    topic.produce("held", queue=0)
    group.take_one(invisible_ms=40_000)
    for queue, delay_ms in enumerate((1_000, 1_001)):
        topic.produce(f"due{queue}", queue=queue, delay_ms=delay_ms)
    client.clock.sleep(2_000)
    group.change(push={"url": URL})
    run(group, is_staying=True)
    assert consumer.bodies[0] == ["due1"]
    assert consumer.calls[0].messages[0]["invisible_until_ms"] < START_MS + 30_000


def test_a_run_that_finds_the_rate_used_up_waits_for_it(topic: Topic, consumer: Consumer, clock: Clock) -> None:
    group = topic.group("billing", rate_limit=0.2)
    topic.produce("a", "b")
    group.ack(group.take_one())
    group.change(push={"url": URL})
    run(group)
    assert (consumer.bodies, clock.now()) == ([["b"]], START_MS + 5_000)


@pytest.mark.parametrize(
    "settings", [{"ordered": True}, {"ordered": "key"}, {"max_in_flight": 1}, {"rate_limit": 0.01}]
)
def test_a_run_takes_no_slot_for_what_the_group_holds_back(
    store: TroubledStore, topic: Topic, consumer: Consumer, settings: Any
) -> None:
    """A message is leased, or the rate is used up: nothing can be called, however often the run looks."""
    group = topic.group("billing", **settings)
    topic.produce("a", "b", key="k")
    group.take_one()
    group.change(push={"url": URL})
    before = store.meter.write_units
    run(group)
    assert consumer.calls == []
    assert store.meter.write_units - before <= 2


def test_a_consumer_that_fails_is_called_less_and_less(topic: Topic, consumer: Consumer, clock: Clock) -> None:
    group = topic.group("billing", push={"url": URL, "concurrency": 9}, backoff_ms=[10_000, 20_000, 90_000])
    topic.produce(*map(str, range(100)))
    at: list[int] = []

    def fail(_call: Any) -> ConsumerResponse:
        at.append(clock.now() - START_MS)
        return ConsumerResponse(500)

    consumer.react = fail
    while clock.now() < START_MS + 200_000:
        run(group, is_staying=True)
        clock.sleep(500)
    assert [later - sooner for sooner, later in zip(at, at[1:], strict=False)] == [
        *(10_000, 20_000),
        *(60_000, 60_000, 60_000),
    ]


def test_a_consumer_that_recovers_is_called_at_once_again(topic: Topic, consumer: Consumer, clock: Clock) -> None:
    group = topic.group("billing", push={"url": URL, "batch": 1}, backoff_ms=[2_000])
    topic.produce("a", "b", "c")
    consumer.answers = [ConsumerResponse(500)]
    run(group)
    assert consumer.bodies == [["a"], ["a"], ["b"], ["c"]]
    assert clock.now() < START_MS + 4_000


def test_the_pause_begins_anew_after_a_success(topic: Topic, consumer: Consumer, clock: Clock) -> None:
    group = topic.group("billing", push={"url": URL, "batch": 1}, backoff_ms=[1_000, 40_000])
    topic.produce("a", "b", "c")
    at: list[int] = []

    def answer(_call: Any) -> ConsumerResponse:
        at.append(clock.now() - START_MS)
        return ConsumerResponse(500 if len(at) in (1, 3) else 200)

    consumer.react = answer
    run(group)
    assert consumer.bodies[:3] == [["a"], ["a"], ["b"]]
    assert at == [0, 1_000, 1_000, 2_000, 2_000]


def test_other_groups_are_called_while_one_pauses(topic: Topic, group: Group, consumer: Consumer) -> None:
    other = topic.group("shipping", push={"url": "https://ship.example/"})
    consumer.react = lambda call: ConsumerResponse(500 if call.url == URL else 200)
    topic.produce("a", "b")
    run(group)
    assert other.totals() == (0, 0, 0, 0)
    assert group.totals()[2] == 2


# -- a run -------------------------------------------------------------------------------------------------------------


def test_a_run_begins_no_call_when_its_time_is_over_and_settles_the_last(
    topic: Topic, group: Group, consumer: Consumer, clock: Clock
) -> None:
    group.change(push={"url": URL, "batch": 1})
    topic.produce("a", "b")

    def answer(_call: Call) -> ConsumerResponse:
        clock.sleep(RUN_MS)
        return OK

    consumer.react = answer
    run(group)
    assert (consumer.bodies, group.totals()) == ([["a"]], (1, 0, 0, 0))


@pytest.mark.parametrize("settings", [{"paused": True}, {"push": {}}])
def test_a_group_that_is_paused_or_pushed_no_more_is_not_called_again(
    store: TroubledStore, topic: Topic, group: Group, consumer: Consumer, settings: Any
) -> None:
    def answer(_call: Call) -> ConsumerResponse:
        group.change(**settings)
        return OK

    topic.produce(*map(str, range(11)))
    before = store.meter.write_units
    consumer.react = answer
    run(group)
    assert (len(consumer.calls), group.totals()) == (1, (1, 0, 0, 0))
    assert store.meter.write_units - before == 7  # no slot is taken a second time


def test_a_run_meets_a_group_that_was_made_again_without_a_push(topic: Topic, group: Group, consumer: Consumer) -> None:
    def answer(_call: Call) -> ConsumerResponse:
        group.delete()
        topic.group("billing")
        return OK

    topic.produce("a")
    consumer.react = answer
    run(group)
    assert len(consumer.calls) == 1


class Nested:
    """A crew whose tasks run at once, each within the one that starts it. `most`: how many were under way."""

    def __init__(self) -> None:
        self.now = self.most = 0

    def start(self, task: Callable[[], None]) -> None:
        self.now += 1
        self.most = max(self.most, self.now)
        task()
        self.now -= 1

    def join(self) -> None: ...


@pytest.mark.parametrize(("messages", "callers"), [(1, 1), (2, 2), (3, 3), (9, 3)])
def test_a_run_has_as_many_callers_as_are_of_use(
    store: TroubledStore, consumer: Consumer, messages: int, callers: int
) -> None:
    crew = Nested()
    client = Client(store, outside=consumer.outside(lambda: crew))
    topic = client.topic("orders")
    group = topic.group("billing", push={"url": URL, "batch": 1, "concurrency": 3})
    topic.produce(*["a"] * messages)
    run(group)
    assert (crew.most, len(consumer.calls)) == (callers, messages)


# -- waking ------------------------------------------------------------------------------------------------------------


def test_a_produce_wakes_the_push_at_most_once_a_second(
    topic: Topic, group: Group, consumer: Consumer, clock: Clock
) -> None:
    consumer.woken.clear()
    topic.produce("a")
    topic.produce("b")
    clock.sleep(999)
    topic.produce("c")
    assert consumer.woken == [("orders", False)]
    clock.sleep(1)
    topic.produce("d")
    assert consumer.woken == [("orders", False)] * 2


def test_a_call_that_has_no_time_left_wakes_nobody(
    client: Client, topic: Topic, group: Group, consumer: Consumer, clock: Clock
) -> None:
    clock.sleep(1_000)
    consumer.woken.clear()
    service = client.api.service
    found = service.env.catalogue.current_topic("orders")
    with deadline.ending(clock.uptime()):
        service.stored(found)
    assert consumer.woken == []
    service.stored(found)
    assert consumer.woken == [("orders", False)]


def test_whatever_makes_messages_ready_wakes_the_push(
    topic: Topic, group: Group, consumer: Consumer, clock: Clock
) -> None:
    half = topic.client.post(f"{topic.path}/transactions", messages=[{"body": "a"}]).json["transaction_id"]
    dying = topic.client.topic("other")
    dying.produce("a")
    failing = dying.group("failing", dead_letters={"topic": topic.name})
    ways: dict[str, Json] = {
        f"{failing.path}/bury": {"receipts": [failing.take_one()["receipt"]]},
        f"{topic.path}/transactions/{half}/commit": {},
        f"{topic.path}/requests": {"body": "a", "wait_ms": 0},
        f"{group.path}/dead/redrive": {},
        f"{group.path}/reset": {"to": "earliest"},
    }
    for path, body in ways.items():
        clock.sleep(1_000)
        consumer.woken.clear()
        assert topic.client.post(path, **body).status < 300
        assert consumer.woken == [("orders", False)], path


def test_a_pushed_request_has_what_its_reply_needs(topic: Topic, group: Group, consumer: Consumer) -> None:
    asked = topic.client.post(f"{topic.path}/requests", body="a", wait_ms=0).json
    run(group)
    [message] = consumer.calls[0].messages
    assert message["correlation_id"] == asked["correlation_id"]
    assert message["reply_by_ms"] == START_MS + 3_000


def test_a_produce_without_pushed_groups_wakes_nobody(topic: Topic, consumer: Consumer) -> None:
    topic.group("popped")
    topic.produce("a")
    assert consumer.woken == []


def test_a_push_that_is_set_is_woken_at_once(topic: Topic, consumer: Consumer) -> None:
    topic.produce("a")
    group = topic.group("billing", push={"url": URL})
    assert consumer.woken == [("orders", False)]
    group.change(push={"url": URL})
    assert consumer.woken == [("orders", False)] * 2


def test_the_sweep_wakes_topics_whose_pushed_groups_have_something_to_do(client: Client, consumer: Consumer) -> None:
    for name in ("quiet", "orders"):
        client.topic(name).group("billing", push={"url": URL})
    client.post("/topics/orders/messages", messages=[{"body": "a"}])
    consumer.woken.clear()
    service = client.api.service
    assert service.sweeps.push(service.outside.wake).as_json() == {"seen": 1, "done": 1}
    assert consumer.woken == [("orders", True)]


def test_a_run_sees_what_came_while_wakes_were_held_back(
    topic: Topic, group: Group, consumer: Consumer, clock: Clock
) -> None:
    clock.at(START_MS + 1_000, lambda: topic.produce("late"))
    run(group)
    assert consumer.bodies == [["late"]]


@pytest.mark.parametrize("settings", [{"backoff_ms": [10]}, {"rate_limit": 100}])
def test_it_sees_that_too_after_it_has_waited_for_a_retry_or_the_rate(
    topic: Topic, consumer: Consumer, clock: Clock, settings: Any
) -> None:
    topic.group("billing", push={"url": URL, "batch": 100}, **settings)
    topic.produce(*(["a"] * 120))
    consumer.answers = [ConsumerResponse(500)] if "backoff_ms" in settings else []
    clock.at(START_MS + 1_200, lambda: topic.produce("late"))
    topic.client.api.service.pushing.run("orders")
    assert consumer.bodies[-1] == ["late"]


def test_a_run_of_a_deleted_topic_ends(topic: Topic, group: Group) -> None:
    topic.delete()
    run(group)


@pytest.mark.parametrize("has_topic", [True, False])
def test_a_run_ends_quietly_when_what_it_serves_is_deleted(
    topic: Topic, group: Group, consumer: Consumer, caplog: pytest.LogCaptureFixture, has_topic: bool
) -> None:
    def delete(_call: Call) -> ConsumerResponse:
        other = group.seen_by(topic.client.another())
        other.delete() if has_topic else other.client.delete(topic.path)
        return OK

    topic.produce("a", "b")
    consumer.react = delete
    run(group, is_staying=True)
    assert (len(consumer.calls), caplog.records) == (1, [])


def test_a_run_ends_quietly_when_its_topic_is_deleted_while_it_delivers(
    topic: Topic, group: Group, clock: Clock, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    promoter = topic.client.api.service.delays.promoter
    decide = promoter._decide

    def meanwhile(*asked: Any) -> int:
        topic.client.another().delete(topic.path)
        return decide(*asked)

    monkeypatch.setattr(promoter, "_decide", meanwhile)
    topic.produce("a", delay_ms=1_000)
    clock.sleep(1_000)
    run(group)
    assert caplog.records == []


def test_a_defect_ends_the_push_of_its_group_alone_and_is_logged(
    topic: Topic, group: Group, store: TroubledStore, consumer: Consumer, caplog: pytest.LogCaptureFixture
) -> None:
    topic.group("audit", push={"url": URL})
    topic.produce("a")
    is_its = re.compile("group#.*#billing").search
    store.before = lambda verb, about: RuntimeError("a defect") if verb == "write" and is_its(str(about)) else None
    run(group)
    assert (len(consumer.calls), caplog.messages) == (1, ["the push to group billing has failed"])
    caplog.clear()


def test_a_defect_in_a_call_is_a_failed_call_that_holds_nothing(
    topic: Topic, consumer: Consumer, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    group = topic.group("billing", push={"url": URL}, backoff_ms=[5_000])
    topic.produce("a")

    def once(_call: Call) -> ConsumerResponse:
        consumer.react = None
        raise ImportError("partially initialized module")

    consumer.react = once
    run(group)
    assert [call.messages[0]["attempt"] for call in consumer.calls] == [1, 2]
    assert START_MS + 5_000 <= clock.now() < START_MS + 15_000
    assert group.totals() == (0, 0, 0, 0)
    assert caplog.messages == ["a call to group billing has failed"]
    caplog.clear()


def test_messages_that_cannot_be_signed_are_given_back(
    topic: Topic, group: Group, consumer: Consumer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    topic.produce("a")

    def no_keys(*_asked: Any) -> Any:
        raise StoreUnavailable("the signing key was removed")

    monkeypatch.setattr(Courier, "send", no_keys)
    run(group)
    assert group.totals() == (1, 0, 0, 0)
    monkeypatch.undo()
    run(group)
    assert [call.messages[0]["attempt"] for call in consumer.calls] == [1]
    assert caplog.messages == ["the push to group billing stops for now: the signing key was removed"]


def test_a_run_that_cannot_read_its_topic_ends_and_says_so(
    topic: Topic, group: Group, store: TroubledStore, caplog: pytest.LogCaptureFixture
) -> None:
    store.before = unavailable("read")
    run(group)
    assert [record.message for record in caplog.records] == ["no push in topic orders: the store throttled"]


# -- secrets -----------------------------------------------------------------------------------------------------------


def make_secret(group: Group) -> Any:
    answer = group.client.post(f"{group.path}/push/secrets")
    assert answer.status == 201
    return answer.json


def test_secrets_are_shown_once_and_listed_by_id(topic: Topic, group: Group, clock: Clock) -> None:
    first = make_secret(group)
    clock.sleep(5)
    second = make_secret(group)
    assert re.fullmatch("[0-9a-f]{16}", first["secret_id"])
    assert len(base64.b64decode(first["secret"].removeprefix("whsec_"), validate=True)) == 32
    assert first["secret"] != second["secret"]
    listed = group.client.get(f"{group.path}/push/secrets").json
    place = {"topic": "orders", "group": "billing"}
    expected = [
        {"secret_id": first["secret_id"], **place, "created_at_ms": START_MS},
        {"secret_id": second["secret_id"], **place, "created_at_ms": START_MS + 5},
    ]
    assert sorted(listed["secrets"], key=lambda each: each["created_at_ms"]) == expected
    assert listed["next"] is None
    assert "secrets" not in group.progress()


def test_a_secret_is_made_though_the_group_changes_meanwhile(topic: Topic, group: Group, store: TroubledStore) -> None:
    make_secret(group)  # the first write of all makes the signing key
    write = store.write

    def meanwhile(change: Write) -> Item:
        store.write = write  # type: ignore[method-assign]
        group.seen_by(topic.client.another()).change(max_attempts=3)
        return write(change)

    store.write = meanwhile  # type: ignore[assignment, method-assign]
    make_secret(group)
    assert len(group.client.get(f"{group.path}/push/secrets").json["secrets"]) == 2
    assert group.progress()["max_attempts"] == 3


def test_a_list_of_secrets_is_paged(topic: Topic, group: Group) -> None:
    made = {make_secret(group)["secret_id"] for _ in range(3)}
    path = f"{group.path}/push/secrets"
    page = group.client.get(path, limit=2).json
    rest = group.client.get(path, limit=2, next=page["next"]).json
    assert [len(page["secrets"]), len(rest["secrets"]), rest["next"]] == [2, 1, None]
    assert {each["secret_id"] for each in page["secrets"] + rest["secrets"]} == made
    assert group.client.get(path, limit=3).json["next"] is None
    assert group.client.get(path, next="garbage").problem == (400, "InvalidField")


def test_a_deleted_secret_is_gone_and_deleting_it_twice_is_404(topic: Topic) -> None:
    group = topic.group("billing")  # not pushed yet
    path = f"{group.path}/push/secrets/{make_secret(group)['secret_id']}"
    kept = make_secret(group)["secret_id"]
    assert group.client.delete(path).status == 204
    assert group.client.delete(path).problem == (404, "NotFound")
    listed = group.client.get(f"{group.path}/push/secrets").json["secrets"]
    assert [each["secret_id"] for each in listed] == [kept]


def test_a_group_has_only_so_many_secrets(topic: Topic, group: Group) -> None:
    for _ in range(PUSH_SECRETS_MAX):
        make_secret(group)
    answer = group.client.post(f"{group.path}/push/secrets")
    assert answer.problem == (400, "InvalidField")
    assert str(PUSH_SECRETS_MAX) in answer.json["detail"]


def test_the_secret_that_the_push_names_cannot_be_deleted(topic: Topic, group: Group) -> None:
    secret_id = make_secret(group)["secret_id"]
    group.change(push={"url": URL, "secret_id": secret_id})
    path = f"{group.path}/push/secrets/{secret_id}"
    assert group.client.delete(path).problem == (400, "InvalidField")
    group.change(push={"url": URL})
    assert group.client.delete(path).status == 204


def test_secrets_outlive_changes_of_settings_but_not_their_group(topic: Topic, group: Group) -> None:
    make_secret(group)
    group.change(max_attempts=3, push={"url": URL, "batch": 1})
    assert len(group.client.get(f"{group.path}/push/secrets").json["secrets"]) == 1
    group.delete()
    again = topic.group("billing", push={"url": URL})
    assert again.client.get(f"{again.path}/push/secrets").json["secrets"] == []
