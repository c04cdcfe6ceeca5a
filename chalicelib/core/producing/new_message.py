"""The message that a producer sends: its fields, the checks that bounds alone cannot say, and the W3C Trace Context of
its request, which consumers get as a property."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, NamedTuple

import orjson

from chalicelib.core.base import limits
from chalicelib.core.base.errors import DecantError, InvalidField, MessageTooLarge
from chalicelib.core.base.fields import (
    Label,
    check,
    declarations,
    either,
    encodable,
    given,
    instant,
    integer,
    mapping,
    optional,
    request,
    shown,
    string,
)
from chalicelib.core.base.limits import BODY_BYTES_MAX, DELAY_MS_MAX, KEY_BYTES_MAX, PROPERTIES_BYTES_MAX
from chalicelib.core.base.message import QUEUE, Message, Produced, carried_bytes, properties_bytes
from chalicelib.core.base.records import mutable
from chalicelib.core.catalogue.topic import ZONE, Topic
from chalicelib.core.telemetry.record import NO_TRACE, Trace, trace_properties

BASE64_PATTERN = r"^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/][AQgw]==|[A-Za-z0-9+/]{2}[AEIMQUYcgkosw048]=)?$"
"""The last character before the padding leaves over no bits that are set."""
BASE64_CHARS_MAX = -(-BODY_BYTES_MAX // 3) * 4

BODY = string(BODY_BYTES_MAX, examples=["order 4711 paid"])
BODY_BASE64 = string(BASE64_CHARS_MAX, pattern=BASE64_PATTERN, contentEncoding="base64")
KEY = string(KEY_BYTES_MAX, examples=["customer-42"])
TAG = string(limits.TAG_CHARS_MAX, pattern=r"^[^|\s]([^|]*[^|\s])?$", examples=["paid"])
PROPERTIES = mapping(additionalProperties={"type": "string"}, examples=[{"region": "eu"}])

BODY_OR_BYTES = either("body", "body_base64")

_TEXT = {"type": "string", "minLength": 1}
_ANY_TEXT = {"type": "string"}


def _text(value: object, label: Label) -> str:
    return str(check(_TEXT, value, label))


def _bytes(value: object, label: Label) -> bytes:
    """Bytes in base64, accepted only as this service would encode them: what goes in comes out. Python checks the
    alphabet, but accepts stray bits and padding at the end."""
    text = check(_ANY_TEXT, value, label)
    try:
        data = base64.b64decode(text, validate=True)
    except ValueError:
        data = b""
    triples = len(data) // 3
    if base64.b64encode(data[triples * 3 :]).decode() != text[triples * 4 :]:
        raise label.wrong("base64 of RFC 4648, section 4: padded, and with no stray bits", value)
    if not data:
        raise label.wrong(f"1 to {BODY_BYTES_MAX} bytes", value)
    return data


def parse_key(value: object, label: Label) -> str:
    key: str = check(_TEXT, value, label)
    if len(key.encode()) > KEY_BYTES_MAX:
        raise label.wrong(f"at most {KEY_BYTES_MAX} bytes of UTF-8, not {len(key.encode())}", key)
    return key


def parse_tag(value: object, label: Label) -> str:
    tag: str = check(TAG, value, label)
    if "|" in tag or tag != tag.strip():
        raise label.wrong("a string without '|' and without white space around it", tag)
    return tag


def _properties(value: object, label: Label) -> dict[str, str]:
    if not isinstance(value, dict):
        raise label.wrong("an object of strings", value)
    for name, text in value.items():
        if not isinstance(text, str) or not encodable(name) or not encodable(text):
            raise label.inside(name).wrong("a string of text", text)
    size = properties_bytes(value)
    if size > PROPERTIES_BYTES_MAX:
        raise InvalidField(f"{label} holds {size} bytes; at most {PROPERTIES_BYTES_MAX} fit")
    return value


def parse_queue(queue: int, queues: int, label: Label) -> int:
    """A queue of a topic that has so many."""
    return int(check({"type": "integer", "minimum": 0, "maximum": queues - 1}, queue, label))


def unchecked(value: Any, _label: Label) -> Any:
    """For a field that is checked later, when more is known."""
    return value


@mutable
class Sending:
    """A message on its way into a queue, and its result once there is one. `asked`, `zone`: the queue and the zone that
    the request named."""

    message: Message
    asked: int | None = None
    zone: str | None = None
    queue: int = 0
    result: Produced | None = None

    @property
    def is_deduplicated(self) -> bool:
        return self.message.dedup_id is not None

    @property
    def may_hop(self) -> bool:
        """Whether any queue will do."""
        return self.asked is None and self.message.key is None


@request
class Content:
    """body: The payload as text, 1 to {BODY_BYTES_MAX} bytes of UTF-8. As JSON, with quotes and backslashes counted
    twice, a message has at most {MESSAGE_JSON_BYTES_MAX} bytes, the most that a response can carry.
    body_base64: The payload as bytes, 1 to {BODY_BYTES_MAX} of them, in base64 (RFC 4648, section 4: standard alphabet,
        padded, no stray bits).
    properties: The sender's own names and values, together at most {PROPERTIES_BYTES_MAX} bytes of UTF-8."""

    RULES: ClassVar[Any] = BODY_OR_BYTES

    body: str | None = optional(BODY, _text)
    body_base64: bytes | None = optional(BODY_BASE64, _bytes)
    properties: dict[str, str] | None = optional(PROPERTIES, _properties)


