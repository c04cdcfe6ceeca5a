"""The messages that clients get: of a consume, or half messages that are to be checked."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence

import orjson

from chalicelib.base.limits import MESSAGE_JSON_BYTES_MAX
from chalicelib.base.message import Message
from chalicelib.base.records import record
from chalicelib.protocols.mqhttp import properties
from chalicelib.protocols.mqhttp.xml_wire import document, element, escaped
from chalicelib.protocols.xml_text import body_text, is_sendable


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
    if fits(text):
        return text
    return document("Messages", "".join(_element(each, is_large=True) for each in shown))


def fits(text: str) -> bool:
    """Whether Lambda can carry the answer, as a string in JSON."""
    return len(orjson.dumps(text)) <= MESSAGE_JSON_BYTES_MAX


def _element(shown: Shown, is_large: bool) -> str:
    message = shown.message
    body, is_encoded = body_text(message)
    if is_large and not is_encoded and len(orjson.dumps(escaped(body))) * 3 > len(message.body) * 4:
        body, is_encoded = base64.b64encode(message.body).decode(), True
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
