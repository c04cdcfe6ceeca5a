"""Typed payloads: values of many types go to JSON and come back; what does not fit is named."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, Literal, NotRequired, TypedDict
from uuid import UUID

import pytest

from decant import Codec, Message, Outgoing, SettingError, Topic
from decant.payloads import topic_of


class Size(enum.Enum):
    SMALL = "s"
    LARGE = "l"


@dataclass(frozen=True)
class Line:
    article: str
    count: int = 1


@dataclass(frozen=True)
class Order:
    id: int
    lines: list[Line]
    at: datetime
    price: Decimal
    size: Size | None = None
    note: str | None = None
    tags: tuple[str, ...] = ()
    place: tuple[float, float] | None = None
    codes: set[str] | None = None
    by_day: dict[str, date] = field(default_factory=dict)
    token: UUID | None = None
    kind: Literal["web", "shop"] = "web"


class Event(TypedDict):
    name: str
    weight: NotRequired[float]


ORDER = Order(
    4711,
    [Line("shoe", 2), Line("hat")],
    datetime(2026, 11, 28, 13, 0, tzinfo=UTC),
    Decimal("9.90"),
    Size.LARGE,
    tags=("new",),
    place=(1.0, 2.5),
    codes={"b", "a"},
    by_day={"sent": date(2026, 11, 29)},
    token=UUID(int=7),
)


def there_and_back(topic: Topic[Any], value: Any) -> Any:
    fields = Outgoing(value).as_json(topic)
    return Message(fields, topic).value


@pytest.mark.parametrize(
    ("topic", "value"),
    [
        (Topic[str]("t"), "text"),
        (Topic[bytes]("t"), b"\xff"),
        (Topic[Order]("t"), ORDER),
        (Topic[list[Line]]("t"), [Line("shoe")]),
        (Topic[dict[str, int]]("t"), {"a": 1}),
        (Topic[Event]("t"), {"name": "n", "weight": 1.5}),
        (Topic[int | str]("t"), 7),
        (Topic[Any]("t"), [1, {"a": None}]),
        (Topic("t"), {"any": ["json"]}),
        (topic_of("t"), "text"),
        (topic_of("t"), b"bytes"),
    ],
)
def test_a_value_comes_back_as_it_was(topic: Topic[Any], value: Any) -> None:
    assert there_and_back(topic, value) == value


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("{", "Expecting property name"),
        ("[]", r"the payload must be an object \(Order\)"),
        ('{"id": 1}', "has no field 'lines'"),
        ('{"id": "1", "lines": [], "at": "2026-01-01", "price": "1"}', r"payload\.id must be of type int; it is '1'"),
        ('{"id": true, "lines": [], "at": "2026-01-01", "price": "1"}', r"payload\.id must be of type int"),
        ('{"id": 1, "lines": [{}], "at": "2026-01-01", "price": "1"}', r"payload\.lines\[0\] has no field 'article'"),
        (
            '{"id": 1, "lines": [], "at": "2026-01-01", "price": "1", "place": [1]}',
            r"payload\.place must be a list of 2",
        ),
        ('{"id": 1, "lines": [], "at": "soon", "price": "1"}', r"payload\.at must be a datetime; it is 'soon'"),
        ('{"id": 1, "lines": [], "at": "2026-01-01", "price": "x"}', r"payload\.price must be a Decimal"),
        ('{"id": 1, "lines": [], "at": "2026-01-01", "price": "1", "size": "xl"}', r"payload\.size must be a Size"),
        ('{"id": 1, "lines": [], "at": "2026-01-01", "price": "1", "kind": "fax"}', r"payload\.kind must be one of"),
    ],
)
def test_a_body_that_does_not_fit_names_the_field(body: str, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        _ = Message({"body": body}, Topic[Order]("t")).value


def test_a_field_that_the_type_does_not_know_is_skipped() -> None:
    assert Message({"body": '{"article": "hat", "colour": "red"}'}, Topic[Line]("t")).value == Line("hat")


def test_bytes_that_are_no_text_are_named() -> None:
    with pytest.raises(ValueError, match="utf-8"):
        _ = Message({"body_base64": "/w=="}, Topic[str]("t")).value


@pytest.mark.parametrize(("topic", "value"), [(Topic[str]("t"), b"x"), (Topic[bytes]("t"), "x")])
def test_a_value_of_another_type_is_not_sent(topic: Topic[Any], value: Any) -> None:
    with pytest.raises(SettingError, match="the payload must be"):
        Outgoing(value).as_json(topic)


def test_what_json_cannot_hold_is_not_sent() -> None:
    with pytest.raises(SettingError, match="no JSON"):
        Outgoing(object()).as_json(Topic("t"))


def test_a_type_without_a_codec_is_refused() -> None:
    with pytest.raises(SettingError, match="Codec"):
        _ = Topic[complex]("t").codec


def test_a_codec_of_your_own_is_used() -> None:
    topic: Topic[int] = Topic("t", codec=Codec(lambda value: value.to_bytes(4), lambda body: int.from_bytes(body)))  # type: ignore[arg-type]
    assert there_and_back(topic, 77) == 77


def test_a_class_that_validates_json_as_pydantic_does_is_used() -> None:
    class Model:
        def __init__(self, text: str) -> None:
            self.text = text

        def model_dump_json(self) -> str:
            return self.text

        @classmethod
        def model_validate_json(cls, body: str) -> Model:
            return cls(body)

    assert there_and_back(Topic[Model]("t"), Model('{"a": 1}')).text == '{"a": 1}'


def test_a_message_shows_its_fields() -> None:
    fields = {"message_id": "m", "topic": "t", "queue": 1, "offset": 2, "body": "é", "key": "k", "tag": None}
    message: Message[Any] = Message(
        {**fields, "properties": {}, "attempt": 3, "receipt": "r", "correlation_id": "c"}, topic_of("t")
    )
    assert (message.id, message.topic, message.queue, message.offset) == ("m", "t", 1, 2)
    assert (message.key, message.tag, message.attempt, message.receipt) == ("k", None, 3, "r")
    assert (message.text, message.data, message.correlation_id, message.lost) == ("é", "é".encode(), "c", False)
    assert repr(message) == "Message('m', topic='t', attempt=3)"


@pytest.mark.parametrize("name", ["", None, 7])
def test_a_topic_needs_a_name(name: Any) -> None:
    with pytest.raises(SettingError, match="name"):
        Topic(name)
