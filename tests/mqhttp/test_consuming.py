"""Messages that clients of MQ over HTTP consume and ack."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from tests.mqhttp.client import Mq, Refused, md5, properties_of, receipt_handles
from tests.support.client import Client, Group, Topic
from tests.support.clock import Clock
from tests.support.late_store import LateStore

LAMBDA_BYTES_MAX = 6 * 1024 * 1024


def test_a_consumer_gets_what_its_publisher_sent(mq: Mq, clock: Clock) -> None:
    sent = mq.publish("grüß", "paid", KEYS="k", a="b", __SHARDINGKEY="s")
    published_ms, clock.ms = clock.now(), clock.ms + 1_000
    [taken] = mq.consume()
    handle = taken.pop("ReceiptHandle")
    assert taken == {
        "MessageId": sent["MessageId"],
        "MessageBodyMD5": md5("grüß"),
        "MessageBody": "grüß",
        "PublishTime": str(published_ms),
        "NextConsumeTime": str(clock.now() + 30_000),
        "FirstConsumeTime": str(clock.now()),
        "ConsumedTimes": "1",
        "MessageTag": "paid",
        "Properties": "KEYS:k|a:b|__SHARDINGKEY:s|",
    }
    assert mq.consume() == []
    clock.ms += 30_000
    [again] = mq.consume()
    shown = {name: again[name] for name in ("MessageId", "ConsumedTimes", "FirstConsumeTime")}
    assert shown == {
        "MessageId": sent["MessageId"],
        "ConsumedTimes": "2",
        "FirstConsumeTime": str(clock.now() - 30_000),
    }
    assert mq.delete(again["ReceiptHandle"]) == []
    assert mq.delete(again["ReceiptHandle"]) == [], "acked is acked"
    assert [each["ReceiptHandle"] for each in mq.delete(handle)] == [handle], "the one before has lost"
    clock.ms += 30_000
    assert mq.consume() == []


def test_what_a_message_lacks_is_left_out(mq: Mq) -> None:
    mq.publish("a")
    [taken] = mq.consume()
    assert taken.keys().isdisjoint({"MessageTag", "Properties"})


def test_messages_of_all_queues_come_together(client: Client) -> None:
    topic = client.topic("orders", queues=4)
    topic.group("billing")
    for queue in range(4):
        topic.produce("a", queue=queue)
    mq = Mq(client)
    assert len(mq.consume()) == 4


def test_one_message_comes_unless_more_are_asked_for(mq: Mq) -> None:
    mq.publish("a")
    mq.publish("b")
    answer = mq.ask("GET", query={"consumer": "billing"})
    assert answer.raw.count(b"<MessageBody>") == 1


@pytest.mark.parametrize(("seconds", "waited_ms"), [(0, 0), (3, 3_000), (30, 20_000)])
def test_a_consume_waits_for_a_first_message(mq: Mq, clock: Clock, seconds: int, waited_ms: int) -> None:
    began = clock.ms
    assert mq.consume(waitseconds=seconds) == []
    assert clock.ms - began == waited_ms
    clock.at(clock.ms + 1_000, lambda: mq.publish("a"))
    if seconds:
        assert [taken["MessageBody"] for taken in mq.consume(waitseconds=seconds)] == ["a"]


def test_the_time_to_wait_for_is_shown(mq: Mq, clock: Clock) -> None:
    due_ms = clock.now() + 5_000
    mq.publish("later", __STARTDELIVERTIME=due_ms)
    sent_ms, clock.ms = clock.now(), due_ms
    [taken] = mq.consume()
    assert properties_of(taken) == {"__STARTDELIVERTIME": str(due_ms)}
    assert taken["PublishTime"] == str(sent_ms)


# -- what clients cannot read -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("body", ["a\0b", "\ufffe", "\x1b[1m"])
def test_a_body_that_xml_cannot_hold_is_in_base64(mq: Mq, topic: Topic, body: str) -> None:
    topic.produce(body, properties={"a": "b"})
    [taken] = mq.consume()
    assert base64.b64decode(taken["MessageBody"]).decode() == body
    assert taken["MessageBodyMD5"] == md5(taken["MessageBody"])
    assert properties_of(taken) == {"a": "b", "encoding": "base64"}


def test_bytes_are_in_base64(mq: Mq, topic: Topic) -> None:
    topic.produce({"body_base64": "AAE="})
    [taken] = mq.consume()
    assert (taken["MessageBody"], properties_of(taken)) == ("AAE=", {"encoding": "base64"})


@pytest.mark.parametrize("body", ["<&>\"'", "a\r\nb\rc\td", "]]>", " \n", "\U0001f600"])
def test_text_is_escaped_in_one_piece(mq: Mq, topic: Topic, body: str) -> None:
    topic.produce(body)
    answer = mq.ask("GET", query={"consumer": "billing"})
    assert b"CDATA" not in answer.raw
    topic.produce(body)
    assert [taken["MessageBody"] for taken in mq.consume()] == [body]


def test_properties_that_clients_cannot_read_are_left_out(mq: Mq, topic: Topic) -> None:
    unreadable = {"u": "http://x", "p": "a|b", "q": 'a"b', "s": "it's", "z": "a\0b", "e": "", "a:b": "c", "": "d"}
    topic.produce("a", properties={**unreadable, "fine": "ü <&>"}, tag="a\0b")
    [taken] = mq.consume()
    assert properties_of(taken) == {"fine": "ü <&>"}
    assert "MessageTag" not in taken


@pytest.mark.parametrize(
    ("body", "is_encoded"), [("&" * 1_300_000, True), ("a" * 4_000_000, False), ("&\n" * 9, False)]
)
def test_an_answer_fits_into_that_of_a_function(mq: Mq, topic: Topic, body: str, is_encoded: bool) -> None:
    topic.produce(body)
    [taken] = mq.consume()
    assert ("encoding" in properties_of(taken)) == is_encoded
    assert (base64.b64decode(taken["MessageBody"]).decode() if is_encoded else taken["MessageBody"]) == body
    assert len(taken["MessageBody"]) < LAMBDA_BYTES_MAX


def test_messages_for_which_an_answer_has_no_room_come_with_the_next(mq: Mq, topic: Topic, group: Group) -> None:
    for _ in range(16):
        topic.produce("&" * 250_000, properties={"p": "&" * 16_000})
    counts = []
    for _ in range(2):
        answer = mq.ask("GET", query={"consumer": "billing", "numOfMessages": "16"})
        assert len(json.dumps(answer.raw.decode())) < LAMBDA_BYTES_MAX
        assert answer.raw.count(b"<ConsumedTimes>1</ConsumedTimes>") == answer.raw.count(b"<Message>")
        counts.append(answer.raw.count(b"<Message>"))
    assert counts == [12, 4]
    assert group.totals() == (0, 16, 0, 0)


# -- tags -------------------------------------------------------------------------------------------------------------


def test_the_first_tag_becomes_the_filter_of_the_group(mq: Mq, group: Group) -> None:
    for tag in ("a", "b", "c"):
        mq.publish(tag, tag)
    assert [taken["MessageBody"] for taken in mq.consume(tag="a || b||a")] == ["a", "b"]
    assert group.progress()["filter"] == {"tags": ["a", "b"]}
    mq.publish("b", "b")
    mq.publish("c", "c")
    assert [taken["MessageBody"] for taken in mq.consume(tag="b||a")] == ["b"], "in any order"


@pytest.mark.parametrize("parameters", [{}, {"tag": ""}, {"tag": "*"}])
def test_without_a_tag_the_group_receives_what_it_does(mq: Mq, group: Group, parameters: Any) -> None:
    mq.publish("a", "a")
    mq.publish("b", "b")
    group.change(filter={"tags": ["b"]})
    assert [taken["MessageBody"] for taken in mq.consume(**parameters)] == ["b"]


def test_another_tag_than_that_of_the_group_is_refused(mq: Mq, group: Group) -> None:
    mq.publish("a", "a")
    mq.consume(tag="b")
    text = "parameter 'tag' asks for 'a||c', but group 'billing' receives 'b': a group has one filter"
    query = {"consumer": "billing", "tag": "a||c"}
    assert mq.refused("GET", query=query) == Refused(400, "InvalidArgument", text)
    group.change(filter={"expression": "tag == 'a'"})
    assert "receives what fulfils 'tag == 'a''" in mq.refused("GET", query=query).message


def test_a_filter_that_changes_ends_the_wait_for_the_old_one(mq: Mq, group: Group, clock: Clock) -> None:
    mq.consume(tag="a")
    clock.at(clock.ms + 500, lambda: group.change(filter={"tags": ["b"]}))
    assert mq.refused("GET", query={"consumer": "billing", "tag": "a", "waitseconds": 10}).code == "InvalidArgument"


def test_a_filter_counts_as_soon_as_it_is_set() -> None:
    store = LateStore()
    client = Client(store)
    client.topic("orders").group("billing")
    mq, other = Mq(client), Mq(client.another())
    for tag in ("a", "b"):
        mq.publish(tag, tag)
    store.fall_behind()
    assert [taken["MessageBody"] for taken in other.consume(tag="a")] == ["a"]
    assert mq.refused("GET", query={"consumer": "billing", "tag": "b"}).code == "InvalidArgument"
    assert mq.consume(tag="a") == []


@pytest.mark.parametrize("tag", ["a|b", "a||", "||", " ", "x" * 129])
def test_a_tag_that_no_message_can_have_is_refused(mq: Mq, group: Group, tag: str) -> None:
    assert mq.refused("GET", query={"consumer": "billing", "tag": tag}).code == "InvalidArgument"
    assert group.progress()["filter"] is None


# -- order ------------------------------------------------------------------------------------------------------------


def test_in_order_nothing_comes_past_what_is_not_acked(client: Client, topic: Topic) -> None:
    topic.group("in-order", ordered=True)
    mq = Mq(client)
    for body in ("a", "b", "c"):
        mq.publish(body)
    taken = mq.consume("in-order", numOfMessages=2, trans="order")
    assert [each["MessageBody"] for each in taken] == ["a", "b"]
    mq.delete(taken[0]["ReceiptHandle"], consumer="in-order")
    assert mq.consume("in-order", trans="order") == []
    mq.delete(taken[1]["ReceiptHandle"], consumer="in-order")
    assert [each["MessageBody"] for each in mq.consume("in-order", trans="order")] == ["c"]


def test_in_order_by_key_a_key_holds_up_itself_alone(client: Client, topic: Topic) -> None:
    topic.group("by-key", ordered="key")
    mq = Mq(client)
    for body, key in (("a", "s"), ("b", "s"), ("c", "t")):
        mq.publish(body, __SHARDINGKEY=key)
    [first] = mq.consume("by-key", numOfMessages=1, trans="order")
    assert first["MessageBody"] == "a"
    assert [each["MessageBody"] for each in mq.consume("by-key", trans="order")] == ["c"]
    mq.delete(first["ReceiptHandle"], consumer="by-key")
    assert [each["MessageBody"] for each in mq.consume("by-key", trans="order")] == ["b"]


def test_order_needs_a_group_that_keeps_it(mq: Mq) -> None:
    mq.publish("a")
    text = "parameter 'trans' is 'order', but group 'billing' is not ordered"
    query = {"consumer": "billing", "trans": "order", "tag": "a"}
    assert mq.refused("GET", query=query) == Refused(400, "InvalidArgument", text)
    assert len(mq.consume()) == 1, "and nothing was taken, nor the filter set"


# -- acks -------------------------------------------------------------------------------------------------------------


def test_handles_that_do_not_count_are_listed_with_the_reason(mq: Mq, group: Group, clock: Clock) -> None:
    mq.publish("a")
    mq.publish("b")
    old = mq.consume()
    clock.ms += 30_000
    new = mq.consume()
    failed = mq.delete("bogus", old[0]["ReceiptHandle"], new[1]["ReceiptHandle"])
    assert {(each["ErrorCode"], each["ReceiptHandle"]) for each in failed} == {
        ("ReceiptHandleError", "bogus"),
        ("MessageNotExist", old[0]["ReceiptHandle"]),
    }
    assert all(list(each) == ["ErrorCode", "ErrorMessage", "ReceiptHandle"] for each in failed)
    assert group.totals() == (0, 1, 0, 0), "the others count"


def test_a_handle_of_another_group_is_none_of_this(mq: Mq, topic: Topic) -> None:
    topic.group("shipping")
    mq.publish("a")
    [taken] = mq.consume("shipping")
    assert [each["ErrorCode"] for each in mq.delete(taken["ReceiptHandle"])] == ["ReceiptHandleError"]


def test_an_ack_has_one_to_sixteen_handles(mq: Mq) -> None:
    for _ in range(17):
        mq.publish("a")
    taken = [each["ReceiptHandle"] for each in mq.consume()]
    assert len(taken) == 16
    assert mq.delete(*taken) == []
    query = {"consumer": "billing"}
    for count in (0, 17):
        refused = mq.refused("DELETE", receipt_handles(*["a"] * count), query)
        assert (refused.status, refused.code) == (400, "InvalidArgument")


@pytest.mark.parametrize("handle", ["", "x" * 513])
def test_a_handle_has_its_length(mq: Mq, handle: str) -> None:
    refused = mq.refused("DELETE", receipt_handles(handle), {"consumer": "billing"})
    assert (refused.status, refused.code) == (400, "ReceiptHandleError")


# -- what is not there ------------------------------------------------------------------------------------------------


def test_topics_and_groups_that_are_not_there_have_their_errors(mq: Mq, client: Client) -> None:
    query = {"consumer": "none"}
    for method, raw in (("GET", b""), ("DELETE", receipt_handles("a"))):
        assert mq.refused(method, raw, query) == Refused(
            404, "SubscriptionNotExist", "topic 'orders' has no group 'none'"
        )
        missing = Mq(client, "none").refused(method, raw, query)
        assert missing == Refused(404, "TopicNotExist", "topic 'none' does not exist")


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"push": {"url": "https://example.org/"}}, "group 'odd' has a push"),
        ({"mode": "broadcast"}, "group 'odd' is broadcast"),
    ],
)
def test_groups_that_nobody_consumes_from_say_why(mq: Mq, topic: Topic, settings: Any, text: str) -> None:
    topic.group("odd", **settings)
    refused = mq.refused("GET", query={"consumer": "odd"})
    assert (refused.status, refused.code) == (400, "InvalidArgument")
    assert text in refused.message


def test_a_paused_group_gives_nothing(mq: Mq, group: Group) -> None:
    mq.publish("a")
    group.change(paused=True)
    assert mq.consume() == []
