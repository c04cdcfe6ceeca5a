"""The requests about transactions."""

from __future__ import annotations

from typing import Any, ClassVar

from chalicelib.core.base import limits
from chalicelib.core.base.fields import optional, request, required
from chalicelib.core.base.schema import array, integer
from chalicelib.core.producing.new_message import HalfMessage, unchecked

_WHILE_UNDECIDED = (1, limits.ROLLBACK_AFTER_MS_MAX)


@request
class Begin:
    """The messages to hold back.

    messages: All are delivered, or none. Their bodies have at most {BODY_BYTES_MAX} bytes in total. As JSON, with
        quotes and backslashes counted twice, the messages have at most {MESSAGE_JSON_BYTES_MAX} bytes, the most that a
        check can return.
    check_after_ms: How long the transaction can stay undecided before a check returns it, in milliseconds. A check
        returns it again each time this period has passed.
    rollback_after_ms: How long the transaction can stay undecided before the service rolls it back, in milliseconds."""

    NAME: ClassVar = "TransactionRequest"

    messages: list[Any] = required(array(HalfMessage, minItems=1, maxItems=limits.HALF_MESSAGES_MAX), unchecked)
    check_after_ms: int = optional(integer(*_WHILE_UNDECIDED, default=limits.CHECK_AFTER_MS_DEFAULT))
    rollback_after_ms: int = optional(integer(*_WHILE_UNDECIDED, default=limits.ROLLBACK_AFTER_MS_DEFAULT))


@request
class Check:
    """How many transactions to take.

    max: How many transactions to take, at most.
    wait_ms: How long to wait for one, in milliseconds."""

    NAME: ClassVar = "CheckRequest"

    max: int = optional(integer(1, limits.CHECKED_MAX, default=limits.CHECKED_DEFAULT))
    wait_ms: int = optional(integer(most=limits.WAIT_MS_MAX, default=0, examples=[20000]))
