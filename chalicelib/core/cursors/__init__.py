"""The position of a group in a queue: cursors, leases, retries, receipts, progress, broadcast consumers."""

from __future__ import annotations

from chalicelib.core.base.cache import BoundedCache
from chalicelib.core.catalogue.catalogue import Env
from chalicelib.core.catalogue.signing_key import SigningKey
from chalicelib.core.cursors.broadcast import Consumers
from chalicelib.core.cursors.cursor import Cursor
from chalicelib.core.cursors.lease import Receipts
from chalicelib.core.cursors.retries import Retries
from chalicelib.core.table import keys

_CACHED_LEASES_MAX = 100_000
"""Some 400 bytes each; a cursor counts as two more."""


class Cursors:
    """`signing_key`: for receipts."""

    def __init__(self, env: Env, signing_key: SigningKey) -> None:
        self.cache: BoundedCache[Cursor] = env.caches.bounded(
            lambda key, _: keys.owners(key.pk), _CACHED_LEASES_MAX, lambda cursor: 2 + len(cursor.leases)
        )
        """Cursors by key, as the last requests returned them. First guesses: every write on a cursor is guarded, and a
        stale one costs a rejected write or one more read."""
        self.receipts = Receipts(signing_key)
        self.retries = Retries(env)
        self.consumers = Consumers(env, self.retries)
