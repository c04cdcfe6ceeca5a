"""The service's signing key, and the signatures of the texts that clients return: receipts and correlation ids.

A signed text is its content and 16 bytes of keyed BLAKE2b (RFC 7693), in URL-safe base64: a pop signs up to a hundred,
and an HMAC takes four times as long. Each kind of text has a domain, from which its key is derived: a text of one kind
is never taken for one of another.

Signing keys from a text stored elsewhere, one on each line, the newest first, so that a key can be replaced while
texts that it signed are in use. All keys are accepted; the newest signs. Each instance reads the text again every
`REREAD_MS`. A new key signs only once the text has not changed for `HEARD_MS`: by then every instance accepts the key.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import threading
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

from chalicelib.core.base.cache import BoundedCache
from chalicelib.core.base.errors import StoreUnavailable
from chalicelib.core.base.fields import base64url, of_base64url
from chalicelib.core.base.limits import MINUTE_MS, SECOND_MS
from chalicelib.core.base.runtime import Runtime
from chalicelib.core.catalogue.catalogue import Env
from chalicelib.core.store import Keys
from chalicelib.core.table import keys
from chalicelib.core.table.writes import Absent, Set, Write

KEY_CHARS_MIN = 16

REREAD_MS = 5 * MINUTE_MS
HEARD_MS = 10 * MINUTE_MS
"""Twice `REREAD_MS`, since the clocks of instances and of the text's store differ."""
RETRY_MS = 30 * SECOND_MS
"""How long an instance keeps using its known keys after it failed to read the text."""
FAILED_MS = SECOND_MS
"""How long an instance without keys fails all callers before it reads the text again."""

_log = logging.getLogger("decant")


class _KnownKeys(NamedTuple):
    """`keys`: the newest first. `changed_at_ms`: when the text last changed. `until_ms`: when to read it again, by
    `Runtime.uptime`."""

    keys: Sequence[bytes]
    changed_at_ms: int
    until_ms: int


class ConfiguredKeys:
    """`name`: of the setting, for error texts. `read`: returns the text, and when it last changed, in ms since the
    epoch; raises StoreUnavailable."""

    def __init__(self, name: str, read: Callable[[], tuple[str, int]], runtime: Runtime) -> None:
        self._name, self._read, self._runtime = name, read, runtime
        self._lock = threading.Lock()
        self._known: _KnownKeys | None = None
        self._failure: tuple[Exception, int] | None = None
        """Why the first read failed, and when to read again, by `Runtime.uptime`."""

    def __call__(self) -> Sequence[bytes]:
        """The keys; the first one signs. Raises StoreUnavailable, and ValueError for a text without keys."""
        known = self._known
        if known is None or self._runtime.uptime() >= known.until_ms:
            known = self._refreshed(known)
        newest, *older = known.keys
        is_heard = self._runtime.now() >= known.changed_at_ms + HEARD_MS
        return known.keys if is_heard or not older else [older[0], newest, *older[1:]]

    def _refreshed(self, before: _KnownKeys | None) -> _KnownKeys:
        """One thread reads the keys; others wait for it."""
        with self._lock:
            known = self._known
            if known is None or known is before:
                known = self._known = self._read_again(before)
            return known

    def _read_again(self, before: _KnownKeys | None) -> _KnownKeys:
        began_at_ms = self._runtime.uptime()
        if self._failure and began_at_ms < self._failure[1]:
            raise self._failure[0].with_traceback(None)
        try:
            text, changed_at_ms = self._read()
            return _KnownKeys(keys_in(text, self._name), changed_at_ms, began_at_ms + REREAD_MS)
        except (StoreUnavailable, ValueError) as error:
            if before is None:
                self._failure = error, self._runtime.uptime() + FAILED_MS
                raise
            _log.warning("the signing keys could not be read again: %s", error)
            return before._replace(until_ms=began_at_ms + RETRY_MS)


