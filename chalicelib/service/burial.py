"""Moves messages that were delivered often enough to the dead letters of their group."""

from __future__ import annotations

from collections.abc import Sequence

from chalicelib import dead
from chalicelib.cursor import Cursor, buried, write
from chalicelib.group import Group
from chalicelib.lease import Lease
from chalicelib.limits import DEAD_TOGETHER_MAX
from chalicelib.runtime import Runtime
from chalicelib.store import Keys, Store
from chalicelib.writes import Refused


class Burial:
    def __init__(self, store: Store, runtime: Runtime) -> None:
        self._store = store
        self._runtime = runtime

    def bury(
        self, group: Group, queue: int, cursor: Cursor, lease: Lease, indexes: Sequence[int], reason: str
    ) -> tuple[Cursor | None, list[int]]:
        """Buries these messages of a lease, as many as one transaction takes: none is ever both dead and alive.

        Returns the cursor as it then is (None: there is none), and what was buried (nothing: the lease had changed)."""
        chosen = list(indexes[:DEAD_TOGETHER_MAX])
        now = self._runtime.now()
        letters = [dead.letter(group, queue, lease.start + index, lease.attempt, reason, now) for index in chosen]
        try:
            self._store.write_together([write(cursor, buried(lease, chosen)), *letters])
        except Refused:
            chosen = []
        found = self._store.read([Keys([cursor.key], strong=True)])[0]
        return (Cursor.of(found[0]) if found else None), chosen
