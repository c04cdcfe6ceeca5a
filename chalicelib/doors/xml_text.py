"""Texts in XML, which cannot hold every character. SQS takes the same characters in JSON too."""

from __future__ import annotations

import base64
import re

from chalicelib.core.base.message import Message

_UNSENDABLE = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def is_sendable(text: str) -> bool:
    """Whether XML can hold all of its characters."""
    return not _UNSENDABLE.search(text)


def body_text(message: Message) -> tuple[str, bool]:
    """The body, and whether it is in base64, since XML cannot hold it as text."""
    if message.text is not None and is_sendable(message.text):
        return message.text, False
    return base64.b64encode(message.body).decode(), True


def sendable(text: str) -> str:
    """The text, with U+FFFD in place of what XML cannot hold."""
    return _UNSENDABLE.sub("\ufffd", text)
