"""Messages up to each limit are accepted and come back as they were sent; messages beyond it are refused."""

from __future__ import annotations

import base64
import re
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chalicelib.core.base.errors import DecantError, InvalidField, InvalidJson, MessageTooLarge, UnknownField
from chalicelib.core.base.limits import (
    BATCH_MESSAGES_MAX,
    BODY_BYTES_MAX,
    KEY_BYTES_MAX,
    MESSAGE_JSON_BYTES_MAX,
    MESSAGE_OVERHEAD_BYTES,
    OFFSET_MAX,
    PROPERTIES_BYTES_MAX,
    QUEUES_MAX,
    TAG_CHARS_MAX,
)
from chalicelib.core.base.message import carried_bytes, message_id, parse_message_id
from chalicelib.core.catalogue.topic import Topic
from chalicelib.core.producing.new_message import parse, parse_batch
from chalicelib.core.store.paging import positions_of, positions_token

QUEUES = 4
TOPIC = Topic("orders", "t", 0, queues=QUEUES)
NOW = 1_700_000_000_000
_EMPTY: dict[str, Any] = {"body": "", "key": None, "tag": None, "properties": {}}
TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
ENTRY_IDS = st.binary(min_size=8, max_size=8)


def message(**fields: Any) -> dict[str, Any]:
    return {"body": "b", **fields}


def encoded(size: int) -> str:
    return base64.b64encode(bytes(size)).decode()


