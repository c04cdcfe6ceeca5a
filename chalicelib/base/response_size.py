"""The space left in a response: the bytes of its bodies, and its length as JSON as Lambda counts it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

import orjson

from chalicelib.base.limits import MESSAGE_OVERHEAD_BYTES, RESPONSE_BODY_BYTES_MAX, RESPONSE_JSON_BYTES_MAX
from chalicelib.base.message import Message, carried_bytes
from chalicelib.base.records import record


class Carried(Protocol):
    """The form in which a response carries a message."""

    @property
    def message(self) -> Message: ...


@record
class Space:
    body_bytes: int = RESPONSE_BODY_BYTES_MAX
    json_bytes: int = RESPONSE_JSON_BYTES_MAX

    @property
    def is_whole(self) -> bool:
        return self == Space()

    def holds(self, wire_bytes: int, count: int) -> bool:
        """Whether `count` messages of this total size certainly fit: they are longer as JSON than as bodies."""
        return wire_bytes + count * MESSAGE_OVERHEAD_BYTES <= min(self.body_bytes, self.json_bytes)

    def after(self, messages: Iterable[Carried]) -> Space:
        space = self
        for stored in messages:
            space = space._after(stored)
        return space

    def fitting(self, messages: Iterable[Carried]) -> int:
        """How many of these messages fit. The first message of a response always does."""
        count, space = 0, self
        for stored in messages:
            space = space._after(stored)
            is_over = space.body_bytes < 0 or space.json_bytes < 0
            if is_over and not (self.is_whole and count == 0):
                break
            count += 1
        return count

    def _after(self, stored: Carried) -> Space:
        json_bytes = carried_bytes(orjson.dumps(stored.message.content())) + MESSAGE_OVERHEAD_BYTES
        return Space(self.body_bytes - stored.message.body_bytes, self.json_bytes - json_bytes)
