"""Receipts, with which consumers settle messages. Opaque to clients, signed, versioned.

A receipt names a message in a lease: topic and group by incarnation, in a broadcast group the consumer (its hash; else
empty), the queue, the cursor's epoch, the token, the message's index in the lease and its offset, the lease's `count`
of messages and its attempt, so that acking a whole lease needs no read. It has no deadline: any change of that makes a
new token, and a write checks only token and start. Text with colons, then 16 bytes of HMAC-SHA256, in URL-safe base64.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass, fields

from chalicelib.base import base64url
from chalicelib.base.cache import BoundedCache
from chalicelib.catalogue.catalogue import Env
from chalicelib.store import Keys
from chalicelib.table import keys
from chalicelib.table.writes import Absent, Set, Write

_VERSION = "2"
_SIGNATURE_BYTES = 16
_KEY_BYTES = 32


@dataclass(frozen=True, slots=True)
class Receipt:
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

    @property
    def start(self) -> int:
        return self.offset - self.index


_FIELDS = tuple(field.name for field in fields(Receipt))


def sign(receipt: Receipt, key: bytes) -> str:
    text = ":".join([_VERSION, *(str(getattr(receipt, name)) for name in _FIELDS)]).encode()
    return base64url.encoded(text + _signature(text, key))


def read(text: str, key: bytes) -> Receipt | None:
    """The receipt, or None if this service did not sign exactly this text."""
    raw = base64url.decoded(text)
    if raw is None:
        return None
    signed, signature = raw[:-_SIGNATURE_BYTES], raw[-_SIGNATURE_BYTES:]
    if not hmac.compare_digest(signature, _signature(signed, key)):
        return None
    version, *told = signed.decode().split(":")
    if version != _VERSION:
        return None
    topic_id, group_id, consumer, queue, epoch, token, *numbers = told
    return Receipt(topic_id, group_id, consumer, int(queue), int(epoch), token, *map(int, numbers))


def _signature(text: bytes, key: bytes) -> bytes:
    return hmac.digest(key, text, hashlib.sha256)[:_SIGNATURE_BYTES]


class Receipts:
    """Signs and reads receipts. All instances share one key: the configured one, or one made once and kept in the
    table.

    An instance caches the key by topic id. If the table is deleted and made again while the instance runs, the new
    table has another key; since its topics have new ids, their receipts are signed with that key.
    """

    def __init__(self, env: Env, signing_key: bytes | None) -> None:
        self._store, self._runtime = env.store, env.runtime
        self._configured = signing_key
        self._kept: BoundedCache[bytes] = BoundedCache()

    def sign(self, made: Receipt) -> str:
        return sign(made, self._key(made.topic_id))

    def read(self, text: str, topic_id: str) -> Receipt | None:
        """The receipt, or None if this service did not sign it for this topic."""
        receipt = read(text, self._key(topic_id))
        return receipt if receipt and receipt.topic_id == topic_id else None

    def _key(self, topic_id: str) -> bytes:
        key = self._configured or self._kept.get(topic_id)
        if key is None:
            items = self._store.read([Keys([keys.signing_key()], strong=True)])[0]
            key = items[0]["value"] if items else self._make_key()
            self._kept.keep(topic_id, key)
        return key

    def _make_key(self) -> bytes:
        """The first caller makes the key; later ones read it."""
        making = Write(
            keys.signing_key(),
            (Absent(("value",)),),
            (Set(("value",), self._runtime.entropy(_KEY_BYTES)),),
            landed=lambda before: before is not None,
        )
        return bytes(self._store.write(making)["value"])
