"""Messages that go in come out as they were, over the real service."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from decant import InvalidField, InvalidName, Outgoing, PartlySent, QueueFull, SettingError, Topic, TopicNotFound
from decant.flows import BATCH_BYTES_MAX
from decant.payloads import encoded_in
from tests.client.support.faces import Face
from tests.client.support.servers import answer, problem, serving


def popped(mq: Any, name: str, count: int = 10) -> list[Any]:
    return list(mq.api.pop(name, "readers", max_messages=count, wait_ms=1_000)["messages"])


@pytest.mark.parametrize(
    "value",
    [
        "hello",
        'ünïcode \N{PILE OF POO} \x00 \u2028 \\ "',
        b"\x00\xff\xfe bytes",
        "a" * 1_000_000,
        bytes(range(256)) * 1_000,
    ],
    ids=["text", "any text", "bytes", "long text", "long bytes"],
)
def test_a_body_comes_out_as_it_went_in(mq: Any, name: str, value: Any) -> None:
    sent = mq.send(name, value)
    (message,) = popped(mq, name)
    assert encoded_in(message) == value
    assert (message["message_id"], message["queue"], message["offset"]) == (sent.id, sent.queue, sent.offset)


def test_the_options_of_a_message_arrive(mq: Any, name: str) -> None:
    mq.send(name, "hello", key="k", tag="t", properties={"region": "eu"}, ttl=timedelta(hours=1), queue=0)
    (message,) = popped(mq, name)
    assert (message["key"], message["tag"], message["properties"]) == ("k", "t", {"region": "eu"})


def test_a_delay_is_a_timedelta_seconds_or_an_instant(mq: Any, name: str) -> None:
    later = datetime.now(UTC) + timedelta(hours=1)
    for options in ({"delay": timedelta(hours=1)}, {"delay": 3_600}, {"deliver_at": later}):
        sent = mq.send(name, "later", **options)
        assert sent.offset is None
        assert abs(sent.deliver_at_ms - later.timestamp() * 1_000) < 60_000
    assert len(list(mq.each(mq.api.list_delayed, name, limit=1))) == 3


def test_a_dedup_id_stores_a_message_once(mq: Any, name: str) -> None:
    assert mq.send(name, "hello", dedup_id="1") == mq.send(name, "hello", dedup_id="1")


def test_a_topic_stands_for_its_name_everywhere(mq: Any, name: str) -> None:
    topic = Topic[str](name)
    mq.send(topic, "hello")
    assert mq.api.get_topic(topic)["topic"] == name
    assert mq.send_all(topic, []) == []


def test_many_messages_go_in_few_calls_and_keep_their_order(mq: Any, name: str) -> None:
    sent = mq.send_all(name, [Outgoing(str(number), key="k") for number in range(600)])
    assert [place.offset for place in sent] == list(range(600))


def test_messages_that_are_too_much_for_a_call_are_split(mq: Any, name: str) -> None:
    assert len(mq.send_all(name, ["x" * (BATCH_BYTES_MAX // 3)] * 4)) == 4


def test_the_pages_of_a_list_are_read_one_after_another(mq: Any, name: str) -> None:
    for group in "abcde":
        mq.api.put_group(name, group)
    assert [group["group"] for group in mq.each(mq.api.list_groups, name, limit=2)] == [*"abcde", "readers"]


# -- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"delay": -1}, "delay must be"),
        ({"delay": "1h"}, "delay must be .* '1h'"),
        ({"delay": True}, "delay must be"),
        ({"delay": float("nan")}, "delay must be"),
        ({"ttl": timedelta(days=366)}, "ttl must be"),
        ({"deliver_at": datetime(2030, 1, 1)}, "time zone"),  # noqa: DTZ001
        ({"deliver_at": 1_000}, "deliver_at must be"),
    ],
)
def test_an_option_that_makes_no_sense_is_named(mq: Any, name: str, options: dict[str, Any], text: str) -> None:
    with pytest.raises(SettingError, match=text):
        mq.send(name, "hello", **options)


def test_a_lone_surrogate_is_refused_by_the_field(mq: Any, name: str) -> None:
    with pytest.raises(InvalidField, match=r"messages\[0\].body.*surrogate"):
        mq.send(name, "half \ud83d")
    with pytest.raises(InvalidField, match=r"messages\[0\].key.*surrogate"):
        mq.send(name, "hello", key="\udc00")
    with pytest.raises(SettingError, match=r"get_topic.*surrogates not allowed"):
        mq.api.get_topic("half-\ud83d")


def test_an_empty_body_and_one_that_is_too_large_are_refused(mq: Any, name: str) -> None:
    with pytest.raises(InvalidField, match="body"):
        mq.send(name, "")
    with pytest.raises(Exception, match="MessageTooLarge"):
        mq.send(name, "x" * 4_200_000)
    with pytest.raises(Exception, match="MessageTooLarge"):
        mq.send(name, "x" * 20_000_000)


def test_a_name_that_needs_escapes_stays_one_name(mq: Any) -> None:
    for name in ("a/b", "a b", "../x", "ä", "%2F", "?", "#", "a\r\nb"):
        with pytest.raises(InvalidName):
            mq.send(name, "hello")


def test_a_topic_that_is_missing_is_an_error_of_its_own(mq: Any) -> None:
    with pytest.raises(TopicNotFound, match="nowhere") as raised:
        mq.send("nowhere", "hello")
    assert (raised.value.status, raised.value.code) == (404, "TopicNotFound")


def test_what_json_cannot_hold_is_named(mq: Any, name: str) -> None:
    with pytest.raises(SettingError, match="produce: Object of type object"):
        mq.api.produce(name, messages=[{"body": object()}])
    with pytest.raises(SettingError, match="no JSON"):
        mq.send(name, {"rate": float("inf")})


def test_a_header_that_would_split_the_request_is_refused(mq: Any, name: str) -> None:
    with pytest.raises(SettingError, match="header 'baggage'"):
        mq.api.produce(name, messages=[{"body": "a"}], baggage="a=b\r\nx: y")


def test_a_thousand_messages_take_four_calls(face: Face) -> None:
    with serving(*(answer(200, {"messages": stored(*range(count))}) for count in (256, 256, 256, 232))) as server:
        sent = face(server.url).send_all("orders", ["x"] * 1_000)
    assert len(sent) == 1_000
    assert [len(request.json["messages"]) for request in server.requests] == [256, 256, 256, 232]


# -- some stored, some not --------------------------------------------------------------------------------------------


def stored(*offsets: int) -> list[Any]:
    return [{"message_id": str(offset), "queue": 0, "offset": offset} for offset in offsets]


FULL = {"error": {"code": "QueueFull", "detail": "full"}}
LOST = {"error": {"code": "StoreUnavailable", "detail": "no answer", "outcome": "unknown"}}


def test_messages_that_are_not_stored_are_sent_again_in_their_order(face: Face) -> None:
    partly = answer(207, {"messages": [*stored(0), FULL, *stored(1), FULL]})
    with serving(partly, answer(200, {"messages": stored(2, 3)})) as server:
        sent = face(server.url).send_all("orders", ["a", "b", "c", "d"])
    assert [place.offset for place in sent] == [0, 2, 1, 3]
    assert server.requests[1].json == {"messages": [{"body": "b"}, {"body": "d"}]}


def test_messages_that_may_be_stored_are_sent_again_only_with_a_dedup_id(face: Face) -> None:
    partly = answer(207, {"messages": [*stored(0), LOST, LOST]})
    one_failed = pytest.raises(PartlySent, match="1 of 3 messages")
    with serving(partly, answer(200, {"messages": stored(1)})) as server, one_failed as raised:
        face(server.url).send_all("orders", ["a", Outgoing("b", dedup_id="b"), "c"])
    assert server.requests[1].json == {"messages": [{"body": "b", "dedup_id": "b"}]}
    assert [type(result).__name__ for result in raised.value.results] == ["Sent", "Sent", "OutcomeUnknown"]


def test_messages_that_stay_unsent_are_named_once_the_time_is_over(face: Face) -> None:
    partly = answer(207, {"messages": [*stored(0), FULL]})
    with serving(partly, problem(429, "QueueFull")) as server, pytest.raises(PartlySent) as raised:
        face(server.url, timeout=0.4).send_all("orders", ["a", "b"])
    assert isinstance(raised.value.results[1], QueueFull)


def test_after_a_failed_call_no_later_message_is_sent(face: Face) -> None:
    first = answer(200, {"messages": stored(*range(256))})
    most_failed = pytest.raises(PartlySent, match="344 of 600")
    with serving(first, problem(400, "InvalidField")) as server, most_failed as raised:
        face(server.url).send_all("orders", ["x"] * 600)
    assert len(server.requests) == 2
    assert "an earlier message" in str(raised.value.results[-1])


def test_a_malformed_message_is_refused_with_all_others(mq: Any, name: str) -> None:
    with pytest.raises(InvalidField, match=r"messages\[1\]"):
        mq.send_all(Topic[str](name), ["a", ""])
    assert popped_now(mq, name) == []


def popped_now(mq: Any, name: str) -> Any:
    return mq.api.pop(name, "readers")["messages"]
