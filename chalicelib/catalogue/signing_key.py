"""The key with which the service signs texts that clients give back, receipts and correlation ids, and how it does so.

A signed text is its content and 16 bytes of HMAC-SHA256, in URL-safe base64. Each kind of text has a domain, which is
signed too: a text of one kind is never taken for one of another.
"""

from __future__ import annotations

import hashlib
import hmac

from chalicelib.base import base64url
from chalicelib.base.cache import BoundedCache
from chalicelib.catalogue.catalogue import Env
from chalicelib.store import Keys
from chalicelib.table import keys
from chalicelib.table.writes import Absent, Set, Write

_SIGNATURE_BYTES = 16
_KEY_BYTES = 32


class SigningKey:
    """All instances share one key: the configured one, or one made once and kept in the table.

    An instance caches the key by topic id. If the table is deleted and made again while the instance runs, the new
    table has another key; since its topics have new ids, texts about them are signed with that key.
    """

    def __init__(self, env: Env, configured: bytes | None) -> None:
        self._store, self._runtime = env.store, env.runtime
        self._configured = configured
        self._kept: BoundedCache[bytes] = BoundedCache()

    def of(self, topic_id: str) -> bytes:
        """The key for texts about this topic."""
        key = self._configured or self._kept.get(topic_id)
        if key is None:
            items = self._store.read([Keys([keys.signing_key()], strong=True)])[0]
            key = items[0]["value"] if items else self._make()
            self._kept.keep(topic_id, key)
        return key

    def _make(self) -> bytes:
        """The first caller makes the key; later ones read it."""
        making = Write(
            keys.signing_key(),
            (Absent(("value",)),),
            (Set(("value",), self._runtime.entropy(_KEY_BYTES)),),
            landed=lambda before: before is not None,
        )
        return bytes(self._store.write(making)["value"])


def signed(domain: bytes, content: bytes, key: bytes) -> str:
    return base64url.encoded(content + _signature(domain, content, key))


def content_of(text: str) -> bytes:
    """What a signed text says, before its signature is checked; of any other text, anything."""
    return (base64url.decoded(text) or b"")[:-_SIGNATURE_BYTES]


def checked(domain: bytes, text: str, key: bytes) -> bytes | None:
    """The content, or None unless exactly this text was signed with this key in this domain."""
    raw = base64url.decoded(text)
    if raw is None:
        return None
    content, signature = raw[:-_SIGNATURE_BYTES], raw[-_SIGNATURE_BYTES:]
    return content if hmac.compare_digest(signature, _signature(domain, content, key)) else None


def _signature(domain: bytes, content: bytes, key: bytes) -> bytes:
    return hmac.digest(key, domain + b"\0" + content, hashlib.sha256)[:_SIGNATURE_BYTES]
