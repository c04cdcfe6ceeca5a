"""A sweep goes through all topics, a page at a time; what it had no time for is where the next one begins."""

from __future__ import annotations

from collections.abc import Iterator

from chalicelib.base.runtime import Runtime
from chalicelib.catalogue.topic import Topic
from chalicelib.store import Keys, Range, Store
from chalicelib.table import keys
from chalicelib.table.writes import Item, Key, Set, Write

_PAGE = 100


class Rounds:
    def __init__(self, store: Store, runtime: Runtime) -> None:
        self._store = store
        self._runtime = runtime

    def pages(self, sweep: str, until_ms: int, every_ms: int = 0) -> Iterator[list[Topic]]:
        """Pages of topics, from where the last sweep of this name stopped; to the last topic, or as long as there is
        time. A new round begins `every_ms` after the one before. Several at once do the same work twice, and no
        harm."""
        key = keys.sweep(sweep)
        noted = self._store.read([Keys([key])])[0]
        after = noted[0]["after"] if noted else ""
        if noted and not after and self._runtime.now() < noted[0]["at"] + every_ms:
            return
        while True:
            page = self._page(after)
            if page:
                yield [Topic.of(item) for item in page]
            is_last = len(page) < _PAGE
            if is_last or self._runtime.uptime() > until_ms:
                self._note(key, noted, "" if is_last else page[-1]["sk"], bool(every_ms))
                return
            after = page[-1]["sk"]

    def _page(self, after: str) -> list[Item]:
        low = f"{after}{keys.AFTER}" if after else keys.FIRST
        return self._store.read([Range(keys.topics(), low, keys.LAST, limit=_PAGE)])[0]

    def _note(self, key: Key, noted: list[Item], after: str, is_timed: bool) -> None:
        if is_timed or after != (noted[0]["after"] if noted else ""):
            self._store.write(Write(key, (), (Set(("after",), after), Set(("at",), self._runtime.now()))))
