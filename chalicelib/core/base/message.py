"""A message as its producer sent it, as the log stores it, and as a response has room for it."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

import orjson

from chalicelib.core.base.errors import QueueFull, StoreUnavailable
from chalicelib.core.base.fields import integer
from chalicelib.core.base.limits import (
    INSTANT_MS_MAX,
    MESSAGE_OVERHEAD_BYTES,
    OFFSET_MAX,
    QUEUES_MAX,
    RESPONSE_BODY_BYTES_MAX,
    RESPONSE_JSON_BYTES_MAX,
)
from chalicelib.core.base.records import record

QUEUE = integer(most=QUEUES_MAX - 1, examples=[1], description="The queue, counted from 0.")
OFFSET = integer(
    most=OFFSET_MAX, examples=[17], description="The message's place in its queue, counted from 0 and without gaps."
)


@record
class Message:
    """A message as its producer sent it. Its body is `text`, or `data` if it was sent as `body_base64`.

    `deliver_at_ms`: the earliest delivery (None: now). `delayed_id`: the id that it got while it waited, and keeps.
    `dedup_id`: two messages with the same one are the same message; the log does not store it. `ttl_ms`: how long it is
    delivered after it is stored. `correlation_id`: of a request, which is delivered until `reply_by_ms`. `sent_at_ms`:
    when it was sent, if it waited and a release that records this stored it. `is_lost`: the log has the message, but
    its content is missing."""

    text: str | None
    data: bytes | None
    key: str | None
    tag: str | None
    properties: dict[str, str]
    deliver_at_ms: int | None = None
    delayed_id: str | None = None
    dedup_id: str | None = None
    ttl_ms: int | None = None
    correlation_id: str | None = None
    reply_by_ms: int | None = None
    sent_at_ms: int | None = None
    is_lost: bool = False

    @property
    def body(self) -> bytes:
        return (self.text or "").encode() if self.data is None else self.data

    @property
    def body_bytes(self) -> int:
        """How long the body is."""
        return len(self.text) if self.text is not None and self.text.isascii() else len(self.body)

    def lives_ms(self, stored_at_ms: int) -> int | None:
        """How long the message is delivered if it is stored at this time. None: for the retention of its topic."""
        if self.reply_by_ms is None:
            return self.ttl_ms
        until_ms = max(0, self.reply_by_ms - stored_at_ms)
        return until_ms if self.ttl_ms is None else min(self.ttl_ms, until_ms)

    def content(self) -> dict[str, Any]:
        """The producer's four fields as JSON."""
        body = {"body": self.text} if self.data is None else {"body_base64": base64.b64encode(self.data).decode()}
        return {**body, "key": self.key, "tag": self.tag, "properties": self.properties}

    def how_to_reply(self) -> dict[str, Any]:
        """Further fields of a request."""
        if self.correlation_id is None:
            return {}
        return {"correlation_id": self.correlation_id, "reply_by_ms": self.reply_by_ms}

    def when_sent(self) -> dict[str, Any]:
        """A further field of a message that waits, or has waited."""
        return {} if self.sent_at_ms is None else {"sent_at_ms": self.sent_at_ms}


LOST = Message("", None, key=None, tag=None, properties={}, is_lost=True)
"""Replaces each message of an entry whose payload is lost."""


@record
class Stored:
    """A message in the log. Its id contains its place, so that finding it by id needs no index."""

    message: Message
    queue: int
    offset: int
    entry_id: bytes
    stored_at_ms: int

    @property
    def message_id(self) -> str:
        return self.message.delayed_id or message_id(self.entry_id, self.queue, self.offset)

    def has_expired(self, now: int) -> bool:
        """Whether its own time to live is over, regardless of the topic's retention."""
        lives_ms = self.message.lives_ms(self.stored_at_ms)
        return lives_ms is not None and self.stored_at_ms + lives_ms <= now

    def is_purged(self, purged_at_ms: int | None) -> bool:
        """Whether it has waited, and was sent before a purge at this time."""
        sent_at_ms = self.message.sent_at_ms
        return sent_at_ms is not None and purged_at_ms is not None and sent_at_ms <= purged_at_ms

    def as_json(self, topic_name: str) -> dict[str, Any]:
        return {
            "message_id": self.message_id,
            "topic": topic_name,
            "queue": self.queue,
            "offset": self.offset,
            **self.message.content(),
            "stored_at_ms": self.stored_at_ms,
            **self.message.when_sent(),
            **self.message.how_to_reply(),
        }


