"""Pops of one consumer, each with an id of its own, so that a lost answer loses no lease."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from decant.cli.failures import many, note
from decant.errors import DecantError

if TYPE_CHECKING:
    from decant.calls import Call
    from decant.client import Decant
    from decant.types import ExtendResult, PopResult

POP_MAX = 256
POLL_MS = 20_000
PAUSE_S = 1.0


class Popping:
    """`attempt_id`, `since`: the id of the last pop, and when it was sent, by the monotonic clock: its leases began
    later."""

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
        self._mq, self.topic, self._group = mq, topic, group
        self._lease_ms, self._consumer_id, self._fill = lease_ms, consumer_id, fill
        self._is_told = False
        self.attempt_id, self.since = "", 0.0

    def pop(self, count: int, wait_ms: int) -> list[Any]:
        """Up to `count` messages; none if nothing came within `wait_ms`."""
        until = time.monotonic() + wait_ms / 1_000
        while True:
            left_ms = max(round((until - time.monotonic()) * 1_000), 0)
            self.attempt_id, self.since = os.urandom(12).hex(), time.monotonic()
            answer = self._mq.call(self._call(min(count, POP_MAX), min(left_ms, POLL_MS), self.attempt_id))
            if answer["messages"]:
                return answer["messages"]
            self._tell(answer)
            left_s = until - time.monotonic()
            if left_s <= 0:
                return []
            if answer.get("paused") or answer.get("limited"):  # these are answered at once
                time.sleep(min(answer.get("retry_after_ms", PAUSE_S * 1_000) / 1_000, PAUSE_S, left_s))

    def again(self, attempt_id: str, timeout_s: float) -> list[Any]:
        """The messages of this pop that are still leased, with their newest receipts; others if there are none."""
        return self._mq.call(self._call(1, 0, attempt_id), timeout=timeout_s)["messages"]

    def extend(self, receipts: Sequence[str], lease_ms: int, timeout_s: float) -> ExtendResult:
        from decant import operations

        call = operations.extend(self.topic, self._group, receipts=receipts, invisible_ms=lease_ms)
        return self._mq.call(call, timeout=timeout_s)

    def _call(self, count: int, wait_ms: int, attempt_id: str) -> Call[PopResult]:
        from decant import operations

        return operations.pop(
            self.topic,
            self._group,
            max_messages=count,
            wait_ms=wait_ms,
            invisible_ms=self._lease_ms,
            consumer_id=self._consumer_id,
            attempt_id=attempt_id,
            fill=self._fill,
        )

    def ack(self, receipts: Sequence[str]) -> int:
        """Returns how many were not acked."""
        lost = 0
        for start in range(0, len(receipts), POP_MAX):
            answer = self._mq.api.ack(self.topic, self._group, receipts=receipts[start : start + POP_MAX])
            lost += len(answer["failed"])
        if lost:
            note(f"not acked, since the lease is lost: {many(lost, 'message')}; others may have them")
        return lost

    def give_back(self, receipts: Sequence[str]) -> None:
        """The messages can be delivered again at once. If that fails, when their leases end."""
        try:
            for start in range(0, len(receipts), POP_MAX):
                self.extend(receipts[start : start + POP_MAX], 0, timeout_s=2)
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
