"""Messages as clients read and write them: those of a consume, half messages to check, and what MQ's `Properties`,
`name:value|name:value`, say of one."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Sequence
from typing import Any

import orjson

from chalicelib.core.base.fields import shown
from chalicelib.core.base.limits import MESSAGE_JSON_BYTES_MAX
from chalicelib.core.base.message import Message, Space, parse_delayed_id
from chalicelib.core.base.records import record
from chalicelib.doors.mqhttp.errors import wrong
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
    return _carried_bytes(escaped(body) + escaped(properties_text(message, is_encoded)))


SPACE = Space(measure=_weigh, growth=5)
"""The space of an answer. An `&` in properties takes five characters here, and one in JSON."""


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
        "Properties": properties_text(message, is_encoded),
    }
    return f"<Message>{''.join(element(name, text) for name, text in known.items() if text)}</Message>"


def md5_of(body: str) -> str:
    return hashlib.md5(body.encode(), usedforsecurity=False).hexdigest().upper()


KEYS, SHARDING_KEY, DELIVER_AT = "KEYS", "__SHARDINGKEY", "__STARTDELIVERTIME"
CHECK_AFTER = "__TransCheckT"
"""Seconds after which a half message is checked first. Any message that has it is one."""
ENCODING = "encoding"

_UNSENDABLE = re.compile("[:|\"']")
"""The characters that clients cannot read in a name or a value."""


def parse(text: str) -> dict[str, str]:
    """The properties by name; the last may end with `|` too. Raises MqError."""
    properties: dict[str, str] = {}
    for part in filter(None, text.split("|")):
        name, colon, value = part.partition(":")
        if not name or not colon:
            raise wrong(f"element 'Properties' must have a name and a value in each part; one is {shown(part)}")
        if name in properties:
            raise wrong(f"element 'Properties' has {shown(name)} twice")
        properties[name] = value
    return properties


def fields_of(properties: dict[str, str]) -> dict[str, Any]:
    """The fields of the message: MQ's own properties are some of them. Raises MqError."""
    own = dict(properties)
    due, sharding_key, key = own.pop(DELIVER_AT, None), own.pop(SHARDING_KEY, None), own.get(KEYS)
    if sharding_key and sharding_key == key:
        own[SHARDING_KEY] = sharding_key  # else nobody could see that it was given
    given = {"key": sharding_key or key or None, "properties": own}
    return given if due is None else {**given, "deliver_at_ms": integer(DELIVER_AT, due)}


def integer(name: str, text: str) -> int:
    if not re.fullmatch("[0-9]{1,15}", text):
        raise wrong(f"property '{name}' must be an integer; it is {shown(text)}")
    return int(text)


def properties_text(message: Message, is_encoded: bool) -> str:
    """The properties of a message as clients read them, without those that they cannot. `is_encoded`: its body goes out
    in base64."""
    properties = dict(message.properties)
    if message.key is not None and message.key != properties.get(KEYS):
        properties[SHARDING_KEY] = message.key
    waited = parse_delayed_id(message.delayed_id or "")
    if waited and CHECK_AFTER not in properties:  # after a commit, nobody asked for a time
        properties[DELIVER_AT] = str(waited[2])
    if is_encoded:
        properties[ENCODING] = "base64"
    readable = {name: value for name, value in properties.items() if _is_readable(name) and _is_readable(value)}
    return "".join(f"{name}:{value}|" for name, value in readable.items())


def _is_readable(text: str) -> bool:
    return bool(text) and is_sendable(text) and not _UNSENDABLE.search(text)
