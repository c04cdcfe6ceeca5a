"""Texts in XML, which cannot hold every character. SQS takes the same characters in JSON too."""

from __future__ import annotations

import base64
import re
from xml.sax.saxutils import escape

from chalicelib.base.message import Message

_UNSENDABLE = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def is_sendable(text: str) -> bool:
    """Whether XML can hold all of its characters."""
    return not _UNSENDABLE.search(text)


def body_text(message: Message) -> tuple[str, bool]:
    """The body, and whether it is in base64, since XML cannot hold it as text."""
    if message.text is not None and is_sendable(message.text):
        return message.text, False
    return base64.b64encode(message.body).decode(), True


def xml_text(text: str) -> str:
    """As it stands in an element: a line end of another kind would be read as a plain one."""
    return escape(text, {'"': "&quot;", "\r": "&#xD;"})
