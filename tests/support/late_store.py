"""A store in memory whose replicas lag."""

from __future__ import annotations

import copy
from collections.abc import Sequence

from chalicelib.core.store import Read
from chalicelib.core.table.writes import Item
from local.memory.store import MemoryStore


class LateStore(MemoryStore):
    """Weak reads show the state in which it fell behind, until `past` is None."""

    past: MemoryStore | None = None

    def fall_behind(self) -> None:
        self.past = MemoryStore()
        self.past.put_all([copy.deepcopy(item) for items in self._items.values() for item in items.values()])

    def read(self, reads: Sequence[Read]) -> list[list[Item]]:
        now = super().read
        weak = self.past.read if self.past else now
        return [(now if each.strong else weak)([each])[0] for each in reads]
