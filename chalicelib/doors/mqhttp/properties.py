"""What MQ's `Properties` say of a message, `name:value|name:value`, as fields of a message and back."""

from __future__ import annotations

import re
from typing import Any

from chalicelib.core.base.fields import shown
from chalicelib.core.base.message import Message, parse_delayed_id
from chalicelib.doors.mqhttp.errors import wrong
from chalicelib.doors.xml_text import is_sendable

KEYS, SHARDING_KEY, DELIVER_AT = "KEYS", "__SHARDINGKEY", "__STARTDELIVERTIME"
CHECK_AFTER = "__TransCheckT"
"""Seconds after which a half message is checked first. Any message that has it is one."""
ENCODING = "encoding"

_UNSENDABLE = re.compile("[:|\"']")
"""What clients cannot read in a name or a value."""


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


def text_of(message: Message, is_encoded: bool) -> str:
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