@request
class PlainMessage(Content):
    """A message. Exactly one of `body` and `body_base64` is given.

    key: Messages with the same key go to the same queue, in order. At most {KEY_BYTES_MAX} bytes of UTF-8.
    tag: The kind of message, for filters. No `|`, and no white space around it.
    queue: Put the message into exactly this queue, counted from 0; wins over `key`.
    zone: Put the message into a queue of this zone, or into any other if none of them accepts it. `queue` and `key` win
        over `zone`."""

    key: str | None = optional(KEY, parse_key)
    tag: str | None = optional(TAG, parse_tag)
    queue: int | None = optional(QUEUE, unchecked)
    zone: str | None = optional(ZONE)


@request
class HalfMessage(PlainMessage):
    """A message of a transaction. Exactly one of `body` and `body_base64` is given.

    ttl_ms: How long the message is delivered, in milliseconds after it is stored; for a delayed message, after its
        delay. After that, no group receives it, not even as a retry."""

    ttl_ms: int | None = optional(integer(1, limits.TTL_MS_MAX, examples=[60000]))


@request
class NewMessage(HalfMessage):
    """A message to store. Exactly one of `body` and `body_base64` is given.

    delay_ms: How long to delay the delivery, in milliseconds from now.
    deliver_at_ms: The earliest delivery. A time in the past means now; at most {DELAY_MS_MAX} ms ahead. Excludes
        `delay_ms`.
    dedup_id: Only the first message with this id in the topic is stored within {DEDUP_MS} ms; the others return its
        result, also within one request. This makes it safe to repeat a produce whose outcome is unknown."""

    RULES: ClassVar[Any] = {
        **PlainMessage.RULES,
        "not": {
            "required": ["delay_ms", "deliver_at_ms"],
            "properties": {"delay_ms": {"type": "integer"}, "deliver_at_ms": {"type": "integer"}},
        },
    }

    delay_ms: int | None = optional(integer(0, DELAY_MS_MAX))
    deliver_at_ms: int | None = optional(instant())
    dedup_id: str | None = optional(string(limits.ID_CHARS_MAX))


class Batch(NamedTuple):
    """The schema of a request's `messages`: messages of this kind, so many at most."""

    kind: type = NewMessage
    messages_max: int = limits.BATCH_MESSAGES_MAX


PRODUCED = Batch()
HALVES = Batch(HalfMessage, limits.HALF_MESSAGES_MAX)
"""The messages of a transaction. They have no delay and no dedup id: the commit says when, and is repeated safely."""


def parse_batch(
    data: object, topic: Topic, now: int, trace: Trace = NO_TRACE, batch: Batch = PRODUCED
) -> list[Sending]:
    """The `messages` of a request to a topic, with its trace; or an error that lists every bad one."""
    most = batch.messages_max
    if not isinstance(data, list) or not 1 <= len(data) <= most:
        count = f"{len(data)} of them" if isinstance(data, list) else shown(data)
        raise InvalidField(f"field 'messages' must be a list of 1 to {most} messages; it is {count}")
    sendings: list[Sending] = []
    errors: list[tuple[int, DecantError]] = []
    for index, message in enumerate(data):
        try:
            sendings.append(parse(message, topic, f"messages[{index}]", now, batch.kind))
        except DecantError as error:
            errors.append((index, error))
    if errors:
        raise _first(errors)
    total = sum(sending.message.body_bytes for sending in sendings) if len(sendings) > 1 else 0
    if total > BODY_BYTES_MAX:
        raise MessageTooLarge(f"the bodies of field 'messages' are {total} bytes in all; at most {BODY_BYTES_MAX} fit")
    for sending in sendings if any(trace.values()) else ():
        sending.message = traced(sending.message, trace)
    return sendings


