"""Caches cursors and groups as the last requests returned them. Entries are first guesses: every write on a cursor is
guarded, and a stale one costs a rejected write or one more read."""

from __future__ import annotations

from chalicelib.base.cache import BoundedCache
from chalicelib.catalogue.group import Group
from chalicelib.cursors.cursor import Cursor
from chalicelib.table.writes import Key

_LEASES_MAX = 200_000
"""Some 400 bytes each; a cursor counts as one more."""


class CursorCache:
    def __init__(self) -> None:
        self._cursors: BoundedCache[Cursor] = BoundedCache(_LEASES_MAX, size_of=lambda cursor: 1 + len(cursor.leases))
        self._groups: BoundedCache[Group] = BoundedCache()

    def cursor(self, key: Key) -> Cursor | None:
        return self._cursors.get(key)

    def group(self, topic_id: str, name: str) -> Group | None:
        return self._groups.get((topic_id, name))

    def learn(self, cursor: Cursor) -> None:
        self._cursors.keep(cursor.key, cursor)

    def learn_group(self, group: Group) -> None:
        self._groups.keep((group.topic_id, group.name), group)
