"""Messages on their way in and out, replies, and the exceptions of handlers."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Generic, NamedTuple, TypedDict, TypeVar, cast

from decant.errors import SettingError
from decant.payloads import Topic, as_bytes, as_text, body_of, encoded_in

T = TypeVar("T")
Json = dict[str, Any]
Duration = timedelta | float
"""Seconds, or a timedelta."""


class Sent(NamedTuple):
    """Where a message is stored."""

    id: str
    queue: int
    offset: int | None
    """None while the message waits for its time."""
    deliver_at_ms: int | None = None


class RequestOptions(TypedDict, total=False):
    """The options of a request."""

    key: str | None
    """Messages with the same key go to the same queue, in order."""
    tag: str | None
    """The kind of message, for filters."""
    properties: Mapping[str, str] | None
    """Names and values of the sender's own."""
    queue: int | None
    """Put it into this queue."""
    zone: str | None
    """Put it into a queue of this zone, if one takes it."""


class HalfOptions(RequestOptions, total=False):
    """The options of a message in a transaction."""

    ttl: Duration | None
    """How long the message is delivered."""


class Options(HalfOptions, total=False):
    """The options of a message."""

    delay: Duration | None
    """How long the message waits before its delivery."""
    deliver_at: datetime | None
    """The earliest delivery; excludes `delay`."""
    dedup_id: str | None
    """Only the first message with this id in five minutes is stored."""


class Outgoing(Generic[T]):
    """A message to send: a value and its `Options`."""

    __slots__ = ("fields", "value")

    def __init__(
        self,
        value: T,
        *,
        key: str | None = None,
        tag: str | None = None,
        properties: Mapping[str, str] | None = None,
        delay: Duration | None = None,
        deliver_at: datetime | None = None,
        ttl: Duration | None = None,
        dedup_id: str | None = None,
        queue: int | None = None,
        zone: str | None = None,
    ) -> None:
        fields = {
            "key": key,
            "tag": tag,
            "properties": dict(properties) if properties else None,
            "delay_ms": milliseconds("delay", delay),
            "deliver_at_ms": instant_ms("deliver_at", deliver_at),
            "ttl_ms": milliseconds("ttl", ttl),
            "dedup_id": dedup_id,
            "queue": queue,
            "zone": zone,
        }
        self.value = value
        self.fields: Json = {name: given for name, given in fields.items() if given is not None}

    def as_json(self, topic: Topic[T]) -> Json:
        """The message as the service takes it."""
        return {**body_of(topic.codec.encode(self.value)), **self.fields}


_UNDECODED = object()


class Message(Generic[T]):
    """A message as it was delivered. `fields`: all of it, as JSON."""

    __slots__ = ("_topic", "_value", "fields", "lost", "receipt")

    def __init__(self, fields: Mapping[str, Any], topic: Topic[T]) -> None:
        self.fields = fields
        self._topic = topic
        self._value: object = _UNDECODED
        self.receipt: str = fields.get("receipt", "")
        """The newest receipt: an extended lease has a new one."""
        self.lost = False
        """The lease is lost: another consumer may have the message."""

    @property
    def value(self) -> T:
        """The payload, decoded. Raises ValueError for a body that is no such value."""
        if self._value is _UNDECODED:
            self._value = self._topic.codec.decode(encoded_in(self.fields))
        return cast(T, self._value)

    @property
    def text(self) -> str:
        """The body as text."""
        return as_text(encoded_in(self.fields))

    @property
    def data(self) -> bytes:
        """The body as bytes, however it was sent."""
        return as_bytes(encoded_in(self.fields))

    @property
    def id(self) -> str:
        """Stays the same through every retry, as queue and offset do."""
        return str(self.fields["message_id"])

    @property
    def topic(self) -> str:
        return str(self.fields["topic"])

    @property
    def queue(self) -> int:
        return int(self.fields["queue"])

    @property
    def offset(self) -> int:
        return int(self.fields["offset"])

    @property
    def key(self) -> str | None:
        return self.fields.get("key")

    @property
    def tag(self) -> str | None:
        return self.fields.get("tag")

    @property
    def properties(self) -> Mapping[str, str]:
        return self.fields.get("properties") or {}

    @property
    def attempt(self) -> int:
        """1 at the first delivery. A push does not say: 0."""
        return int(self.fields.get("attempt") or 0)

    @property
    def correlation_id(self) -> str | None:
        """None: the message is no request."""
        return self.fields.get("correlation_id")

    @property
    def reply_by_ms(self) -> int | None:
        """The deadline of a request."""
        return self.fields.get("reply_by_ms")

    def __repr__(self) -> str:
        return f"Message({self.fields.get('message_id')!r}, topic={self.fields.get('topic')!r}, attempt={self.attempt})"


class Reply(Generic[T]):
    """A reply. Handlers return one to give it properties; `mq.request` returns the value alone."""

    __slots__ = ("properties", "value")

    def __init__(self, value: T, properties: Mapping[str, str] | None = None) -> None:
        self.value = value
        self.properties = dict(properties or {})


class Retry(Exception):
    """Raised by a handler that wants the message again: after `delay`, or else after the group's backoff."""

    def __init__(self, delay: Duration | None = None, reason: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.delay_ms = milliseconds("delay", delay)


class Bury(Exception):
    """Raised by a handler that gives the message up: it becomes a dead letter at once."""

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)
        self.reason = reason


MS_MAX = 31_536_000_000
"""A year: no duration of the contract is longer."""


def seconds(name: str, duration: Duration) -> float:
    """The duration in seconds. Raises SettingError, which names it."""
    number = duration.total_seconds() if isinstance(duration, timedelta) else duration
    if isinstance(number, bool) or not isinstance(number, int | float) or not 0 <= number * 1_000 <= MS_MAX:
        raise SettingError(f"{name} must be a timedelta or seconds, from 0 to 365 days; it is {duration!r}")
    return number


def milliseconds(name: str, duration: Duration | None) -> int | None:
    """The duration in milliseconds. Raises SettingError, which names it."""
    return None if duration is None else round(seconds(name, duration) * 1_000)


def instant_ms(name: str, instant: datetime | None) -> int | None:
    """The instant in milliseconds since the Unix epoch. Raises SettingError for one without a time zone."""
    if instant is None:
        return None
    if not isinstance(instant, datetime) or instant.tzinfo is None:
        raise SettingError(f"{name} must be a datetime with a time zone; it is {instant!r}")
    return round(instant.timestamp() * 1_000)
