"""Receipts, which consumers return to settle messages. Opaque to clients, signed, versioned.

A receipt names a message in a lease: topic and group by incarnation, in a broadcast group the consumer (its hash; else
empty), the queue, the cursor's epoch, the token, the message's index in the lease and its offset, the lease's `count`
of messages and its attempt, so that acking a whole lease needs no read. It has no deadline: any change of that makes a
new token, and a write checks only token and start. It says when the message was taken, which is stored with the reply
to a request; and, of a lease that notes it, when the message was first delivered. Text with colons, signed as
`catalogue.signing_key` says.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache

from chalicelib.core.base.records import record
from chalicelib.core.catalogue.signing_key import SigningKey, checked, signed

_VERSION = "3"
_NOTED = "4"
"""The version of receipts with `first_at_ms`."""
_DOMAIN = b"receipt"
_LEASES_KEPT_MAX = 1_024
"""Leases whose receipts one instance caches while it reads them: clients mostly return the receipts of a lease
together."""


@record
class Receipt:
    """`taken_at_ms`: 0 for a pop with an `attempt_id`, since a repeat returns the same receipts at another time.
    `first_at_ms`: as in the lease."""

    topic_id: str
    group_id: str
    consumer: str
    queue: int
    epoch: int
    token: str
    index: int
    offset: int
    count: int
    attempt: int
    taken_at_ms: int
    first_at_ms: int | None = None

    @property
    def start(self) -> int:
        return self.offset - self.index


def sign(receipt: Receipt, key: bytes) -> str:
    return sign_each(receipt, [receipt.offset], key)[0]


def sign_each(first: Receipt, offsets: Iterable[int], key: bytes) -> list[str]:
    """The receipts of these messages of the same lease. Encodes their common part once."""
    version, noted = (_VERSION, "") if first.first_at_ms is None else (_NOTED, f":{first.first_at_ms}")
    shared = (version, first.topic_id, first.group_id, first.consumer, first.queue, first.epoch, first.token)
    before, after = ":".join(map(str, shared)), f"{first.count}:{first.attempt}:{first.taken_at_ms}{noted}"
    start = first.start
    return [signed(_DOMAIN, f"{before}:{offset - start}:{offset}:{after}".encode(), key) for offset in offsets]


def read(text: str, *keys: bytes) -> Receipt | None:
    """The receipt, or None if this service did not sign exactly this text."""
    content = checked(_DOMAIN, text, *keys)
    if content is None:
        return None
    is_noted = content.startswith(_NOTED.encode())
    shared, *numbers = content.rsplit(b":", 5 + is_noted)
    lease = _lease(shared)
    return lease and Receipt(*lease, *map(int, numbers))


@lru_cache(_LEASES_KEPT_MAX)
def _lease(shared: bytes) -> tuple[str, str, str, int, int, str] | None:
    """The common beginning of a lease's receipts."""
    version, *told = shared.decode().split(":")
    if version not in (_VERSION, _NOTED):
        return None
    topic_id, group_id, consumer, queue, epoch, token = told
    return topic_id, group_id, consumer, int(queue), int(epoch), token


class Receipts:
    """Signs and reads receipts."""

    def __init__(self, signing_key: SigningKey) -> None:
        self._key = signing_key

    def sign(self, made: Receipt) -> str:
        return sign(made, self._key.of(made.topic_id))

    def sign_each(self, first: Receipt, offsets: Iterable[int]) -> list[str]:
        """The receipts of these messages of the same lease."""
        return sign_each(first, offsets, self._key.of(first.topic_id))

    def demand_key(self, topic_id: str) -> None:
        """Raises StoreUnavailable if the keys are stored outside the table and cannot be read."""
        if self._key.is_kept_elsewhere:
            self._key.of(topic_id)

    def read(self, text: str, topic_id: str) -> Receipt | None:
        """The receipt, or None if this service did not sign it for this topic."""
        return self.read_each([text], topic_id)[0]

    def read_each(self, texts: Sequence[str], topic_id: str) -> list[Receipt | None]:
        """The same for each of these texts."""
        accepted = self._key.accepted(topic_id)
        receipts = [read(text, *accepted) for text in texts]
        return [receipt if receipt and receipt.topic_id == topic_id else None for receipt in receipts]
