"""A store in memory to which every write comes twice: the reply to the first was lost, and its client repeats it."""

from __future__ import annotations

from chalicelib.core.table.writes import Item, Write
from local.memory.store import ItemChange, MemoryStore


class RepeatingStore(MemoryStore):
    """Transactions come once, since DynamoDB knows their repeats by a token."""

    def _written(self, write: Write) -> tuple[Item, list[ItemChange]]:
        _, changes = super()._written(write)
        self._apply(changes)
        return super()._written(write)
