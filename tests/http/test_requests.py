"""Requests and replies over the routes."""

from __future__ import annotations

import base64
from random import Random
from typing import Any

import pytest

from chalicelib.core.base import deadline
from chalicelib.core.base.errors import StoreUnavailable
from chalicelib.core.base.limits import BODY_BYTES_MAX, HOUR_MS, REPLY_KEPT_MS
from chalicelib.core.table.writes import Key
from local.memory.store import MemoryStore
from tests.support.client import Answer, Client, Group, Json, Topic
from tests.support.clock import Clock
from tests.support.troubled_store import TroubledStore, unavailable, unknown

TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def ask(topic: Topic, body: str = "2 + 2?", **fields: Any) -> Answer:
    return topic.client.post(f"{topic.path}/requests", body=body, **fields)


def asked(topic: Topic, **fields: Any) -> str:
    """The correlation id of a request for whose reply nobody waits."""
    answer = ask(topic, wait_ms=0, **fields)
    assert answer.status == 202, answer.json
    correlation_id: str = answer.json["correlation_id"]
    assert answer.json == {"correlation_id": correlation_id}
    return correlation_id


def reply(client: Client, correlation_id: str, body: str = "4", **fields: Any) -> Answer:
    return client.post(f"/requests/{correlation_id}/reply", body=body, **fields)


def fetch(client: Client, correlation_id: str, **query: Any) -> Answer:
    return client.get(f"/requests/{correlation_id}", **query)


def body_of(answer: Answer) -> str:
    assert answer.status == 200, answer.json
    body: str = answer.json["reply"]["body"]
    return body


def worker(group: Group, client: Client, **fields: Any) -> None:
    """Takes one request and replies to it."""
    message = group.seen_by(client).take_one()
    answer = reply(client, message["correlation_id"], receipt=message["receipt"], **fields)
    assert (answer.status, answer.json) == (201, {"acked": 1, "failed": []})


class Bucket(MemoryStore):
    """A store with a bucket. `blobs`: the names of the objects put there."""

    def __init__(self) -> None:
        super().__init__(keeps_blobs=True)
        self.blobs: list[str] = []

    def put_blob(self, name: str, data: bytes) -> None:
        self.blobs.append(name)
        super().put_blob(name, data)


# -- asking and answering ---------------------------------------------------------------------------------------------


def test_a_caller_gets_the_reply_of_another_instance(topic: Topic, group: Group, clock: Clock) -> None:
    began_ms = clock.ms
    other = topic.client.another()
    clock.at(began_ms + 300, lambda: worker(group, other, properties={"unit": "one"}))
    answer = ask(topic)
    assert answer.status == 200
    assert answer.json["reply"] == {"body": "4", "properties": {"unit": "one"}, "replied_at_ms": began_ms + 300}
    assert clock.ms - began_ms <= 300 * 1.1 + 5
    assert fetch(other, answer.json["correlation_id"]).json == answer.json
    assert group.totals() == (0, 0, 0, 0)


def test_a_caller_hears_at_once_of_a_reply_through_its_instance(topic: Topic, group: Group, clock: Clock) -> None:
    clock.at(clock.ms + 1_999, lambda: worker(group, topic.client))
    answer = ask(topic)
    assert (body_of(answer), answer.json["reply"]["replied_at_ms"]) == ("4", clock.ms)


def test_a_request_is_a_message_that_says_how_to_reply(topic: Topic, group: Group, clock: Clock) -> None:
    correlation_id = asked(topic, key="k", tag="sum", properties={"a": "b"}, timeout_ms=5_000)
    message = group.take_one()
    assert (message["correlation_id"], message["reply_by_ms"]) == (correlation_id, clock.ms + 5_000)
    assert (message["body"], message["key"], message["tag"], message["properties"]) == (
        "2 + 2?",
        "k",
        "sum",
        {"a": "b"},
    )
    topic.produce("no request")
    assert not {"correlation_id", "reply_by_ms"} & group.take_one().keys()


