"""A store in memory that remembers its requests."""

from __future__ import annotations

from collections.abc import Sequence

from chalicelib.core.store import Outcome
from chalicelib.core.table.writes import Item, Write
from local.memory.store import MemoryStore


class RecordingStore(MemoryStore):
    """Remembers the plain writes, which a network may repeat. Transactions are known by a token."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[Write] = []

    def write(self, write: Write) -> Item:
        self.sent.append(write)
        return super().write(write)

    def write_each(self, writes: Sequence[Write]) -> list[Outcome]:
        self.sent += writes
        return super().write_each(writes)
