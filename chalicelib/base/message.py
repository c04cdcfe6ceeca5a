"""A message as its producer gave it, and as it stands in the log."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from chalicelib.base.errors import DecantError, InvalidField, MessageTooLarge
from chalicelib.base.fields import Fields, encodable, quoted, shown
from chalicelib.base.limits import (
    BATCH_MESSAGES_MAX,
    BODY_BYTES_MAX,
    DELAY_MS_MAX,
    ID_CHARS_MAX,
    INSTANT_MS_MAX,
    KEY_BYTES_MAX,
    MESSAGE_JSON_BYTES_MAX,
    MESSAGE_OVERHEAD_BYTES,
    OFFSET_MAX,
    PROPERTIES_BYTES_MAX,
    TAG_CHARS_MAX,
)

FIELDS = frozenset(
    {"body", "body_base64", "key", "tag", "properties", "queue", "delay_ms", "deliver_at_ms", "dedup_id"}
)


@dataclass(frozen=True, slots=True)
class Message:
    """What a producer sends. `is_text` remembers which of `body` and `body_base64` it came in.

    `deliver_at_ms`: not to be delivered before (None: now). `delayed_id`: its id, if it waited: it keeps that.
    `dedup_id`: a message with the same one is the same message; it is not stored with it. `is_lost`: the log has the
    message, and what it held is gone."""

    body: bytes
    is_text: bool
    key: str | None
    tag: str | None
    properties: dict[str, str]
    deliver_at_ms: int | None = None
    delayed_id: str | None = None
    dedup_id: str | None = None
    is_lost: bool = False

    def content(self) -> dict[str, Any]:
        """The producer's fields as JSON has them, all four of them."""
        body = {"body": self.body.decode()} if self.is_text else {"body_base64": base64.b64encode(self.body).decode()}
        return {**body, "key": self.key, "tag": self.tag, "properties": self.properties}


LOST = Message(b"", is_text=True, key=None, tag=None, properties={}, is_lost=True)
"""Stands for each message of an entry whose payload is gone."""


@dataclass(frozen=True, slots=True)
class Stored:
    """A message in the log. Its id says where it is, so that it is found by id without an index."""

    message: Message
    queue: int
    offset: int
    entry_id: bytes
    stored_at_ms: int

    @property
    def message_id(self) -> str:
        return self.message.delayed_id or message_id(self.entry_id, self.queue, self.offset)

    def as_json(self, topic: str) -> dict[str, Any]:
        return {
            "message_id": self.message_id,
            "topic": topic,
            "queue": self.queue,
            "offset": self.offset,
            **self.message.content(),
            "stored_at_ms": self.stored_at_ms,
        }


def carried_bytes(text: bytes) -> int:
    """How long this JSON is in an answer of Lambda's: a string inside JSON, its quotes escaped once more."""
    return len(text) + text.count(b'"') + text.count(b"\\")


ENTRY_ID_BYTES = 8


def message_id(entry_id: bytes, queue: int, offset: int) -> str:
    return f"{entry_id.hex()}{queue:02x}{offset:x}"


def parse_message_id(text: str) -> tuple[bytes, int, int] | None:
    """Entry id, queue and offset; None when the service never made such an id."""
    if not re.fullmatch("[0-9a-f]{18}(0|[1-9a-f][0-9a-f]{0,12})", text) or int(text[18:], 16) > OFFSET_MAX:
        return None
    return bytes.fromhex(text[:16]), int(text[16:18], 16), int(text[18:], 16)


def delayed_id(entry_id: bytes, queue: int, due_ms: int) -> str:
    """The id of a message that waits: the letter in it is no hex digit, so no other id is like it."""
    return f"{entry_id.hex()}{queue:02x}t{due_ms:x}"


def parse_delayed_id(text: str) -> tuple[bytes, int, int] | None:
    """Entry id, queue and due time; None when the service never made such an id."""
    if not re.fullmatch("[0-9a-f]{18}t[1-9a-f][0-9a-f]{0,11}", text) or int(text[19:], 16) > INSTANT_MS_MAX:
        return None
    return bytes.fromhex(text[:16]), int(text[16:18], 16), int(text[19:], 16)


def parse_batch(data: object, queues: int, now: int) -> list[tuple[Message, int | None]]:
    """The `messages` of a produce, each with the queue it asks for; or an error that lists every bad one."""
    if not isinstance(data, list) or not 1 <= len(data) <= BATCH_MESSAGES_MAX:
        count = f"{len(data)} of them" if isinstance(data, list) else shown(data)
        raise InvalidField(f"field 'messages' must be a list of 1 to {BATCH_MESSAGES_MAX} messages; it is {count}")
    parsed: list[tuple[Message, int | None]] = []
    errors: list[tuple[int, DecantError]] = []
    for index, each in enumerate(data):
        try:
            parsed.append(parse(each, queues, f"messages[{index}].", now))
        except DecantError as error:
            errors.append((index, error))
    if errors:
        raise _first(errors)
    total = sum(len(message.body) for message, _ in parsed)
    if total > BODY_BYTES_MAX:
        raise MessageTooLarge(f"the bodies of field 'messages' are {total} bytes in all; at most {BODY_BYTES_MAX} fit")
    return parsed


