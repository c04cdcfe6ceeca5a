"""Carries the W3C Trace Context of a request to consumers as a property."""

from __future__ import annotations

import re
from dataclasses import replace

from chalicelib.base.limits import PROPERTIES_BYTES_MAX
from chalicelib.base.message import Message, properties_bytes

PROPERTY = "traceparent"

_IDS = "-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}"
_TRACEPARENT = re.compile(f"00{_IDS}|(?!00|ff)[0-9a-f]{{2}}{_IDS}(-[!-~]*)?")
"""Version, trace id, parent id, flags. The specification says to accept later versions with further fields."""


def parse(header: str | None) -> str | None:
    """The header's value, or None without one or for a malformed one, which the specification says to ignore."""
    return header if header is not None and _TRACEPARENT.fullmatch(header) else None


def traced(message: Message, traceparent: str | None) -> Message:
    """The message with the property, unless its producer has set it or it does not fit."""
    if traceparent is None or PROPERTY in message.properties:
        return message
    properties = {**message.properties, PROPERTY: traceparent}
    return message if properties_bytes(properties) > PROPERTIES_BYTES_MAX else replace(message, properties=properties)