def keys_in(text: str, name: str) -> list[bytes]:
    """Raises ValueError, which never shows a key."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines or min(map(len, lines)) < KEY_CHARS_MIN:
        raise ValueError(f"{name} must hold keys of at least {KEY_CHARS_MIN} characters, one on each line")
    return [line.encode() for line in lines]


_SIGNATURE_BYTES = 16
_KEY_BYTES = 32
_NAME_BYTES = 8
_DERIVED_KEPT_MAX = 64
"""Derived keys cached by one instance: one for each kind of text and each key that is accepted."""


Configured = bytes | Callable[[], Sequence[bytes]] | None
"""One key, or a function that returns all keys, the signing one first. None: the key is stored in the table."""


class SigningKey:
    """All instances share one key: a configured one, or one made once and stored in the table. If several are
    configured, the first signs, and all are accepted.

    An instance caches the kept key by topic id. If the table is deleted and made again while the instance runs, the new
    table has another key; since its topics have new ids, texts about them are signed with that key.
    """

    def __init__(self, env: Env, configured: Configured) -> None:
        self._store, self._runtime = env.store, env.runtime
        self._given = configured
        self._configured = (lambda: (configured,)) if isinstance(configured, bytes) else configured
        self._kept: BoundedCache[bytes] = env.caches.bounded(lambda topic_id, _: [topic_id])

    @property
    def is_kept_elsewhere(self) -> bool:
        """Whether the keys are stored outside the table, where they can be replaced one by one."""
        return callable(self._given)

    def of(self, topic_id: str) -> bytes:
        """The key that signs texts about this topic."""
        return self.accepted(topic_id)[0]

    def accepted(self, topic_id: str) -> Sequence[bytes]:
        """The keys with which texts about this topic may be signed. Raises StoreUnavailable."""
        return self._configured() if self._configured else (self._kept_key(topic_id),)

    def _kept_key(self, topic_id: str) -> bytes:
        key = self._kept.get(topic_id)
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
            landed=lambda _: True,
        )
        return bytes(self._store.write(making)["value"])


def name_of(key: bytes) -> bytes:
    """A name that identifies a key and reveals nothing else about it."""
    return derived(key, b"name", b"")[:_NAME_BYTES]


def derived(key: bytes, domain: bytes, content: bytes) -> bytes:
    """A secret of 32 bytes, derived from the key so that it need not be stored."""
    return hmac.digest(key, domain + b"\0" + content, hashlib.sha256)


def signed(domain: bytes, content: bytes, key: bytes) -> str:
    return base64url(content + _signature(domain, content, key))


def content_of(text: str) -> bytes:
    """The content of a signed text, with its signature unchecked. Arbitrary for any other text."""
    return (of_base64url(text) or b"")[:-_SIGNATURE_BYTES]


def checked(domain: bytes, text: str, *keys: bytes) -> bytes | None:
    """The content, or None unless exactly this text was signed with one of these keys in this domain."""
    raw = of_base64url(text)
    if raw is None:
        return None
    content, signature = raw[:-_SIGNATURE_BYTES], raw[-_SIGNATURE_BYTES:]
    for sign in (_signature, _former_signature):
        for key in keys:
            if hmac.compare_digest(signature, sign(domain, content, key)):
                return content
    return None


def _signature(domain: bytes, content: bytes, key: bytes) -> bytes:
    hashed = _keyed(domain, key).copy()
    hashed.update(content)
    return hashed.digest()


@lru_cache(_DERIVED_KEPT_MAX)
def _keyed(domain: bytes, key: bytes) -> hashlib.blake2b:
    return hashlib.blake2b(key=derived(key, b"texts", domain), digest_size=_SIGNATURE_BYTES)


def _former_signature(domain: bytes, content: bytes, key: bytes) -> bytes:
    """The signature of the previous release, whose texts are accepted while leases and requests last."""
    return derived(key, domain, content)[:_SIGNATURE_BYTES]
