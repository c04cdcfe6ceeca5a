"""Topics with typed payloads: what a value is as the body of a message, and back."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from typing import Any, Generic, NamedTuple, TypeVar, cast, get_args, overload

from decant.errors import SettingError

T = TypeVar("T")


class Codec(NamedTuple, Generic[T]):
    """How values become bodies, and back. A str goes as text, bytes as bytes."""

    encode: Callable[[T], str | bytes]
    decode: Callable[[str | bytes], T]
    """Raises ValueError for a body that is no such value."""


class Topic(Generic[T]):
    """A topic with the type of its payloads.

        orders = Topic[Order]("orders")
        events = Topic("events")  # any JSON
        images = Topic("images", codec=Codec(to_png, from_png))

    A type is str, bytes, a dataclass, a TypedDict, a pydantic model, or what these and JSON are made of.
    """

    def __init__(self, name: str, *, codec: Codec[T] | None = None) -> None:
        if not isinstance(name, str) or not name:
            raise SettingError(f"a topic's name must be a string that is not empty; it is {name!r}")
        self.name = name
        self._codec = codec

    @property
    def codec(self) -> Codec[T]:
        """By default that of the type in the brackets."""
        if self._codec is None:
            kind = getattr(self, "__orig_class__", None)
            self._codec = cast("Codec[T]", codec_of(get_args(kind)[0]) if kind else JSON)
        return self._codec

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"Topic({self.name!r})"


@overload
def topic_of(topic: str) -> Topic[Any]: ...


@overload
def topic_of(topic: str | Topic[T]) -> Topic[T]: ...


def topic_of(topic: str | Topic[Any]) -> Topic[Any]:
    """A topic that is only named takes text, bytes and JSON, and gives text or bytes."""
    return Topic(topic, codec=PLAIN) if isinstance(topic, str) else topic


def codec_of(kind: Any) -> Codec[Any]:
    """The codec of a type. Raises SettingError for one that needs a codec of its own."""
    if kind is str:
        return TEXT
    if kind is bytes:
        return BYTES
    if hasattr(kind, "model_validate_json"):  # pydantic
        return Codec(lambda value: str(value.model_dump_json()), kind.model_validate_json)
    if isinstance(kind, Codec):
        return kind
    from decant import typed  # most topics do not need it

    typed.demand_known(kind)
    return Codec(_json, lambda body: typed.read(kind, json.loads(body)))


def body_of(encoded: str | bytes) -> dict[str, str]:
    """The field of a message that carries this body."""
    if isinstance(encoded, str):
        return {"body": encoded}
    return {"body_base64": base64.b64encode(encoded).decode()}


def encoded_in(fields: Mapping[str, Any]) -> str | bytes:
    """The body in the fields of a message."""
    return str(fields["body"]) if "body" in fields else base64.b64decode(fields["body_base64"])


def as_text(body: str | bytes) -> str:
    return body if isinstance(body, str) else body.decode()


def as_bytes(body: str | bytes) -> bytes:
    return body.encode() if isinstance(body, str) else body


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    raise SettingError(f"the payload must be a str; it is {value!r:.80}")


def _bytes(value: object) -> bytes:
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise SettingError(f"the payload must be bytes; it is {value!r:.80}")


def _json(value: object) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_as_json)
    except (TypeError, ValueError, RecursionError) as error:
        raise SettingError(f"the payload is no JSON: {error}") from error


def _as_json(value: object) -> Any:
    from decant import typed

    return typed.as_json(value)


def _plain(value: object) -> str | bytes:
    if isinstance(value, str):
        return value
    return bytes(value) if isinstance(value, bytes | bytearray | memoryview) else _json(value)


TEXT: Codec[str] = Codec(_text, as_text)
BYTES: Codec[bytes] = Codec(_bytes, as_bytes)
JSON: Codec[Any] = Codec(_json, json.loads)
PLAIN: Codec[Any] = Codec(_plain, lambda body: body)
"""Text as text, bytes as bytes, anything else as JSON."""
