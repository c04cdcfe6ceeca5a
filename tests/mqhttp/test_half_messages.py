"""Half messages: published, and seen by nobody until they are committed."""

from __future__ import annotations

from typing import Any

import pytest

from tests.mqhttp.client import Mq, Refused, md5, message, properties_of, receipt_handles
from tests.support.client import Client, Group, Topic
from tests.support.clock import Clock


def half(mq: Mq, body: str = "half", seconds: int = 10, **properties: Any) -> str:
    return mq.publish(body, "t", __TransCheckT=seconds, **properties)["ReceiptHandle"]


def test_a_half_message_is_seen_once_it_is_committed(mq: Mq) -> None:
    handle = half(mq, KEYS="k")
    assert mq.consume() == []
    assert mq.delete(handle, trans="commit") == []
    [taken] = mq.consume()
    assert (taken["MessageBody"], taken["MessageTag"]) == ("half", "t")
    assert properties_of(taken) == {"__TransCheckT": "10", "KEYS": "k"}
    assert mq.delete(handle, trans="commit") == [], "a repeat succeeds"
    assert mq.consume() == []


def test_a_half_message_that_is_rolled_back_is_never_seen(mq: Mq, clock: Clock) -> None:
    handle = half(mq)
    assert mq.delete(handle, trans="rollback") == []
    assert mq.delete(handle, trans="rollback") == []
    clock.ms += 60_000
    assert mq.consume() == []
    assert mq.consume(trans="pop") == []


@pytest.mark.parametrize(("first", "then"), [("commit", "rollback"), ("rollback", "commit")])
def test_the_first_decision_stands(mq: Mq, first: str, then: str) -> None:
    handle = half(mq)
    assert mq.delete(handle, trans=first) == []
    [failed] = mq.delete(handle, trans=then)
    assert (failed["ErrorCode"], failed["ReceiptHandle"]) == ("MessageNotExist", handle)
    assert len(mq.consume()) == (first == "commit")


@pytest.mark.parametrize("trans", ["commit", "rollback"])
def test_a_handle_that_nobody_gave_is_unknown(mq: Mq, trans: str) -> None:
    [failed] = mq.delete("0d2f6b91c47e5a38b19b76e8eb00", trans=trans)
    assert failed["ErrorCode"] == "MessageNotExist"
    refused = mq.refused("DELETE", receipt_handles("a", "b"), {"consumer": "billing", "trans": trans})
    assert (refused.status, refused.code) == (400, "InvalidArgument")


def test_what_nobody_decided_is_checked(mq: Mq, clock: Clock) -> None:
    published_ms = clock.now()
    handle = half(mq, seconds=10)
    assert mq.consume(trans="pop", waitseconds=9) == []
    [taken] = mq.consume(trans="pop", waitseconds=5)
    assert taken == {
        "MessageId": handle,
        "MessageBodyMD5": md5("half"),
        "ReceiptHandle": handle,
        "MessageBody": "half",
        "PublishTime": str(published_ms),
        "NextConsumeTime": str(clock.now() + 10_000),
        "FirstConsumeTime": str(clock.now()),
        "ConsumedTimes": "1",
        "MessageTag": "t",
        "Properties": "__TransCheckT:10|",
    }
    assert mq.consume(trans="pop") == []
    [again] = mq.consume(trans="pop", waitseconds=15)
    assert again["ConsumedTimes"] == "2"
    assert mq.delete(taken["ReceiptHandle"], trans="commit") == []
    assert len(mq.consume()) == 1


def test_a_transaction_is_known_to_both_doors(mq: Mq, client: Client, topic: Topic, clock: Clock) -> None:
    handle = half(mq)
    assert client.post(f"{topic.path}/transactions/{handle}/commit").status == 200
    assert len(mq.consume()) == 1
    halves = [{"body": "x"}, {"body": "y"}]
    begun = client.post(f"{topic.path}/transactions", messages=halves, check_after_ms=1_000).json["transaction_id"]
    clock.ms += 1_000
    taken = mq.consume(trans="pop")
    assert [(each["MessageBody"], each["ReceiptHandle"]) for each in taken] == [("x", begun), ("y", begun)]
    assert mq.delete(begun, trans="commit") == []
    assert sorted(each["MessageBody"] for each in mq.consume()) == ["x", "y"]


@pytest.mark.parametrize("seconds", ["9", "301", "-10", "1e2", ""])
def test_the_time_until_the_check_has_bounds(mq: Mq, seconds: str) -> None:
    refused = mq.refused("POST", message("a", __TransCheckT=seconds))
    assert (refused.status, refused.code) == (400, "InvalidArgument")
    assert "property '__TransCheckT' must be" in refused.message


@pytest.mark.parametrize("seconds", [10, 300])
def test_the_bounds_themselves_are_allowed(mq: Mq, group: Group, seconds: int) -> None:
    half(mq, seconds=seconds)
    assert group.pop()["messages"] == []


def test_a_half_message_has_no_time_of_its_own(mq: Mq) -> None:
    text = "property '__STARTDELIVERTIME' cannot be given for a half message: its commit says when"
    raw = message("a", __TransCheckT=10, __STARTDELIVERTIME=1)
    assert mq.refused("POST", raw) == Refused(400, "InvalidArgument", text)
