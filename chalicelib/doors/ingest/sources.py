"""The sources of events: how their records look, and which message each one is.

A record is taken as Lambda gives it. Its place and id must be there, or the whole event is refused, since nothing could
be reported about such a record. Whatever else is wrong with a record concerns that record alone."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any, NamedTuple
from urllib.parse import unquote_plus

from chalicelib.core.base.errors import DecantError
from chalicelib.core.base.fields import Label, check, encodable, shown, string
from chalicelib.core.base.limits import TAG_CHARS_MAX
from chalicelib.core.base.records import mutable

Json = dict[str, Any]


class UnknownEvent(Exception):
    """The event is none of a source that is known here. Nothing of it was stored."""


class Source(NamedTuple):
    """`name`: as rules call it. `origin`: where a record comes from. `id`: what tells it from others of its origin.
    `lane`: records of one lane are stored in their order; None: in any. `message`: the fields of its message.
    `reports`: which records the answer lists: "each" that is not stored, or the "first", from where on Lambda gives all
    of them again. None: Lambda listens to no answer, and repeats the whole event if the function raises."""

    name: str
    origin: Callable[[Json], str]
    id: Callable[[Json], str]
    message: Callable[[Json], Json]
    lane: Callable[[Json], str | None] = lambda _record: None
    reports: str | None = None


class Trouble(NamedTuple):
    """Why a record is not stored: a code of produce, and a sentence."""

    code: str
    detail: str


@mutable
class Arrival:
    """A record on its way into a topic. `place`: its index in the event. `trouble`: set once it is not
    stored, nor rejected."""

    place: int
    source: Source
    record: Json
    origin: str
    id: str
    lane: str | None
    trouble: Trouble | None = None

    @property
    def dedup_id(self) -> str:
        """An id that a repeat of the record has too: in a stream of several shards, the id of the event."""
        return f"{self.origin} {self.record.get('eventID') or self.id}"


def arrivals(event: object) -> list[Arrival]:
    """The records of an event, all of one source. Raises UnknownEvent."""
    records = event.get("Records") if isinstance(event, dict) else None
    if not isinstance(records, list):
        records = [event]
    sources = {_source(record) for record in records}
    if None in sources or len(sources) > 1:
        known = ", ".join(source.name for source in SOURCES.values())
        raise UnknownEvent(f"the event must be of one of the sources {known}; it is {_shape(event)}")
    try:
        return [_arrival(place, source, record) for source in sources if source for place, record in enumerate(records)]
    except DecantError as error:
        raise UnknownEvent(f"the event cannot be stored: {error.detail}") from None


def _source(record: object) -> Source | None:
    if not isinstance(record, dict):
        return None
    name = record.get("eventSource", record.get("EventSource"))
    if name is None and "detail-type" in record:
        name = "aws:events"
    return SOURCES.get(name) if isinstance(name, str) else None


def _arrival(place: int, source: Source, record: Json) -> Arrival:
    return Arrival(place, source, record, source.origin(record), source.id(record), source.lane(record))


def _shape(event: object) -> str:
    """The shape of an event, without its content."""
    records = event.get("Records") if isinstance(event, dict) else None
    if isinstance(records, list) and records:
        return f"a list of records, the first {_shape(records[0])}"
    return f"an object of the fields {shown(list(event))}" if isinstance(event, dict) else f"a {type(event).__name__}"


# -- reading records --------------------------------------------------------------------------------------------------

_TEXT = string(minLength=1)


def _at(record: Json, path: str) -> Any:
    value: Any = record
    for name in path.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _text(path: str) -> Callable[[Json], str]:
    """Reads a text that must be there. Raises InvalidField."""

    def read(record: Json) -> str:
        text: str = check(_TEXT, _at(record, path), Label(path))
        return text

    return read


def _object(record: Json, path: str) -> Json:
    """An object that may be missing. Raises InvalidField."""
    value = _at(record, path)
    if value is not None and not isinstance(value, dict):
        raise Label(path).wrong("an object", value)
    return value or {}


def as_json(value: object) -> str:
    """As JSON: with half surrogate pairs escaped, which text cannot hold."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text if encodable(text) else json.dumps(value, separators=(",", ":"))


