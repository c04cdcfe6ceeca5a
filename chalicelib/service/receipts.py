"""Signs and reads receipts. All instances share one key: the configured one, or one made once and kept in the table."""

from __future__ import annotations

from chalicelib import keys, receipt
from chalicelib.receipt import Receipt
from chalicelib.runtime import Runtime
from chalicelib.store import Keys, Store
from chalicelib.writes import Absent, Set, Write

_KEY_BYTES = 32


class Receipts:
    def __init__(self, store: Store, runtime: Runtime, configured: bytes | None) -> None:
        self._store = store
        self._runtime = runtime
        self._key = configured

    def sign(self, made: Receipt) -> str:
        return receipt.sign(made, self._signing_key())

    def read(self, text: str) -> Receipt | None:
        """The receipt, or None when this service did not sign it."""
        return receipt.read(text, self._signing_key())

    def _signing_key(self) -> bytes:
        if self._key is None:
            found = self._store.read([Keys([keys.signing_key()], strong=True)])[0]
            self._key = found[0]["value"] if found else self._make_key()
        return self._key

    def _make_key(self) -> bytes:
        """Whoever comes first makes it; who comes second takes that one."""
        making = Write(
            keys.signing_key(),
            (Absent(("value",)),),
            (Set(("value",), self._runtime.entropy(_KEY_BYTES)),),
            landed=lambda before: before is not None,
        )
        return bytes(self._store.write(making)["value"])