def test_every_group_sees_the_request_and_the_first_reply_wins(topic: Topic, group: Group) -> None:
    second = topic.group("shipping")
    correlation_id = asked(topic)
    assert group.take_one()["correlation_id"] == second.take_one()["correlation_id"] == correlation_id
    assert reply(topic.client, correlation_id, "mine").status == 201
    assert reply(topic.client.another(), correlation_id, "yours").problem == (409, "AlreadyReplied")
    assert body_of(fetch(topic.client, correlation_id)) == "mine"


@pytest.mark.parametrize("size", [1, BODY_BYTES_MAX])
def test_a_reply_comes_out_byte_for_byte(topic: Topic, clock: Clock, size: int) -> None:
    body = base64.b64encode(Random(size).randbytes(size)).decode()
    correlation_id = asked(topic)
    path = f"/requests/{correlation_id}/reply"
    began_ms = clock.ms
    for _ in range(2):
        assert topic.client.post(path, body_base64=body, properties={"": "é"}).status == 201
        clock.sleep(1)
    answer = fetch(topic.client.another(), correlation_id).json["reply"]
    assert answer == {"body_base64": body, "properties": {"": "é"}, "replied_at_ms": began_ms}
    assert topic.client.post(path, body_base64=base64.b64encode(b"other").decode()).problem == (409, "AlreadyReplied")


def test_a_reply_is_the_same_whatever_the_order_of_its_properties(topic: Topic) -> None:
    correlation_id = asked(topic)
    assert reply(topic.client, correlation_id, properties={"a": "1", "b": "2"}).status == 201
    assert reply(topic.client, correlation_id, properties={"b": "2", "a": "1"}).status == 201
    assert reply(topic.client, correlation_id, properties={"b": "1", "a": "2"}).problem == (409, "AlreadyReplied")


def test_a_large_reply_goes_by_itself_also_where_there_is_a_bucket() -> None:
    """Nothing would ever remove it from there: no segment points to a reply."""
    store = Bucket()
    topic = Client(store).topic("orders")
    body = Random(1).randbytes(300_000).hex()
    correlation_id = asked(topic)
    assert reply(topic.client, correlation_id, body).status == 201
    assert store.blobs == []
    assert body_of(fetch(topic.client.another(), correlation_id)) == body


def test_text_comes_back_as_text_and_is_not_the_same_as_bytes(topic: Topic) -> None:
    correlation_id = asked(topic)
    assert reply(topic.client, correlation_id, "ä").status == 201
    as_bytes = base64.b64encode("ä".encode()).decode()
    answer = topic.client.post(f"/requests/{correlation_id}/reply", body_base64=as_bytes)
    assert answer.problem == (409, "AlreadyReplied")
    assert body_of(fetch(topic.client, correlation_id)) == "ä"


def test_the_trace_of_a_request_reaches_its_consumers(topic: Topic, group: Group) -> None:
    body = {"body": "a", "wait_ms": 0}
    assert topic.client.ask("POST", f"{topic.path}/requests", body, traceparent=TRACE).status == 202
    assert group.take_one()["properties"] == {"traceparent": TRACE}


# -- time -------------------------------------------------------------------------------------------------------------


def test_a_timeout_is_final(topic: Topic, group: Group, clock: Clock) -> None:
    began_ms = clock.ms
    answer = ask(topic, timeout_ms=700)
    assert answer.problem == (504, "ReplyTimeout")
    assert clock.ms == began_ms + 700
    correlation_id = answer.json["correlation_id"]
    clock.set_back_ms = 600  # whatever the clocks of others say
    assert reply(topic.client.another(), correlation_id).problem == (410, "RequestExpired")
    assert fetch(topic.client.another(), correlation_id).problem == (504, "ReplyTimeout")
    clock.set_back_ms = 0
    assert group.pop()["messages"] == []


