"""Hooks of senders, for tests."""

from __future__ import annotations

from collections.abc import Sequence

from chalicelib.core.base.errors import InvalidField
from chalicelib.core.base.message import Message


def refuse_secrets(_topic: str, messages: Sequence[Message]) -> None:
    if any(message.tag == "secret" for message in messages):
        raise InvalidField("field 'tag' must not be \"secret\"")
