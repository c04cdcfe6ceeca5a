"""The space left in a response: the bytes of its bodies, and its length as Lambda counts it, which carries it as a
string in JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

import orjson

from chalicelib.core.base.limits import MESSAGE_OVERHEAD_BYTES, RESPONSE_BODY_BYTES_MAX, RESPONSE_JSON_BYTES_MAX
from chalicelib.core.base.message import Message, carried_bytes
from chalicelib.core.base.records import record


class Carried(Protocol):
    """The form in which a response carries a message."""

    @property
    def message(self) -> Message: ...


def json_bytes_of(message: Message) -> int:
    """The fields of its producer in a response in JSON."""
    return carried_bytes(orjson.dumps(message.content()))


@record
class Space:
    """`measure`: how long a message is in the response, without the fields that the service adds. `growth`: how many
    times as long as in JSON it can be."""

    body_bytes: int = RESPONSE_BODY_BYTES_MAX
    json_bytes: int = RESPONSE_JSON_BYTES_MAX
    measure: Callable[[Message], int] = json_bytes_of
    growth: int = 1

    @property
    def is_whole(self) -> bool:
        return (self.body_bytes, self.json_bytes) == (RESPONSE_BODY_BYTES_MAX, RESPONSE_JSON_BYTES_MAX)

    def holds(self, wire_bytes: int, count: int) -> bool:
        """Whether `count` messages of this total size certainly fit: they are longer as JSON than as bodies."""
        most_bytes = self.growth * wire_bytes + count * MESSAGE_OVERHEAD_BYTES
        return most_bytes <= min(self.body_bytes, self.json_bytes)

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
        message, left_bytes = stored.message, self.json_bytes - MESSAGE_OVERHEAD_BYTES
        sizes = (self.body_bytes - message.body_bytes, left_bytes - self.measure(message))
        return Space(*sizes, self.measure, self.growth)