def test_a_fetch_at_the_deadline_ends_the_request_too(topic: Topic, clock: Clock) -> None:
    correlation_id = asked(topic)
    assert fetch(topic.client, correlation_id).status == 202
    clock.sleep(3_000)
    answer = fetch(topic.client, correlation_id)
    assert (answer.problem, answer.json["correlation_id"]) == ((504, "ReplyTimeout"), correlation_id)
    clock.set_back_ms = 3_000
    assert reply(topic.client, correlation_id).problem == (410, "RequestExpired")


def test_a_reply_that_was_stored_in_time_is_fetched_after_the_deadline(topic: Topic, clock: Clock) -> None:
    correlation_id = asked(topic)
    clock.sleep(2_999)
    assert reply(topic.client, correlation_id).status == 201
    clock.sleep(REPLY_KEPT_MS)
    assert body_of(fetch(topic.client, correlation_id)) == "4"
    clock.sleep(1)
    assert fetch(topic.client, correlation_id).problem == (404, "RequestNotFound")


def test_a_late_reply_is_refused_unless_it_is_the_one_that_is_there(topic: Topic, clock: Clock) -> None:
    answered, unanswered = asked(topic), asked(topic)
    assert reply(topic.client, answered).status == 201
    clock.sleep(3_000)
    assert reply(topic.client, answered).status == 201
    assert reply(topic.client, answered, "5").problem == (410, "RequestExpired")
    assert reply(topic.client, unanswered).problem == (410, "RequestExpired")
    clock.sleep(REPLY_KEPT_MS)
    assert reply(topic.client, unanswered).problem == (410, "RequestExpired")


