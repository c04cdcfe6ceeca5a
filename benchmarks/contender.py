"""What the same loop is driven over: a queue that one client sends to, takes from and settles on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Contender(Protocol):
    def send(self, bodies: Sequence[str]) -> None:
        """Stores messages, in one request."""

    def take(self, count: int) -> list[str]:
        """Leases up to `count` messages, in one request, and returns their receipts."""

    def settle(self, receipts: list[str]) -> None:
        """Acknowledges messages, in one request."""
