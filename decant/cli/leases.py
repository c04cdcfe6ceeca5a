"""Keeps the leases of messages while commands work on them."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from decant.cli.failures import note
from decant.errors import DecantError

if TYPE_CHECKING:
    from decant.client import Decant

SHARE = 0.6
"""After so much of a lease, it is extended."""
RECEIPTS_MAX = 256


class Leases:
    """The receipts of the messages at work, by message id. A thread of its own extends them."""

    def __init__(self, mq: Decant, topic: str, group: str, lease_ms: int) -> None:
        self._mq, self._topic, self._group, self._lease_ms = mq, topic, group, lease_ms
        self._held: dict[str, tuple[str, float]] = {}
        """The newest receipt, and when to extend it."""
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def hold(self, message_id: str, receipt: str, since: float) -> None:
        """`since`: when the lease began, at the latest; by the monotonic clock."""
        with self._lock:
            self._held[message_id] = receipt, self._next(since)

    def release(self, message_id: str) -> str | None:
        """The newest receipt, which is not extended any more. None if the lease is lost."""
        with self._lock:  # an extension under way brings a new receipt
            receipt, _ = self._held.pop(message_id, (None, 0.0))
        return receipt

    def close(self) -> None:
        self._ended.set()
        self._thread.join()

    def _next(self, since: float) -> float:
        return since + self._lease_ms / 1_000 * SHARE

    def _work(self) -> None:
        while not self._ended.wait(min(self._lease_ms / 1_000 * 0.1, 1.0)):
            with self._lock:
                now = time.monotonic()
                due = {receipt: id_ for id_, (receipt, at) in self._held.items() if at <= now}
                receipts = [*due]
                for start in range(0, len(receipts), RECEIPTS_MAX):
                    self._extend(receipts[start : start + RECEIPTS_MAX], due)

    def _extend(self, receipts: list[str], ids: dict[str, str]) -> None:
        from decant import operations

        began = time.monotonic()
        call = operations.extend(self._topic, self._group, receipts=receipts, invisible_ms=self._lease_ms)
        try:
            answer = self._mq.call(call, timeout=max(self._lease_ms / 1_000 * 0.2, 0.5))
        except DecantError as error:
            note(f"leases were not extended: {error}")
            return
        for extended in answer["extended"]:
            self._held[ids[extended["receipt"]]] = extended["new_receipt"], self._next(began)
        for failure in answer["failed"]:
            id_ = ids[failure["receipt"]]
            del self._held[id_]
            note(f"the lease of {id_} is lost, another consumer may have the message: {failure['code']}")