_ROOM = MESSAGE_JSON_BYTES_MAX - MESSAGE_OVERHEAD_BYTES - carried_bytes(orjson.dumps(_EMPTY))
LONGEST_AS_JSON = "\x01" * (_ROOM // 7) + "x" * (_ROOM % 7)
"""In a response, a control character takes seven bytes."""

FITTING = [
    pytest.param(message(body="x"), id="the shortest body"),
    pytest.param(message(body="x" * BODY_BYTES_MAX), id="the longest body"),
    pytest.param(message(body="é" * (BODY_BYTES_MAX // 2)), id="the longest body of two-byte characters"),
    pytest.param(message(body=None, body_base64=encoded(1)), id="the shortest data"),
    pytest.param(message(body=None, body_base64=encoded(BODY_BYTES_MAX)), id="the longest data"),
    pytest.param(message(body=LONGEST_AS_JSON), id="the longest body that a response could carry"),
    pytest.param(message(key="k"), id="the shortest key"),
    pytest.param(message(key="k" * KEY_BYTES_MAX), id="the longest key"),
    pytest.param(message(key="é" * (KEY_BYTES_MAX // 2)), id="the longest key of two-byte characters"),
    pytest.param(message(tag="t" * TAG_CHARS_MAX), id="the longest tag"),
    pytest.param(message(tag="é" * TAG_CHARS_MAX), id="the longest tag of two-byte characters"),
    pytest.param(message(tag="a b&c"), id="a tag with white space inside"),
    pytest.param(message(properties={}), id="no properties"),
    pytest.param(message(properties={"": ""}), id="an empty property"),
    pytest.param(message(properties={"n" * 16: "v" * (PROPERTIES_BYTES_MAX - 16)}), id="the longest property"),
    pytest.param(message(queue=0), id="the first queue"),
    pytest.param(message(queue=QUEUES - 1), id="the last queue"),
    pytest.param(message(key=None, tag=None, properties=None, queue=None), id="null is not given"),
    pytest.param(
        message(
            body=None,
            body_base64=encoded(BODY_BYTES_MAX),
            key="k" * KEY_BYTES_MAX,
            tag="é" * TAG_CHARS_MAX,
            properties={"n": "\x01" * (PROPERTIES_BYTES_MAX - 1)},
        ),
        id="everything at its longest",
    ),
]

WRONG = [
    pytest.param({}, InvalidField, id="no body"),
    pytest.param(message(body=None), InvalidField, id="a body of null"),
    pytest.param(message(body=""), InvalidField, id="an empty body"),
    pytest.param(message(body=None, body_base64=""), InvalidField, id="empty data"),
    pytest.param(message(body_base64=encoded(1)), InvalidField, id="both bodies"),
    pytest.param(message(body="x" * (BODY_BYTES_MAX + 1)), MessageTooLarge, id="a body one byte too long"),
    pytest.param(
        message(body="é" * (BODY_BYTES_MAX // 2) + "x"), MessageTooLarge, id="a body one byte too long in UTF-8"
    ),
    pytest.param(
        message(body=None, body_base64=encoded(BODY_BYTES_MAX + 1)), MessageTooLarge, id="data one byte too long"
    ),
    pytest.param(message(body=None, body_base64="AA"), InvalidField, id="base64 without padding"),
    pytest.param(message(body=None, body_base64="-_=="), InvalidField, id="base64 of another alphabet"),
    pytest.param(message(body=None, body_base64="A A="), InvalidField, id="base64 with a space"),
    *[
        pytest.param(message(body=None, body_base64=text), InvalidField, id=f"base64 that is not canonical: {text!r}")
        for text in ("YR==", "YWJ=", "YQ", "YQ=", "YWJj=", "YWJj==", "YQ==YQ==", "=YQ=", "YW Jj", "YWJj\n", "YW\tJj")
    ],
    pytest.param(message(body=None, body_base64="_-8="), InvalidField, id="base64 of the alphabet for URLs"),
    pytest.param(message(body=1), InvalidField, id="a body that is no text"),
    pytest.param(message(body="\ud800"), InvalidField, id="half a surrogate pair"),
    pytest.param(message(body=LONGEST_AS_JSON + "x"), MessageTooLarge, id="a body that no response could carry"),
    pytest.param(message(key=""), InvalidField, id="an empty key"),
    pytest.param(message(key="k" * (KEY_BYTES_MAX + 1)), InvalidField, id="a key one byte too long"),
    pytest.param(message(key="é" * (KEY_BYTES_MAX // 2) + "k"), InvalidField, id="a key one byte too long in UTF-8"),
    pytest.param(message(key=7), InvalidField, id="a key that is no text"),
    pytest.param(message(tag=""), InvalidField, id="an empty tag"),
    pytest.param(message(tag="t" * (TAG_CHARS_MAX + 1)), InvalidField, id="a tag one character too long"),
    pytest.param(message(tag="a|b"), InvalidField, id="a tag with a bar"),
    pytest.param(message(tag=" a"), InvalidField, id="a tag after white space"),
    pytest.param(message(tag="a\u2003"), InvalidField, id="a tag before white space"),
    pytest.param(
        message(properties={"n" * 16: "v" * (PROPERTIES_BYTES_MAX - 15)}),
        InvalidField,
        id="properties one byte too long",
    ),
    pytest.param(message(properties={"a": 1}), InvalidField, id="a property that is no text"),
    pytest.param(message(properties={"a": None}), InvalidField, id="a property of null"),
    pytest.param(message(properties={"\udfff": "a"}), InvalidField, id="half a surrogate pair as a name"),
    pytest.param(message(properties=[]), InvalidField, id="properties that are no object"),
    pytest.param(message(queue=-1), InvalidField, id="a queue below the first"),
    pytest.param(message(queue=QUEUES), InvalidField, id="a queue beyond the last"),
    pytest.param(message(queue=1.0), InvalidField, id="a queue that is no integer"),
    pytest.param(message(queue=True), InvalidField, id="a queue that is true"),
    pytest.param(message(Tag="a"), UnknownField, id="a field that is not known"),
    pytest.param("b", InvalidField, id="a message that is no object"),
]


@pytest.mark.parametrize("given_message", FITTING)
def test_messages_within_the_limits_are_taken_as_they_are(given_message: dict[str, Any]) -> None:
    [sending] = parse_batch([given_message], TOPIC, NOW)
    expected = {name: value for name, value in given_message.items() if value is not None and name != "queue"}
    absent: dict[str, Any] = {"key": None, "tag": None, "properties": {}}
    assert sending.message.content() == {**absent, **expected}
    assert sending.asked == given_message.get("queue")


@pytest.mark.parametrize(("given_message", "error"), WRONG)
def test_messages_beyond_the_limits_are_refused(given_message: Any, error: type[DecantError]) -> None:
    with pytest.raises(error) as refused:
        parse_batch([message(), given_message], TOPIC, NOW)
    assert type(refused.value) is error
    assert refused.value.members["errors"] == [{"index": 1, "code": error.__name__, "detail": refused.value.detail}]
    assert len(refused.value.detail) < 500


def test_a_batch_holds_up_to_so_many_messages() -> None:
    assert len(parse_batch([message()] * BATCH_MESSAGES_MAX, TOPIC, NOW)) == BATCH_MESSAGES_MAX
    wrongs: list[tuple[object, str]] = [
        *(([], "0 of them"), ([message()] * (BATCH_MESSAGES_MAX + 1), f"{BATCH_MESSAGES_MAX + 1} of them")),
        *((None, "null"), ({}, "{}"), ("messages", '"messages"')),
    ]
    for wrong, shown in wrongs:
        with pytest.raises(InvalidField, match=f"it is {re.escape(shown)}$"):
            parse_batch(wrong, TOPIC, NOW)


def test_the_bodies_of_a_batch_fit_together() -> None:
    half = "x" * (BODY_BYTES_MAX // 2)
    assert len(parse_batch([message(body=half), message(body=half)], TOPIC, NOW)) == 2
    with pytest.raises(MessageTooLarge):
        parse_batch([message(body=half), message(body=half), message(body="x")], TOPIC, NOW)


def test_all_that_is_wrong_in_a_batch_is_listed_and_a_size_comes_last() -> None:
    batch = [message(body="x" * (BODY_BYTES_MAX + 1)), message(), message(tag="|"), message(Key="k")]
    with pytest.raises(InvalidField) as refused:
        parse_batch(batch, TOPIC, NOW)
    errors = refused.value.members["errors"]
    assert [(each["index"], each["code"]) for each in errors] == [
        (0, "MessageTooLarge"),
        (2, "InvalidField"),
        (3, "UnknownField"),
    ]
    assert refused.value.detail == errors[1]["detail"]


def test_a_message_that_is_not_an_object_is_refused() -> None:
    with pytest.raises(InvalidJson):
        parse([], TOPIC, "", NOW)


@given(TEXTS.filter(bool), st.none() | TEXTS.filter(bool).filter(lambda key: len(key.encode()) <= KEY_BYTES_MAX))
def test_any_text_comes_back_as_it_was(body: str, key: str | None) -> None:
    sending = parse({"body": body, "key": key}, TOPIC, "", NOW)
    assert sending.message.content() == {"body": body, "key": key, "tag": None, "properties": {}}


@given(st.binary(min_size=1) | st.text("AQYRabz09+/=-_ ", min_size=1, max_size=12).map(str.encode))
def test_base64_is_taken_only_as_it_would_be_written(text: bytes) -> None:
    given_text = text.decode("latin-1")
    try:
        sending = parse({"body_base64": given_text}, TOPIC, "", NOW)
    except InvalidField as error:
        assert "'body_base64'" in error.detail
        return
    assert base64.b64encode(sending.message.body).decode() == given_text


@given(st.binary(min_size=1))
def test_any_bytes_come_back_as_they_were(body: bytes) -> None:
    text = base64.b64encode(body).decode()
    sending = parse({"body_base64": text}, TOPIC, "", NOW)
    assert sending.message.body == body
    assert sending.message.content()["body_base64"] == text


# -- ids and tokens ---------------------------------------------------------------------------------------------------


@given(ENTRY_IDS, st.integers(0, QUEUES_MAX - 1), st.integers(0, OFFSET_MAX))
def test_a_message_id_says_where_the_message_is(entry_id: bytes, queue: int, offset: int) -> None:
    assert parse_message_id(message_id(entry_id, queue, offset)) == (entry_id, queue, offset)


@given(st.text() | st.text("0123456789abcdef", min_size=15, max_size=40) | st.from_regex(r"[0-9a-f]{16}.{1,8}"))
def test_any_other_text_is_not_a_message_id_or_means_the_same(text: str) -> None:
    parsed = parse_message_id(text)
    assert parsed is None or message_id(*parsed) == text


@pytest.mark.parametrize("place", ["00-1", "-11", f"00{OFFSET_MAX + 1:x}", "00" + "f" * 300])
def test_an_id_without_a_place_is_not_a_message_id(place: str) -> None:
    assert parse_message_id("00" * 8 + place) is None


POSITIONS = st.dictionaries(st.integers(0, QUEUES - 1), st.integers(0, OFFSET_MAX), min_size=1)


@given(POSITIONS)
def test_a_token_says_where_a_page_ended(positions: dict[int, int]) -> None:
    assert positions_of(positions_token(positions), QUEUES) == positions


@given(st.text() | st.text("0123456789:,-+ _").map(lambda text: base64.urlsafe_b64encode(text.encode()).decode()))
def test_any_other_token_is_refused_or_says_the_same(text: str) -> None:
    try:
        positions = positions_of(text, QUEUES)
    except InvalidField:
        return
    assert positions_token(positions) == text
    assert all(0 <= queue < QUEUES and 0 <= offset <= OFFSET_MAX for queue, offset in positions.items())