def test_a_call_waits_no_longer_than_asked(topic: Topic, clock: Clock) -> None:
    began_ms = clock.ms
    answer = ask(topic, timeout_ms=60_000)
    assert (answer.status, clock.ms - began_ms) == (202, 25_000)
    passed_ms = [sum(clock.slept[:looks]) for looks in range(len(clock.slept))]
    assert clock.slept[:-1] == [min(max(passed // 10, 5), 200) for passed in passed_ms[:-1]]
    assert fetch(topic.client, answer.json["correlation_id"], wait_ms=7_001).status == 202
    assert clock.ms - began_ms == 32_001
    correlation_id = answer.json["correlation_id"]
    clock.at(clock.ms + 3_000, lambda: reply(topic.client.another(), correlation_id))
    assert body_of(fetch(topic.client, correlation_id, wait_ms=25_000)) == "4"
    assert clock.ms - began_ms <= 32_001 + 3_000 + 200


def test_a_fetch_that_waits_past_the_deadline_ends_there(topic: Topic, clock: Clock) -> None:
    correlation_id = asked(topic, timeout_ms=1_000)
    began_ms = clock.ms
    assert fetch(topic.client, correlation_id, wait_ms=25_000).problem == (504, "ReplyTimeout")
    assert clock.ms - began_ms == 1_000


@pytest.mark.parametrize("is_far", [False, True])
def test_of_two_that_wait_for_one_reply_one_may_give_up(topic: Topic, clock: Clock, is_far: bool) -> None:
    """The other one gets it, from the same instance or from another."""
    correlation_id, client = asked(topic, timeout_ms=60_000), topic.client
    gave_up: list[Answer] = []
    clock.at(clock.ms + 100, lambda: gave_up.append(fetch(client, correlation_id, wait_ms=500)))
    clock.at(clock.ms + 1_000, lambda: reply(client.another() if is_far else client, correlation_id))
    began_ms = clock.ms
    assert body_of(fetch(client, correlation_id, wait_ms=25_000)) == "4"
    assert clock.ms - began_ms <= 1_000 + 200
    assert [answer.status for answer in gave_up] == [202]


def test_clocks_that_are_set_back_lengthen_no_wait(topic: Topic, clock: Clock) -> None:
    began_ms = clock.ms

    def set_back() -> None:
        clock.set_back_ms = 20_000

    clock.at(clock.ms + 100, set_back)
    assert ask(topic).problem == (504, "ReplyTimeout")
    assert clock.ms - began_ms == 3_000


def test_a_call_that_waits_for_the_deadline_learns_what_it_brings(topic: Topic, clock: Clock) -> None:
    """Also where the clock is set back while the request is sent: no call ends with neither."""

    def set_back(_topic: str, _messages: object) -> None:
        clock.set_back_ms = 50

    topic.client.api.service.producing.hooks.before.append(set_back)
    assert ask(topic, timeout_ms=1_000).problem == (504, "ReplyTimeout")


def test_a_reply_that_arrives_just_before_the_time_out_is_the_answer(
    topic: Topic, store: TroubledStore, clock: Clock
) -> None:
    """By the clock of its replier it was in time."""
    correlation_id, other = asked(topic), topic.client.another()

    def reply_first(verb: str, _about: object) -> None:
        if verb == "write":
            store.before, clock.set_back_ms = unavailable(), 1
            assert reply(other, correlation_id).status == 201
            clock.set_back_ms = 0

    clock.sleep(3_000)
    store.before = reply_first
    assert body_of(fetch(topic.client, correlation_id)) == "4"


def test_a_call_ends_when_its_client_has_hung_up(topic: Topic, clock: Clock) -> None:
    began_ms = clock.ms
    with deadline.caller(lambda: clock.ms > began_ms + 100):
        assert ask(topic).status == 202
    assert clock.ms < began_ms + 150


def test_a_reply_whose_payload_is_lost_is_no_answer(topic: Topic, store: TroubledStore) -> None:
    correlation_id = asked(topic)
    assert reply(topic.client, correlation_id, Random(1).randbytes(300_000).hex()).status == 201
    store.remove_all([Key(pk, sk) for pk, items in store._items.items() for sk in items if pk.startswith("payload#")])
    assert fetch(topic.client, correlation_id).problem == (503, "StoreUnavailable")


def test_the_asking_instance_may_die(topic: Topic, group: Group, store: TroubledStore, clock: Clock) -> None:
    """The caller asks again elsewhere, with the id that it got from the problem."""
    store.before = lambda verb, about: StoreUnavailable("down") if verb == "read" and "reply#" in str(about) else None
    answer = ask(topic)
    assert (answer.problem, answer.json["outcome"]) == ((503, "StoreUnavailable"), "unknown")
    store.before = unavailable()
    other = topic.client.another()
    worker(group, other)
    assert body_of(fetch(other, answer.json["correlation_id"])) == "4"


# -- receipts ---------------------------------------------------------------------------------------------------------


def test_the_ack_follows_the_reply_and_can_be_repeated(topic: Topic, group: Group, store: TroubledStore) -> None:
    asked(topic)
    message = group.take_one()
    store.before = lambda verb, about: (
        StoreUnavailable("down") if verb == "write" and about.key.sk.startswith("cursor#") else None
    )
    answer = reply(topic.client, message["correlation_id"], receipt=message["receipt"])
    assert (answer.problem, answer.json["outcome"]) == ((503, "StoreUnavailable"), "unknown")
    store.before = unavailable()
    assert body_of(fetch(topic.client, message["correlation_id"])) == "4"
    assert group.totals() == (0, 1, 0, 0)
    other = topic.client.another()
    for _ in range(2):
        answer = reply(other, message["correlation_id"], receipt=message["receipt"])
        assert (answer.status, answer.json) == (201, {"acked": 1, "failed": []})
    assert group.totals() == (0, 0, 0, 0)


def test_a_stored_reply_tells_of_the_receipt_it_came_with(
    topic: Topic, group: Group, store: TroubledStore, clock: Clock
) -> None:
    def stored_reply() -> Json:
        *_, [item] = (items.values() for pk, items in store._items.items() if pk.startswith("reply#"))
        return {name: item[name] for name in ("group", "queue", "offset", "attempt", "taken_at") if name in item}

    def told(**pop: Any) -> Json:
        correlation_id = asked(topic)
        message = group.take_one(**pop)
        assert reply(topic.client, correlation_id, receipt=message["receipt"]).json["acked"] == 1
        return stored_reply()

    known = {"group": "billing", "queue": 0, "attempt": 1}
    assert told() == {**known, "offset": 0, "taken_at": clock.ms}
    assert told(attempt_id="a") == {**known, "offset": 1}
    correlation_id, message = asked(topic), group.take_one()
    group.delete()
    assert reply(topic.client.another(), correlation_id, receipt=message["receipt"]).json["acked"] == 0
    assert stored_reply() == {}


def test_a_lost_lease_fails_beside_the_stored_reply(topic: Topic, group: Group, clock: Clock) -> None:
    correlation_id = asked(topic, timeout_ms=HOUR_MS)
    lost = group.take_one(invisible_ms=1_000)["receipt"]
    clock.sleep(1_001)
    group.take_one()
    answer = reply(topic.client, correlation_id, receipt=lost)
    assert (answer.status, answer.json) == (201, {"acked": 0, "failed": [{"receipt": lost, "code": "LeaseLost"}]})


def test_receipts_of_elsewhere_fail_beside_the_stored_reply(topic: Topic, group: Group) -> None:
    elsewhere = topic.client.topic("payments")
    of_another_topic = elsewhere.group("billing")
    elsewhere.produce("a")
    topic.produce("b")
    deleted = topic.group("deleted")
    forgotten = topic.group("forgotten")
    receipts = ["made-up", of_another_topic.take_one()["receipt"], deleted.take_one()["receipt"]]
    receipts.append(forgotten.take_one()["receipt"])
    assert reply(topic.client, asked(topic), receipt=receipts[-1]).json["acked"] == 1  # the instance knows its name
    deleted.delete()
    forgotten.delete()
    correlation_id = asked(topic)
    for receipt in ["", *receipts, correlation_id]:
        answer = reply(topic.client, correlation_id, receipt=receipt)
        assert answer.json == {"acked": 0, "failed": [{"receipt": receipt, "code": "ReceiptInvalid"}]}
        assert answer.status == 201
    assert of_another_topic.totals() == (0, 1, 0, 0)


def test_a_refused_reply_acks_nothing(topic: Topic, group: Group, clock: Clock) -> None:
    asked(topic)
    message = group.take_one(invisible_ms=10_000)
    assert reply(topic.client, message["correlation_id"], "other").status == 201
    answer = reply(topic.client, message["correlation_id"], receipt=message["receipt"])
    assert answer.problem == (409, "AlreadyReplied")
    assert group.totals() == (0, 1, 0, 0)


# -- topics that are deleted ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_made_again", [False, True])
def test_a_call_outlives_its_topic(topic: Topic, group: Group, is_made_again: bool) -> None:
    asked(topic)
    message = group.take_one()
    other = topic.client.another()
    Topic(other, "orders").details()
    topic.delete()
    if is_made_again:
        topic.client.topic("orders").group("billing")
    for client in (other, topic.client):
        answer = reply(client, message["correlation_id"], receipt=message["receipt"])
        assert answer.status == 201
        assert answer.json["failed"] == [{"receipt": message["receipt"], "code": "ReceiptInvalid"}]
    assert body_of(fetch(topic.client, message["correlation_id"])) == "4"


def test_a_request_to_a_topic_made_again_is_answered_there(topic: Topic) -> None:
    """By instances that have cached the deleted one: a closed log shows it to one, the receipt to another."""
    stale, stale_too = Topic(topic.client.another(), "orders"), topic.client.another()
    stale.produce("warm")
    Topic(stale_too, "orders").produce("warm")
    topic.delete()
    group = topic.client.topic("orders").group("billing")
    correlation_id = asked(stale)
    message = group.take_one()
    assert message["correlation_id"] == correlation_id
    assert reply(stale_too, correlation_id, receipt=message["receipt"]).json["acked"] == 1


# -- bad requests -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "code", "name"),
    [
        ({"body": "a", "body_base64": "YQ=="}, "InvalidField", "body_base64"),
        ({"body": "a", "delay_ms": 1}, "UnknownField", "delay_ms"),
        ({"body": "a", "deliver_at_ms": 1}, "UnknownField", "deliver_at_ms"),
        ({"body": "a", "dedup_id": "d"}, "UnknownField", "dedup_id"),
        ({"body": "a", "ttl_ms": 1}, "UnknownField", "ttl_ms"),
        ({"body": "a", "queue": 1}, "InvalidField", "queue"),
    ],
)
def test_a_bad_request_is_refused_and_not_sent(topic: Topic, fields: Json, code: str, name: str) -> None:
    answer = topic.client.post(f"{topic.path}/requests", **fields)
    assert answer.problem == (400, code)
    assert name in answer.json["detail"]
    assert topic.read()["messages"] == []


def test_a_request_that_is_too_large_is_refused(topic: Topic) -> None:
    assert ask(topic, "x" * (BODY_BYTES_MAX + 1)).problem == (413, "MessageTooLarge")
    assert topic.read()["messages"] == []


@pytest.mark.parametrize(
    ("fields", "code", "name"),
    [
        ({}, "InvalidField", "body"),
        ({"body": "a", "key": "k"}, "UnknownField", "key"),
        ({"body": "a", "properties": {"a": 1}}, "InvalidField", "properties.a"),
    ],
)
def test_a_bad_reply_is_refused_and_not_stored(topic: Topic, fields: Json, code: str, name: str) -> None:
    correlation_id = asked(topic)
    answer = topic.client.post(f"/requests/{correlation_id}/reply", **fields)
    assert answer.problem == (400, code)
    assert name in answer.json["detail"]
    assert fetch(topic.client, correlation_id).status == 202


def test_a_reply_that_is_too_large_is_refused(topic: Topic) -> None:
    correlation_id = asked(topic)
    assert reply(topic.client, correlation_id, "x" * (BODY_BYTES_MAX + 1)).problem == (413, "MessageTooLarge")
    assert fetch(topic.client, correlation_id).status == 202


def test_requests_that_this_service_did_not_make_are_unknown(topic: Topic, group: Group) -> None:
    correlation_id = asked(topic)
    receipt = group.take_one()["receipt"]
    forged = [correlation_id[:-3] + "AAA", "A" + correlation_id[1:], correlation_id[4:], correlation_id + "A"]
    for text in [*forged, "x", "%C3%A9", receipt, "A" * 300]:
        assert fetch(topic.client, text).problem == (404, "RequestNotFound")
        assert reply(topic.client, text).problem == (404, "RequestNotFound")
    assert fetch(topic.client, correlation_id, wait_ms=25_001).problem == (400, "InvalidField")
    assert fetch(topic.client, correlation_id).status == 202


@pytest.mark.parametrize("is_unknown", [False, True])
def test_a_send_that_fails_is_answered_at_once(topic: Topic, store: TroubledStore, is_unknown: bool) -> None:
    asked(topic)  # makes the signing key
    store.before = unknown("write") if is_unknown else unavailable("write")
    began_ms = topic.client.clock.ms
    answer = ask(topic)
    assert answer.problem == (503, "StoreUnavailable")
    assert ("outcome" in answer.json) == ("correlation_id" in answer.json) == is_unknown
    assert topic.client.clock.ms == began_ms


def test_a_request_that_could_not_be_signed_has_no_id(topic: Topic, store: TroubledStore) -> None:
    store.before = unknown("write")  # the first makes the key
    assert "correlation_id" not in ask(topic).json
