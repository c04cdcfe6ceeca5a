"""Correlation ids: the state of a request before it has a reply. Opaque to clients, signed, versioned.

An id has the time of the request, its timeout, and the topic by incarnation and name. So a request needs no item
besides its message, and any instance knows its deadline. Binary: version, instant, timeout, random bytes, then the
topic as text; signed as `catalogue.signing_key` says.

The outcome of a request: its reply, or its time-out. The first write wins. The item does not exist before, and its
key follows from the correlation id. So a reply and a time-out are each one conditional write, and only one of them
succeeds, however late the other arrives: a request that timed out never gets a reply."""

from __future__ import annotations

import hashlib
from typing import Any

import orjson

from chalicelib.core.base.errors import RequestNotFound
from chalicelib.core.base.fields import quoted
from chalicelib.core.base.limits import CORRELATION_ID_CHARS_MAX, EXPIRED_KEPT_MS, REPLY_KEPT_MS, SECOND_MS
from chalicelib.core.base.message import Message
from chalicelib.core.base.records import record
from chalicelib.core.catalogue.signing_key import SigningKey, checked, content_of, signed
from chalicelib.core.log.segment import Entry
from chalicelib.core.table import keys
from chalicelib.core.table.writes import Absent, Item, Key, Write, sets

NONCE_BYTES = 8

_VERSION = b"1"
_DOMAIN = b"request"
_INSTANT_BYTES = 6
_TIMEOUT_BYTES = 3
_HEAD_BYTES = len(_VERSION) + _INSTANT_BYTES + _TIMEOUT_BYTES + NONCE_BYTES


@record
class Correlation:
    topic_id: str
    topic_name: str
    asked_at_ms: int
    timeout_ms: int
    nonce: bytes

    @property
    def reply_by_ms(self) -> int:
        """The deadline."""
        return self.asked_at_ms + self.timeout_ms

    @property
    def ttl(self) -> int:
        """When its stored reply expires, in seconds since the epoch."""
        return (self.reply_by_ms + REPLY_KEPT_MS + EXPIRED_KEPT_MS) // SECOND_MS

    @property
    def key(self) -> Key:
        """The key of its reply."""
        return keys.reply(self.topic_id, self.nonce)


class Correlations:
    """Signs and reads correlation ids."""

    def __init__(self, signing_key: SigningKey) -> None:
        self._key = signing_key

    def sign(self, correlation: Correlation) -> str:
        content = b"".join(
            (
                _VERSION,
                correlation.asked_at_ms.to_bytes(_INSTANT_BYTES, "big"),
                correlation.timeout_ms.to_bytes(_TIMEOUT_BYTES, "big"),
                correlation.nonce,
                f"{correlation.topic_id}:{correlation.topic_name}".encode(),
            )
        )
        return signed(_DOMAIN, content, self._key.of(correlation.topic_id))

    def read(self, text: str) -> Correlation:
        """Raises RequestNotFound if this service did not sign it."""
        correlation = _read(content_of(text)) if len(text) <= CORRELATION_ID_CHARS_MAX else None
        if correlation is None or checked(_DOMAIN, text, *self._key.accepted(correlation.topic_id)) is None:
            raise RequestNotFound(f"this service made no request {quoted(text)}")
        return correlation


def _read(content: bytes) -> Correlation | None:
    """The content of an id, with its signature unchecked; None if it cannot be an id."""
    head, (topic_id, _, topic_name) = content[:_HEAD_BYTES], content[_HEAD_BYTES:].partition(b":")
    if not (head.startswith(_VERSION) and topic_id.isascii() and topic_name.isascii()):
        return None
    times, nonce = head[len(_VERSION) : -NONCE_BYTES], head[-NONCE_BYTES:]
    asked_at_ms, timeout_ms = (int.from_bytes(part, "big") for part in (times[:_INSTANT_BYTES], times[_INSTANT_BYTES:]))
    return Correlation(topic_id.decode(), topic_name.decode(), asked_at_ms, timeout_ms, nonce)


_FINGERPRINT_BYTES = 16


@record
class Replier:
    """The replier, from its receipt: the group, the message of the request, and when it was taken (0: unknown)."""

    group: str
    queue: int
    offset: int
    attempt: int
    taken_at_ms: int

    def as_attributes(self) -> dict[str, Any]:
        place = {"queue": self.queue, "offset": self.offset, "attempt": self.attempt}
        taken = {"taken_at": self.taken_at_ms} if self.taken_at_ms else {}
        return {"group": self.group, **place, **taken}


def fingerprint(reply: Message) -> bytes:
    """The same for the same body and properties."""
    content = orjson.dumps(reply.content(), option=orjson.OPT_SORT_KEYS)
    return hashlib.blake2b(content, digest_size=_FINGERPRINT_BYTES).digest()


def store(correlation: Correlation, entry: Entry, content: bytes, by: Replier | None) -> Write:
    """Stores the reply, unless the request has another reply or has timed out. `content`: its fingerprint."""
    about = {"at": entry.stored_at_ms, "entry": entry.as_value(), "content": content}
    return _write(correlation, {**about, **(by.as_attributes() if by else {})})


def time_out(correlation: Correlation, now: int) -> Write:
    """Ends the request without a reply, unless there is one."""
    return _write(correlation, {"at": now})


def is_reply(item: Item) -> bool:
    """Whether this is a reply, not a time-out."""
    return "entry" in item


def _write(correlation: Correlation, attributes: dict[str, Any]) -> Write:
    """If the write is refused, its caller uses the existing item, which may be its own."""
    call = {"asked_at": correlation.asked_at_ms, "reply_by": correlation.reply_by_ms, "ttl": correlation.ttl}
    return Write(correlation.key, (Absent(("at",)),), sets({**attributes, **call}))
