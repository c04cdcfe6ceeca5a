"""The messages that clients get: of a consume, or half messages that are to be checked."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence

import orjson

from chalicelib.core.base.limits import MESSAGE_JSON_BYTES_MAX
from chalicelib.core.base.message import Message
from chalicelib.core.base.records import record
from chalicelib.core.base.response_size import Space
from chalicelib.doors.mqhttp import properties
from chalicelib.doors.mqhttp.xml_wire import document, element, escaped
from chalicelib.doors.xml_text import body_text, is_sendable


@record
class Shown:
    """A message, and what MQ tells of it; times in ms since the epoch."""

    message: Message
    message_id: str
    handle: str
    published_at_ms: int
    next_at_ms: int
    first_at_ms: int
    times: int


def messages_text(shown: Sequence[Shown]) -> str:
    """The document. Escapes make some text longer than base64 does: where the answer would become too large for Lambda,
    such bodies go out in base64."""
    text = document("Messages", "".join(_element(each, is_large=False) for each in shown))
    if _carried_bytes(text) <= MESSAGE_JSON_BYTES_MAX:
        return text
    return document("Messages", "".join(_element(each, is_large=True) for each in shown))


def _weigh(message: Message) -> int:
    """How long a message is in an answer of Lambda at the least, without what the service adds."""
    body, is_encoded = _body(message, is_large=True)
    return _carried_bytes(escaped(body) + escaped(properties.text_of(message, is_encoded)))


SPACE = Space(measure=_weigh, growth=5)
"""In an answer. Of properties, each `&` is five characters, and one in JSON."""


def _carried_bytes(text: str) -> int:
    """The length of the text in an answer of Lambda: a string in JSON."""
    return len(orjson.dumps(text))


def _body(message: Message, is_large: bool) -> tuple[str, bool]:
    """The body, and whether it is in base64, since XML cannot hold it or it is shorter so."""
    body, is_encoded = body_text(message)
    if is_large and not is_encoded and _carried_bytes(escaped(body)) * 3 > len(message.body) * 4:
        return base64.b64encode(message.body).decode(), True
    return body, is_encoded


def _element(shown: Shown, is_large: bool) -> str:
    message = shown.message
    body, is_encoded = _body(message, is_large)
    known = {
        "MessageId": shown.message_id,
        "MessageBodyMD5": md5_of(body),
        "ReceiptHandle": shown.handle,
        "MessageBody": body,
        "PublishTime": str(shown.published_at_ms),
        "NextConsumeTime": str(shown.next_at_ms),
        "FirstConsumeTime": str(shown.first_at_ms),
        "ConsumedTimes": str(shown.times),
        "MessageTag": message.tag if message.tag and is_sendable(message.tag) else "",
        "Properties": properties.text_of(message, is_encoded),
    }
    return f"<Message>{''.join(element(name, text) for name, text in known.items() if text)}</Message>"


def md5_of(body: str) -> str:
    return hashlib.md5(body.encode(), usedforsecurity=False).hexdigest().upper()
