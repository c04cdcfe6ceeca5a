"""Signs and reads receipts. All instances share one key: the configured one, or one made once and kept in the table.

An instance keeps the key by topic id. Somebody may delete the table and make it again while the instance runs: the new
table has another key, and all topics in it have new ids, so that their receipts are signed with the key of that table.
"""

from __future__ import annotations

from chalicelib.base.cache import BoundedCache
from chalicelib.base.runtime import Runtime
from chalicelib.cursors import receipt
from chalicelib.cursors.receipt import Receipt
from chalicelib.store import Keys, Store
from chalicelib.table import keys
from chalicelib.table.writes import Absent, Set, Write

_KEY_BYTES = 32


class Receipts:
    def __init__(self, store: Store, runtime: Runtime, configured: bytes | None) -> None:
        self._store = store
        self._runtime = runtime
        self._configured = configured
        self._kept: BoundedCache[bytes] = BoundedCache()

    def sign(self, made: Receipt) -> str:
        return receipt.sign(made, self._key(made.topic_id))

    def read(self, text: str, topic_id: str) -> Receipt | None:
        """The receipt, or None when this service did not sign it, in the table that has this topic."""
        return receipt.read(text, self._key(topic_id))

    def _key(self, topic_id: str) -> bytes:
        key = self._configured or self._kept.get(topic_id)
        if key is None:
            found = self._store.read([Keys([keys.signing_key()], strong=True)])[0]
            key = found[0]["value"] if found else self._make_key()
            self._kept.keep(topic_id, key)
        return key

    def _make_key(self) -> bytes:
        """Whoever comes first makes it; who comes second takes that one."""
        making = Write(
            keys.signing_key(),
            (Absent(("value",)),),
            (Set(("value",), self._runtime.entropy(_KEY_BYTES)),),
            landed=lambda before: before is not None,
        )
        return bytes(self._store.write(making)["value"])
