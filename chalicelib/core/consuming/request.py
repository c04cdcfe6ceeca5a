"""The request of a pop."""

from __future__ import annotations

import hashlib
from typing import ClassVar

from chalicelib.core.base import limits
from chalicelib.core.base.fields import Label, base64url, batch, check, flag, instant, integer, optional, string
from chalicelib.core.base.message import Space
from chalicelib.core.base.records import record
from chalicelib.core.catalogue.topic import ZONE

RECEIPT = string(
    maxLength=limits.RECEIPT_CHARS_MAX,
    examples=["MTo3ZDFhOmMyOWI6MTowOms5czJ4MTc"],
    description="The receipt that a pop, or the last extend, returned for the message. Opaque.",
)
LEASE_END = instant("When the lease ends, and the message can be delivered again.")
_ACK = batch(RECEIPT, least=0, description="Receipts to ack in the same call.")


def _receipts(value: object, label: Label) -> tuple[str, ...]:
    return tuple(check(_ACK, value, label))


@record
class Pop:
    """How many messages to take, and how.

    max_messages: How many messages to take, at most.
    invisible_ms: How long the lease lasts, in milliseconds. 0: the messages can be delivered again at once, and the
        attempt counts. By default the group's `invisible_ms`.
    wait_ms: How long to wait for a message, in milliseconds.
    consumer_id: The consumer, shown in the group's progress. Required in a broadcast group.
    attempt_id: Makes a lost response recoverable: a repeat with the same id and `consumer_id` returns the messages of
        the first call that are still leased, with the same receipts. If none are, it is a new pop.
    zone: The consumer's zone. The pop takes messages from queues of other zones only if their own consumers do not:
        once a message has waited {TAKE_OVER_AFTER_MS} ms since the last of their pops, until one of them pops again. By
        default all queues are alike. Has no effect in a broadcast group.
    fill: Whether to take from one queue after another until there are `max_messages`. By default a pop takes from one
        queue. It waits for a first message, never for more."""

    NAME: ClassVar = "PopRequest"

    max_messages: int = optional(integer(1, limits.BATCH_MESSAGES_MAX, default=limits.POP_MESSAGES_DEFAULT))
    invisible_ms: int | None = optional(integer(0, limits.INVISIBLE_MS_MAX))
    wait_ms: int = optional(integer(most=limits.WAIT_MS_MAX, default=0, examples=[20000]))
    consumer_id: str | None = optional(string(limits.ID_CHARS_MAX, examples=["worker-1"]))
    attempt_id: str | None = optional(string(limits.ID_CHARS_MAX))
    ack: tuple[str, ...] = optional({**_ACK, "default": []}, _receipts)
    zone: str | None = optional(ZONE)
    fill: bool = optional(flag(default=False))
    notes_first: bool = False
    """Whether its leases note when their messages were first delivered. JSON does not show that."""
    space: Space = Space()
    """The space of the response."""

    @property
    def attempt_token(self) -> str | None:
        """The token of the attempt: the same call again finds its own lease."""
        if self.attempt_id is None:
            return None
        name = f"{self.consumer_id or ''}\0{self.attempt_id}".encode()
        return base64url(hashlib.blake2b(name, digest_size=6).digest())