def traced(message: Message, trace: Trace) -> Message:
    """The message with the trace of its request as properties, as far as its producer has set none and they fit."""
    properties = message.properties
    for part in trace_properties(trace, properties):
        wider = {**part, **properties}
        properties = properties if properties_bytes(wider) > PROPERTIES_BYTES_MAX else wider
    return replace(message, properties=properties)


def _first(errors: list[tuple[int, DecantError]]) -> DecantError:
    """The first error, listing them all. A size counts only when nothing else is wrong."""
    listed = [{"index": index, "code": error.code, "detail": error.detail} for index, error in errors]
    first = next((error for _, error in errors if not isinstance(error, MessageTooLarge)), errors[0][1])
    return type(first)(first.detail, errors=listed)


def parse(data: object, topic: Topic, path: str, now: int, kind: type = NewMessage) -> Sending:
    """One message of this kind. `path`: where in the request it stands."""
    label = Label(path)
    fields = given(NewMessage, data, label)
    declared = declarations(kind)
    if refused := [name for name in fields if name not in declared]:
        raise InvalidField(f"{label.inside(refused[0])} cannot be given here; it is {shown(fields[refused[0]])}")
    place = place_of(fields, topic, label)
    return Sending(message_of(fields, path, label, _due(fields, label, now)), *place)


def place_of(fields: Mapping[str, Any], topic: Topic, label: Label = Label()) -> tuple[int | None, str | None]:
    """The queue and the zone that a message asks for."""
    queue = parse_queue(fields["queue"], topic.queues, label.inside("queue")) if "queue" in fields else None
    if "zone" in fields:
        topic.known_zones.demand(fields["zone"], label.inside("zone"))
    return queue, fields.get("zone")


def message_of(fields: Mapping[str, Any], noun: str, label: Label = Label(), due_ms: int | None = None) -> Message:
    """The message with these fields, each checked. `noun`: what error texts call it. Raises what is wrong with it as a
    whole."""
    if ("body" in fields) == ("body_base64" in fields):
        raise InvalidField(f"exactly one of {label.inside('body')} and {label.inside('body_base64')} must be given")
    message = Message(
        fields.get("body"),
        fields.get("body_base64"),
        fields.get("key"),
        fields.get("tag"),
        fields.get("properties") or {},
        due_ms,
        dedup_id=fields.get("dedup_id"),
        ttl_ms=fields.get("ttl_ms"),
    )
    _demand_deliverable(message, noun)
    return message


def parse_for_transaction(data: object, topic: Topic, now: int) -> Sending:
    """One message for the caller's own transaction."""
    sending = parse(data, topic, "message", now)
    if sending.is_deduplicated:
        raise InvalidField("field 'message.dedup_id' cannot be given for a message in a transaction")
    return sending


def _due(fields: Mapping[str, Any], label: Label, now: int) -> int | None:
    """When it may be delivered; None when that is now, or was."""
    delay_ms, deliver_at_ms = fields.get("delay_ms"), fields.get("deliver_at_ms")
    if delay_ms is not None and deliver_at_ms is not None:
        raise InvalidField(f"only one of {label.inside('delay_ms')} and {label.inside('deliver_at_ms')} may be given")
    if deliver_at_ms is not None and deliver_at_ms > now + DELAY_MS_MAX:
        raise label.inside("deliver_at_ms").wrong(f"at most {DELAY_MS_MAX} ms ahead", deliver_at_ms)
    due_ms = deliver_at_ms if delay_ms is None else now + delay_ms
    return due_ms if due_ms is not None and due_ms > now else None


def _demand_deliverable(message: Message, noun: str) -> None:
    """Refuses a body that is too large, and a message that no response could carry: a body of control characters is
    seven times as long there."""
    body_bytes, most = message.body_bytes, limits.MESSAGE_JSON_BYTES_MAX
    if body_bytes > BODY_BYTES_MAX:
        raise MessageTooLarge(f"the body of {noun} is {body_bytes} bytes; at most {BODY_BYTES_MAX} fit")
    if body_bytes * 14 < most:
        return
    size = carried_bytes(orjson.dumps(message.content())) + limits.MESSAGE_OVERHEAD_BYTES
    if size > most:
        raise MessageTooLarge(f"{noun} is {size} bytes as JSON, its quotes escaped; a response carries at most {most}")
