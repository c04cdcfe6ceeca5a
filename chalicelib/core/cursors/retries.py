"""Retry pages keep cursors small: retries with a long wait are stored in items of their own until the first is due.

A cursor records each of its pages under the page's id in `pages`, as `[due, count, low]`. One transaction moves leases
into a page, and one moves them back. Each demands the cursor's epoch, and the page never changes in between, so a
message is always in exactly one of them. A reset makes its pages unreachable.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace

from chalicelib.core.base.errors import StoreUnavailable
from chalicelib.core.base.limits import BATCH_MESSAGES_MAX, LEASES_MAX, SECOND_MS
from chalicelib.core.catalogue.catalogue import Env
from chalicelib.core.cursors.cursor import Cursor, RetryPage, read_again
from chalicelib.core.cursors.cursor_writes import CursorChange, write
from chalicelib.core.cursors.lease import PARKED, Lease, parked
from chalicelib.core.store import Keys
from chalicelib.core.table import writes
from chalicelib.core.table.writes import Effect, Guard, Item, Refused, Write, key_of

PARKED_MAX = 64
"""Leases that wait for a retry in the cursor itself, some 2.5 KB. Beyond this number, those due last move into a
page."""
RETRY_PAGE_LEASES = 48
"""Retries in one page: the condition of the transaction that moves them names each, within 4 KB and 300 operators."""
RETRY_PAGES_MAX = 2_000
"""Pages of one cursor, some 35 bytes each."""
RETRY_SOON_MS = 5 * SECOND_MS
"""Retries due sooner do not move into a page, since they would come back at once."""
RETRY_PAGE_ID_CHARS = 8


def retries_of(item: Item) -> list[Lease]:
    """The leases of a page. Their tokens are not kept: each gets a new one when it comes back."""
    return [Lease.of(PARKED, *listed) for listed in item["retries"]]


def surplus(cursor: Cursor, now: int, most: int = PARKED_MAX) -> list[Lease]:
    """The leases to move into a page if more than `most` have a long wait: those due last, as many as fit."""
    if cursor.retrying(now) <= most or len(cursor.pages) >= RETRY_PAGES_MAX:
        return []
    soon = now + RETRY_SOON_MS
    waiting = [lease for lease in cursor.owing if lease.parked and not lease.marks and lease.deadline > soon]
    if len(waiting) <= most:
        return []
    return sorted(waiting, key=lambda lease: (lease.deadline, lease.start))[-RETRY_PAGE_LEASES:]


def put_away(cursor: Cursor, page: RetryPage, leases: Sequence[Lease]) -> list[Write]:
    """Moves the leases into a new page. A transaction. A parked lease only gets marks, and its token is never used
    again, so its length shows whether it is unchanged."""
    noted: Effect = writes.Set(page.path, page.noted())
    has_map: Guard = writes.Exists(("pages",))
    if not cursor.has_pages:
        noted, has_map = writes.Set(("pages",), {page.id: page.noted()}), writes.Absent(("pages",))
    change = CursorChange(
        (has_map, *(writes.SizeIs(lease.path, lease.size) for lease in leases)),
        (noted, *(writes.Remove(lease.path) for lease in leases)),
    )
    listed = writes.Set(("retries",), [lease.listed() for lease in leases])
    return [write(cursor, change), Write(page.key(cursor.key), (), (listed,))]


def after_putting_away(cursor: Cursor, page: RetryPage, leases: Sequence[Lease]) -> Cursor:
    moved = {lease.token for lease in leases}
    left = {token: lease for token, lease in cursor.leases.items() if token not in moved}
    return replace(cursor, leases=left, pages={**cursor.pages, page.id: page}, has_pages=True)


def due_page(cursor: Cursor, now: int, want: int) -> RetryPage | None:
    """The page to bring back next, if the cursor itself has fewer than `want` due messages."""
    due = [page for page in cursor.pages.values() if page.due <= now]
    if not due or len(cursor.leases) >= LEASES_MAX or sum(len(lease.owed) for lease in cursor.due(now)) >= want:
        return None
    return min(due, key=lambda page: (page.due, page.low))


def bring_back(cursor: Cursor, page: RetryPage, leases: Sequence[Lease]) -> list[Write]:
    """Replaces a page by new leases with its messages. A transaction."""
    change = CursorChange(
        (writes.Exists(page.path), writes.SizeBelow(("leases",), LEASES_MAX)),
        (writes.Remove(page.path), *(writes.Set(lease.path, lease.listed()) for lease in leases)),
        tuple(lease.token for lease in leases),
    )
    return [write(cursor, change), Write(page.key(cursor.key), (), (writes.RemoveItem(),))]


def after_bringing_back(cursor: Cursor, page: RetryPage, leases: Sequence[Lease]) -> Cursor:
    left = {page_id: kept for page_id, kept in cursor.pages.items() if page_id != page.id}
    return replace(cursor, leases={**cursor.leases, **{lease.token: lease for lease in leases}}, pages=left)


class Retries:
    def __init__(self, env: Env) -> None:
        self._store, self._runtime = env.store, env.runtime

    def lighten(self, cursor: Cursor) -> Cursor:
        """Moves retries with a long wait into pages, more than one call can nack. Only saves cost, so failures are
        ignored."""
        with suppress(StoreUnavailable):
            for _ in range(BATCH_MESSAGES_MAX // RETRY_PAGE_LEASES + 1):
                lighter = self.put_away(cursor)
                if lighter is None or lighter is cursor:
                    return cursor
                cursor = lighter
        return cursor

    def put_away(self, cursor: Cursor, **limits: int) -> Cursor | None:
        """The cursor without one page of retries, or the same if it has few; None: the cursor was deleted."""
        leases = surplus(cursor, self._runtime.now(), **limits)
        if not leases:
            return cursor
        page = RetryPage.holding(self._runtime.name(RETRY_PAGE_ID_CHARS), leases)
        return self._written(put_away(cursor, page, leases), after_putting_away(cursor, page, leases))

    def bring_back(self, cursor: Cursor, page: RetryPage) -> Cursor | None:
        """The cursor with the retries of a page, or the current cursor if another caller was faster; None: it was
        deleted."""
        items = self._store.read([Keys([page.key(cursor.key)], strong=True)])[0]
        if not items:
            return read_again(self._store, [cursor.key])[0]
        leases = self._renewed(retries_of(items[0]))
        return self._written(bring_back(cursor, page, leases), after_bringing_back(cursor, page, leases))

    def _written(self, together: Sequence[Write], after: Cursor) -> Cursor | None:
        """The cursor after a transaction, or the current one if the transaction was refused."""
        try:
            self._store.write_together(together)
        except Refused as refused:
            return Cursor.or_none(refused.before)
        return after

    def read(self, asked: Sequence[tuple[Cursor, Iterable[RetryPage]]]) -> list[dict[str, list[Lease]]]:
        """For each cursor, the retries in these of its pages, by id. A missing page was brought back just now."""
        by_key = [{page.key(cursor.key): page.id for page in pages} for cursor, pages in asked]
        wanted = [Keys(list(pages), strong=True) for pages in by_key if pages]
        answers = iter(self._store.read(wanted) if wanted else [])
        return [{pages[key_of(item)]: retries_of(item) for item in next(answers)} if pages else {} for pages in by_key]

    def unfolded(self, cursors: Sequence[Cursor]) -> list[Cursor]:
        """The cursors as a read-only caller sees them: with due retries moved back in."""
        now = self._runtime.now()
        due = [(cursor, [page for page in cursor.pages.values() if page.due <= now]) for cursor in cursors]
        return [self._with(cursor, held) for cursor, held in zip(cursors, self.read(due), strict=True)]

    def _with(self, cursor: Cursor, held: dict[str, list[Lease]]) -> Cursor:
        for page_id, retries in held.items():
            cursor = after_bringing_back(cursor, cursor.pages[page_id], self._renewed(retries))
        return cursor

    def _renewed(self, retries: Iterable[Lease]) -> list[Lease]:
        """These leases of a page under new tokens."""
        return [
            parked(self._runtime, retry.offsets, retry.deadline, retry.attempt, retry.first_at_ms) for retry in retries
        ]

    def forget(self, cursor: Cursor) -> None:
        """Removes the cursor's pages, which a reset made unreachable. Only saves cost."""
        pages = [page.key(cursor.key) for page in cursor.pages.values()]
        if pages:
            with suppress(StoreUnavailable):
                self._store.remove_all(pages)
