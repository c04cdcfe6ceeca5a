"""Correlation ids: the state of a request before it has a reply. Opaque to clients, signed, versioned.

An id has the time of the request, its timeout, and the topic by incarnation and name. So a request needs no item
besides its message, and any instance knows its deadline. Binary: version, instant, timeout, random bytes, then the
topic as text; signed as `catalogue.signing_key` says.
"""

from __future__ import annotations

from chalicelib.core.base.errors import RequestNotFound
from chalicelib.core.base.fields import quoted
from chalicelib.core.base.limits import CORRELATION_ID_CHARS_MAX, EXPIRED_KEPT_MS, REPLY_KEPT_MS, SECOND_MS
from chalicelib.core.base.records import record
from chalicelib.core.catalogue.signing_key import SigningKey, checked, content_of, signed
from chalicelib.core.table import keys
from chalicelib.core.table.writes import Key

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