def _first(errors: list[tuple[int, DecantError]]) -> DecantError:
    """The first error, listing them all. A size counts only when nothing else is wrong."""
    listed = [{"index": index, "code": error.code, "detail": error.detail} for index, error in errors]
    first = next((error for _, error in errors if not isinstance(error, MessageTooLarge)), errors[0][1])
    return type(first)(first.detail, errors=listed)


def parse(data: object, queues: int, where: str, now: int) -> tuple[Message, int | None]:
    fields = Fields(data, FIELDS, where)
    queue = fields.integer("queue", 0, queues - 1)
    key, tag = parse_key(fields), _tag(fields)
    properties = _properties(fields, where)
    due_ms = _due(fields, where, now)
    body = _body(fields, where)
    dedup_id = fields.text("dedup_id", ID_CHARS_MAX)
    message = Message(body, fields.given("body"), key, tag, properties, due_ms, dedup_id=dedup_id)
    _demand_deliverable(message, where)
    return message, queue


def _body(fields: Fields, where: str) -> bytes:
    if fields.given("body") == fields.given("body_base64"):
        raise InvalidField(f"exactly one of fields '{where}body' and '{where}body_base64' must be given")
    text = fields.text("body")
    body = text.encode() if text is not None else fields.data("body_base64")
    if not body:
        raise fields.wrong("body_base64", f"1 to {BODY_BYTES_MAX} bytes")
    if len(body) > BODY_BYTES_MAX:
        raise MessageTooLarge(f"the body of {where.rstrip('.')} is {len(body)} bytes; at most {BODY_BYTES_MAX} fit")
    return body


def parse_key(fields: Fields) -> str | None:
    key = fields.text("key")
    if key is not None and len(key.encode()) > KEY_BYTES_MAX:
        raise fields.wrong("key", f"at most {KEY_BYTES_MAX} bytes of UTF-8, not {len(key.encode())}")
    return key


def _tag(fields: Fields) -> str | None:
    tag = fields.text("tag", TAG_CHARS_MAX)
    if tag is not None and ("|" in tag or tag != tag.strip()):
        raise fields.wrong("tag", "a string without '|' and without white space around it")
    return tag


def _due(fields: Fields, where: str, now: int) -> int | None:
    """When it may be delivered; None when that is now, or was."""
    delay_ms = fields.integer("delay_ms", 0, DELAY_MS_MAX)
    deliver_at_ms = fields.integer("deliver_at_ms", 0, INSTANT_MS_MAX)
    if delay_ms is not None and deliver_at_ms is not None:
        raise InvalidField(f"only one of fields '{where}delay_ms' and '{where}deliver_at_ms' may be given")
    if deliver_at_ms is not None and deliver_at_ms > now + DELAY_MS_MAX:
        raise fields.wrong("deliver_at_ms", f"at most {DELAY_MS_MAX} ms ahead")
    due_ms = deliver_at_ms if delay_ms is None else now + delay_ms
    return due_ms if due_ms is not None and due_ms > now else None


def _properties(fields: Fields, where: str) -> dict[str, str]:
    properties = fields.raw("properties")
    if properties is None:
        return {}
    if not isinstance(properties, dict):
        raise fields.wrong("properties", "an object of strings")
    for name, value in properties.items():
        if not isinstance(value, str) or not encodable(name) or not encodable(value):
            property_name = quoted(f"{where}properties.{name}")
            raise InvalidField(f"field {property_name} must be a string of text; it is {shown(value)}")
    size = properties_bytes(properties)
    if size > PROPERTIES_BYTES_MAX:
        raise InvalidField(f"field '{where}properties' holds {size} bytes; at most {PROPERTIES_BYTES_MAX} fit")
    return properties


def properties_bytes(properties: Mapping[str, str]) -> int:
    return sum(len(name.encode()) + len(value.encode()) for name, value in properties.items())


def _demand_deliverable(message: Message, where: str) -> None:
    """Refuses what no response could carry: a body of control characters is seven times as long there."""
    if len(message.body) * 7 < MESSAGE_JSON_BYTES_MAX // 2:
        return
    size = carried_bytes(orjson.dumps(message.content())) + MESSAGE_OVERHEAD_BYTES
    if size > MESSAGE_JSON_BYTES_MAX:
        raise MessageTooLarge(
            f"{where.rstrip('.')} is {size} bytes as JSON, its quotes escaped;"
            f" a response carries at most {MESSAGE_JSON_BYTES_MAX}"
        )
