"""Keeps the leases of messages while commands work on them: `decant.leases` decides, a thread calls the service."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from decant.cli.failures import note
from decant.errors import DecantError
from decant.leases import TOGETHER, Lease, Leases
from decant.messages import Message
from decant.payloads import topic_of

if TYPE_CHECKING:
    from decant.cli.popping import Popping

PAUSE_S_MAX = 1.0
"""After a call that failed."""
WAIT_S_MAX = 30.0
"""How long a settlement waits to learn which receipt counts."""


class Keeper:
    """The leases of the messages at work. A thread of its own extends them."""

    def __init__(self, popping: Popping, lease_ms: int) -> None:
        self._popping, self._lease_ms, self._lease_s = popping, lease_ms, lease_ms / 1_000
        self._topic = topic_of(popping.topic)
        self._leases = Leases(self._lease_s, math.inf)
        self._by_id: dict[str, Lease] = {}
        self._changed = threading.Condition()
        self._is_over = False
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def hold(self, messages: Sequence[Any]) -> None:
        """The messages of the last pop."""
        with self._changed:
            popping = self._popping
            leases = self._leases.add(self._read(messages), popping.attempt_id, popping.since, time.monotonic())
            self._by_id |= {lease.message.id: lease for lease in leases}
            self._changed.notify_all()

    def release(self, message_id: str) -> str | None:
        """The newest receipt, which is not extended any more. None if the lease is lost."""
        with self._changed:
            lease = self._by_id.pop(message_id)
            self._changed.wait_for(lambda: lease.is_lost or not lease.is_asked, min(self._lease_s, WAIT_S_MAX))
            self._leases.drop(lease)
            return None if lease.is_lost else lease.message.receipt

    def close(self) -> None:
        with self._changed:
            self._is_over = True
            self._changed.notify_all()
        self._thread.join()

    def _work(self) -> None:
        while taken := self._wait():
            try:
                self._extend(taken)
            except DecantError as error:
                note(f"leases were not extended: {error}")
                pause_s = min(self._lease_s * TOGETHER, PAUSE_S_MAX)
                with self._changed:
                    those = [lease for lease in taken if lease.is_asked]
                    self._leases.failed(those, time.monotonic(), pause_s, is_final=False)
            with self._changed:
                for lease in self._leases.lapsed(time.monotonic()):
                    note(f"the lease of {lease.message.id} is lost, another consumer may have the message")
                self._changed.notify_all()

    def _wait(self) -> list[Lease]:
        """Waits until leases are to be extended. None at the end."""
        with self._changed:
            while not self._is_over:
                if taken := self._leases.take(time.monotonic()):
                    return taken
                self._changed.wait(self._leases.next_s(time.monotonic()))
            return []

    def _extend(self, taken: Sequence[Lease]) -> None:
        """Raises DecantError."""
        timeout_s = max(self._lease_s * 0.2, 0.5)
        asked = time.monotonic()
        answer = self._popping.extend([lease.message.receipt for lease in taken], self._lease_ms, timeout_s)
        with self._changed:
            doubtful = self._leases.extended(taken, answer, asked)
        for attempt in dict.fromkeys(lease.attempt for lease in doubtful):
            asked = time.monotonic()
            messages = self._read(self._popping.again(attempt.id, timeout_s))
            with self._changed:
                self._leases.found([lease for lease in doubtful if lease.attempt is attempt], messages, asked)
            self._popping.give_back([each.receipt for each in messages if each.id not in attempt.message_ids])

    def _read(self, messages: Sequence[Any]) -> list[Message[Any]]:
        return [Message(each, self._topic) for each in messages]