def _as_tag(text: object) -> str | None:
    """As the tag, if it can be one."""
    is_tag = isinstance(text, str) and 0 < len(text) <= TAG_CHARS_MAX and "|" not in text and text == text.strip()
    return text if is_tag and isinstance(text, str) else None


# -- SQS --------------------------------------------------------------------------------------------------------------


def _of_sqs(record: Json) -> Json:
    attributes = _object(record, "messageAttributes")
    values = {name: _either(value, "stringValue", "binaryValue") for name, value in attributes.items()}
    return {"body": _text("body")(record), "key": _fifo_group(record), "properties": _strings(values)}


def _fifo_group(record: Json) -> str | None:
    """In a standard queue a group is there for fairness alone, and has no order."""
    is_fifo = str(_at(record, "eventSourceARN")).endswith(".fifo")
    return _text("attributes.MessageGroupId")(record) if is_fifo else None


def _either(value: object, *names: str) -> object:
    return next((value[name] for name in names if isinstance(value, dict) and value.get(name) is not None), None)


def _strings(values: Json) -> dict[str, str]:
    return {name: value for name, value in values.items() if isinstance(value, str)}


# -- SNS --------------------------------------------------------------------------------------------------------------


def _of_sns(record: Json) -> Json:
    attributes = _object(record, "Sns.MessageAttributes")
    values = {"subject": _at(record, "Sns.Subject")}
    values |= {name: _either(value, "Value") for name, value in attributes.items()}
    return {"body": _text("Sns.Message")(record), "properties": _strings(values)}


# -- EventBridge and S3 -----------------------------------------------------------------------------------------------


def _of_events(record: Json) -> Json:
    return {"body": as_json(record), "tag": _as_tag(_at(record, "detail-type"))}


def _of_s3(record: Json) -> Json:
    return {"body": as_json(record), "key": unquote_plus(_object_key(record)), "tag": _as_tag(record.get("eventName"))}


_object_key = _text("s3.object.key")


def _s3_id(record: Json) -> str:
    """S3 gives its events no id. The sequencer orders the changes of one object."""
    names = ("s3.object.versionId", "s3.object.sequencer", "eventName", "eventTime")
    return " ".join([_object_key(record), *(str(_at(record, name)) for name in names)])


# -- streams ----------------------------------------------------------------------------------------------------------


def _of_kinesis(record: Json) -> Json:
    """Data that is UTF-8 is text. An empty record is no message: a body has at least one byte."""
    data = _text("kinesis.data")(record)
    key = _text("kinesis.partitionKey")(record)
    try:
        return {"body": base64.b64decode(data, validate=True).decode(), "key": key}
    except ValueError:  # produce says what is wrong, where it is no base64 either
        return {"body_base64": data, "key": key}


def _of_dynamodb(record: Json) -> Json:
    keys = json.dumps(_object(record, "dynamodb.Keys"), sort_keys=True, separators=(",", ":"))
    return {"body": as_json(record), "key": keys, "tag": _as_tag(record.get("eventName"))}


_ARN = _text("eventSourceARN")
"""The ARN of the queue or the stream."""

SOURCES = {
    "aws:sqs": Source("sqs", _ARN, _text("messageId"), _of_sqs, lane=_fifo_group, reports="each"),
    "aws:sns": Source("sns", _text("Sns.TopicArn"), _text("Sns.MessageId"), _of_sns),
    "aws:events": Source("events", _text("source"), _text("id"), _of_events),
    "aws:s3": Source("s3", _text("s3.bucket.arn"), _s3_id, _of_s3),
    "aws:kinesis": Source("kinesis", _ARN, _text("kinesis.sequenceNumber"), _of_kinesis, _ARN, "first"),
    "aws:dynamodb": Source("dynamodb", _ARN, _text("dynamodb.SequenceNumber"), _of_dynamodb, _ARN, "first"),
}
"""By the name that Lambda gives them in each record, and EventBridge, which gives none."""
