"""The position of a group in a queue: cursors, leases, retries, receipts, progress, broadcast consumers."""

from __future__ import annotations

from chalicelib.catalogue.env import Env
from chalicelib.cursors.broadcast import Consumers
from chalicelib.cursors.cursor_cache import CursorCache
from chalicelib.cursors.receipt import Receipts
from chalicelib.cursors.retries import Retries


class Cursors:
    """`signing_key`: for receipts; None: use the one made once and kept in the table."""

    def __init__(self, env: Env, signing_key: bytes | None) -> None:
        self.cache = CursorCache()
        self.receipts = Receipts(env, signing_key)
        self.retries = Retries(env)
        self.consumers = Consumers(env, self.retries)
