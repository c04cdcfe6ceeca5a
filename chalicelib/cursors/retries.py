"""Keeps cursors light: retries that wait for long lie in pages, and come back when they are due. See `retries`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress

from chalicelib.base.errors import StoreUnavailable
from chalicelib.base.limits import RETRY_PAGE_ID_CHARS
from chalicelib.base.runtime import Runtime
from chalicelib.cursors import retry_page
from chalicelib.cursors.cursor import Cursor
from chalicelib.cursors.parking import parked
from chalicelib.cursors.retry_moves import after_bringing_back, after_putting_away, bring_back, put_away, surplus
from chalicelib.cursors.retry_page import Retry, RetryPage, retries_of
from chalicelib.store import Keys, Store
from chalicelib.table import keys
from chalicelib.table.writes import Item, Key, Refused, key_of


class Retries:
    """Of each method, `place`: ids of topic and group, and the queue whose cursor it is."""

    def __init__(self, store: Store, runtime: Runtime) -> None:
        self._store = store
        self._runtime = runtime

    def lighten(self, place: keys.Place, cursor: Cursor, rounds: int) -> Cursor:
        """Puts away what waits for long, in up to so many transactions. For cost alone: what fails is left as it is."""
        with suppress(StoreUnavailable):
            for _ in range(rounds):
                lighter = self.put_away(place, cursor)
                if lighter is None or lighter is cursor:
                    return cursor
                cursor = lighter
        return cursor

    def put_away(self, place: keys.Place, cursor: Cursor, **limits: int) -> Cursor | None:
        """The cursor without one page of retries; the same where it has few; None: there is none any more."""
        leases = surplus(cursor, self._runtime.now(), **limits)
        if not leases:
            return cursor
        page = RetryPage.holding(self._runtime.name(RETRY_PAGE_ID_CHARS), leases)
        key = keys.retry_page(place, page.due, page.id)
        try:
            self._store.write_together([put_away(cursor, page, leases), retry_page.put(key, leases)])
        except Refused as refused:
            return _found(refused.before)
        return after_putting_away(cursor, page, leases)

    def bring_back(self, place: keys.Place, cursor: Cursor, page: RetryPage) -> Cursor | None:
        """The cursor with the retries of a page, or, when somebody was faster, as it is now; None: it is gone."""
        key = keys.retry_page(place, page.due, page.id)
        items = self._store.read([Keys([key], strong=True)])[0]
        if not items:
            found = self._store.read([Keys([cursor.key], strong=True)])[0]
            return _found(found[0] if found else None)
        leases = [parked(self._runtime, each.offsets, each.due, each.attempt) for each in retries_of(items[0])]
        try:
            self._store.write_together([bring_back(cursor, page, leases), retry_page.remove(key)])
        except Refused as refused:
            return _found(refused.before)
        return after_bringing_back(cursor, page, leases)

    def read(self, asked: Sequence[tuple[keys.Place, Iterable[RetryPage]]]) -> list[dict[str, list[Retry]]]:
        """For each cursor, what these of its pages hold, by id. A page that is missing was brought back just now."""
        by_key = [{keys.retry_page(place, each.due, each.id): each.id for each in pages} for place, pages in asked]
        wanted = [Keys(list(pages), strong=True) for pages in by_key if pages]
        answers = iter(self._store.read(wanted) if wanted else [])
        return [_by_id(pages, next(answers)) if pages else {} for pages in by_key]

    def unfolded(self, cursors: Sequence[tuple[keys.Place, Cursor]]) -> list[Cursor]:
        """The cursors with those retries that are due, as one sees them who only looks."""
        now = self._runtime.now()
        due = [[page for page in cursor.pages.values() if page.due <= now] for _, cursor in cursors]
        held = self.read([(place, pages) for (place, _), pages in zip(cursors, due, strict=True)])
        return [
            self._with_due(cursor, found) if found else cursor for (_, cursor), found in zip(cursors, held, strict=True)
        ]

    def _with_due(self, cursor: Cursor, found: dict[str, list[Retry]]) -> Cursor:
        for page_id, retries in found.items():
            leases = [parked(self._runtime, each.offsets, each.due, each.attempt) for each in retries]
            cursor = after_bringing_back(cursor, cursor.pages[page_id], leases)
        return cursor

    def forget(self, place: keys.Place, pages: Iterable[RetryPage]) -> None:
        """Removes what a reset has put out of reach. For cost alone."""
        gone = [keys.retry_page(place, page.due, page.id) for page in pages]
        if gone:
            with suppress(StoreUnavailable):
                self._store.remove_all(gone)


def _found(item: Item | None) -> Cursor | None:
    return Cursor.of(item) if item else None


def _by_id(pages: dict[Key, str], items: Iterable[Item]) -> dict[str, list[Retry]]:
    return {pages[key_of(item)]: retries_of(item) for item in items}