def carried_bytes(text: bytes) -> int:
    """The length of this JSON in a Lambda response: a string inside JSON, its quotes escaped again."""
    return len(text) + text.count(b'"') + text.count(b"\\")


ENTRY_ID_BYTES = 8


def message_id(entry_id: bytes, queue: int, offset: int) -> str:
    return f"{entry_id.hex()}{queue:02x}{offset:x}"


@record
class Produced:
    """The result of one message: its place, or its queue and due time while it waits, or why it is not stored."""

    queue: int
    message_id: str | None = None
    offset: int | None = None
    error: StoreUnavailable | QueueFull | None = None
    deliver_at_ms: int | None = None

    @classmethod
    def stored(cls, queue: int, entry_id: bytes, index: int, first: int | StoreUnavailable) -> Produced:
        """The message at this index of an entry. `first`: the entry's first offset, or why it is not known."""
        if isinstance(first, StoreUnavailable):
            return cls(queue, error=first)
        return cls(queue, message_id(entry_id, queue, first + index), first + index)

    @classmethod
    def delayed(cls, queue: int, entry_id: bytes, due_ms: int) -> Produced:
        return cls(queue, delayed_id(entry_id, queue, due_ms), deliver_at_ms=due_ms)


def parse_message_id(text: str) -> tuple[bytes, int, int] | None:
    """Entry id, queue and offset, or None if the service makes no such ids."""
    if not re.fullmatch("[0-9a-f]{18}(0|[1-9a-f][0-9a-f]{0,12})", text) or int(text[18:], 16) > OFFSET_MAX:
        return None
    return bytes.fromhex(text[:16]), int(text[16:18], 16), int(text[18:], 16)


def delayed_id(entry_id: bytes, queue: int, due_ms: int) -> str:
    """The id of a delayed message: it contains a letter that is not a hex digit, so no other id equals it."""
    return f"{entry_id.hex()}{queue:02x}t{due_ms:x}"


def parse_delayed_id(text: str) -> tuple[bytes, int, int] | None:
    """Entry id, queue and due time, or None if the service makes no such ids."""
    if not re.fullmatch("[0-9a-f]{18}t[1-9a-f][0-9a-f]{0,11}", text) or int(text[19:], 16) > INSTANT_MS_MAX:
        return None
    return bytes.fromhex(text[:16]), int(text[16:18], 16), int(text[19:], 16)


def properties_bytes(properties: Mapping[str, str]) -> int:
    return sum(len(name.encode()) + len(value.encode()) for name, value in properties.items())


# -- the space left in a response -------------------------------------------------------------------------------------


class Carried(Protocol):
    """The form in which a response carries a message."""

    @property
    def message(self) -> Message: ...


def json_bytes_of(message: Message) -> int:
    """The fields of its producer in a response in JSON."""
    return carried_bytes(orjson.dumps(message.content()))


@record
class Space:
    """`measure`: how long a message is in the response, without the fields that the service adds. `growth`: how many
    times as long as in JSON it can be."""

    body_bytes: int = RESPONSE_BODY_BYTES_MAX
    json_bytes: int = RESPONSE_JSON_BYTES_MAX
    measure: Callable[[Message], int] = json_bytes_of
    growth: int = 1

    @property
    def is_whole(self) -> bool:
        return (self.body_bytes, self.json_bytes) == (RESPONSE_BODY_BYTES_MAX, RESPONSE_JSON_BYTES_MAX)

    def holds(self, wire_bytes: int, count: int) -> bool:
        """Whether `count` messages of this total size certainly fit: they are longer as JSON than as bodies."""
        most_bytes = self.growth * wire_bytes + count * MESSAGE_OVERHEAD_BYTES
        return most_bytes <= min(self.body_bytes, self.json_bytes)

    def after(self, messages: Iterable[Carried]) -> Space:
        space = self
        for stored in messages:
            space = space._after(stored)
        return space

    def fitting(self, messages: Iterable[Carried]) -> int:
        """How many of these messages fit. The first message of a response always does."""
        count, space = 0, self
        for stored in messages:
            space = space._after(stored)
            is_over = space.body_bytes < 0 or space.json_bytes < 0
            if is_over and not (self.is_whole and count == 0):
                break
            count += 1
        return count

    def _after(self, stored: Carried) -> Space:
        message, left_bytes = stored.message, self.json_bytes - MESSAGE_OVERHEAD_BYTES
        sizes = (self.body_bytes - message.body_bytes, left_bytes - self.measure(message))
        return Space(*sizes, self.measure, self.growth)
