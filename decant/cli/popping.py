"""Pops of one consumer, each with an id of its own, so that a lost answer loses no lease."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from decant.cli.failures import many, note
from decant.errors import DecantError

if TYPE_CHECKING:
    from decant.client import Decant

POP_MAX = 256
POLL_MS = 20_000
PAUSE_S = 1.0


class Popping:
    """`since`: when the last pop was sent, by the monotonic clock: its leases began later."""

    def __init__(
        self,
        mq: Decant,
        topic: str,
        group: str,
        lease_ms: int | None = None,
        consumer_id: str | None = None,
        *,
        fill: bool = True,
    ) -> None:
        self._mq, self._topic, self._group = mq, topic, group
        self._lease_ms, self._consumer_id, self._fill = lease_ms, consumer_id, fill
        self._is_told = False
        self.since = 0.0

    def pop(self, count: int, wait_ms: int) -> list[Any]:
        """Up to `count` messages; none if nothing came within `wait_ms`."""
        until = time.monotonic() + wait_ms / 1_000
        while True:
            left_ms = max(round((until - time.monotonic()) * 1_000), 0)
            self.since = time.monotonic()
            answer = self._mq.api.pop(
                self._topic,
                self._group,
                max_messages=min(count, POP_MAX),
                wait_ms=min(left_ms, POLL_MS),
                invisible_ms=self._lease_ms,
                consumer_id=self._consumer_id,
                attempt_id=os.urandom(12).hex(),
                fill=self._fill,
            )
            if answer["messages"]:
                return answer["messages"]
            self._tell(answer)
            left_s = until - time.monotonic()
            if left_s <= 0:
                return []
            if answer.get("paused") or answer.get("limited"):  # these are answered at once
                time.sleep(min(answer.get("retry_after_ms", PAUSE_S * 1_000) / 1_000, PAUSE_S, left_s))

    def ack(self, receipts: Sequence[str]) -> int:
        """Returns how many were not acked."""
        lost = 0
        for start in range(0, len(receipts), POP_MAX):
            answer = self._mq.api.ack(self._topic, self._group, receipts=receipts[start : start + POP_MAX])
            lost += len(answer["failed"])
        if lost:
            note(f"not acked, since the lease is lost: {many(lost, 'message')}; others may have them")
        return lost

    def give_back(self, receipts: Sequence[str]) -> None:
        """The messages can be delivered again at once. If that fails, when their leases end."""
        from decant import operations

        try:
            for start in range(0, len(receipts), POP_MAX):
                part = receipts[start : start + POP_MAX]
                self._mq.call(operations.extend(self._topic, self._group, receipts=part, invisible_ms=0), timeout=2)
        except DecantError:
            pass

    def _tell(self, answer: Any) -> None:
        if self._is_told:
            return
        if answer.get("paused"):
            note(f"the group {self._group} is paused")
            self._is_told = True
        elif answer.get("limited") == "in_flight":
            note(f"the group {self._group} has as many messages in flight as it may")
            self._is_told = True
