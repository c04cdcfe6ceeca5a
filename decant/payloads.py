"""Topics with typed payloads: what a value is as the body of a message, and back."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from typing import Any, Generic, NamedTuple, TypeVar, cast, get_args, get_origin

from decant.errors import SettingError

T = TypeVar("T")


class Codec(NamedTuple, Generic[T]):
    """How values become bodies. Text goes as text, bytes as bytes."""

    encode: Callable[[T], str | bytes]
    decode: Callable[[str | bytes], T]
    """Raises ValueError for a body that is no such value."""


def body_of(encoded: str | bytes) -> dict[str, str]:
    """The fields of a message that carry this body."""
    if isinstance(encoded, str):
        return {"body": encoded}
    return {"body_base64": base64.b64encode(encoded).decode()}


def encoded_in(fields: Mapping[str, Any]) -> str | bytes:
    """The body in the fields of a message."""
    return str(fields["body"]) if "body" in fields else base64.b64decode(fields["body_base64"])


class Topic(Generic[T]):
    """A topic and the type of its payloads.

    orders = Topic[Order]("orders")  # a dataclass, a TypedDict, a pydantic model, str, bytes, dict, list, ...
    events = Topic("events")         # whatever JSON can hold
    images = Topic("images", codec=Codec(to_png, from_png))
    """

    def __init__(self, name: str, *, codec: Codec[T] | None = None) -> None:
        self.name = name
        self._codec = codec

    @property
    def codec(self) -> Codec[T]:
        """Chosen at the first use, by the type in the brackets."""
        if self._codec is None:
            kind = getattr(self, "__orig_class__", None)
            self._codec = cast("Codec[T]", codec_of(get_args(kind)[0]) if kind else JSON)
        return self._codec

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"Topic({self.name!r})"


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"the payload must be a str; it is {value!r:.80}")
    return value


def _bytes(value: Any) -> bytes:
    if not isinstance(value, bytes | bytearray | memoryview):
        raise TypeError(f"the payload must be bytes; it is {value!r:.80}")
    return bytes(value)


def _as_text(body: str | bytes) -> str:
    return body if isinstance(body, str) else body.decode()


def _as_bytes(body: str | bytes) -> bytes:
    return body.encode() if isinstance(body, str) else body


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


TEXT: Codec[str] = Codec(_text, _as_text)
BYTES: Codec[bytes] = Codec(_bytes, _as_bytes)
JSON: Codec[Any] = Codec(_json, json.loads)


def _plain(value: Any) -> str | bytes:
    """Of a topic that is only named: text as text, bytes as bytes, anything else as JSON."""
    if isinstance(value, str):
        return value
    return bytes(value) if isinstance(value, bytes | bytearray | memoryview) else _json(value)


PLAIN: Codec[Any] = Codec(_plain, lambda body: body)


def codec_of(kind: Any) -> Codec[Any]:
    """The codec of a type. Raises SettingError for one that needs a codec of its own."""
    if kind is str:
        return TEXT
    if kind is bytes:
        return BYTES
    if hasattr(kind, "__dataclass_fields__"):
        return _dataclass(kind)
    if hasattr(kind, "model_validate_json"):
        return Codec(lambda value: str(value.model_dump_json()), kind.model_validate_json)
    plain = get_origin(kind) or kind
    if kind is Any or plain in (dict, list, int, float, bool, object) or hasattr(kind, "__total__"):
        return JSON
    raise SettingError(f"no codec is known for {kind!r}: give one, as Topic(name, codec=Codec(encode, decode))")


def _dataclass(kind: Any) -> Codec[Any]:
    raise NotImplementedError


def topic_of(topic: str | Topic[T]) -> Topic[T]:
    """The topic that this names."""
    return Topic(topic, codec=cast("Codec[T]", PLAIN)) if isinstance(topic, str) else topic
