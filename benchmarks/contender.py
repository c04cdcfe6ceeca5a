"""The interface of a measured queue: one client sends to it, takes from it and settles on it."""

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
