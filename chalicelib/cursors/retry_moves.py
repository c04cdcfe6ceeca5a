"""Moving retries out of a cursor that would become heavy, and back in when they are due. Pure.

Each way is one transaction on the cursor, whose epoch it demands, and on the page: a message is never in both, nor in
neither. What a reset leaves of pages cannot be reached any more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from chalicelib.base.limits import LEASES_MAX, PARKED_MAX, RETRY_PAGE_LEASES, RETRY_PAGES_MAX, RETRY_SOON_MS
from chalicelib.cursors.changes import Change, write
from chalicelib.cursors.cursor import Cursor
from chalicelib.cursors.lease import Lease
from chalicelib.cursors.retry_page import RetryPage
from chalicelib.table.writes import Absent, Effect, Exists, Guard, Remove, Set, SizeBelow, SizeIs, Write


def surplus(cursor: Cursor, now: int, most: int = PARKED_MAX) -> list[Lease]:
    """What to put away, when more than `most` leases wait for long: those that are due last, as many as fit a page."""
    if len(cursor.leases) <= most or len(cursor.pages) >= RETRY_PAGES_MAX:
        return []
    soon = now + RETRY_SOON_MS
    waiting = [lease for lease in cursor.owing if lease.parked and not lease.marks and lease.deadline > soon]
    if len(waiting) <= most:
        return []
    return sorted(waiting, key=lambda lease: (lease.deadline, lease.start))[-RETRY_PAGE_LEASES:]


def put_away(cursor: Cursor, page: RetryPage, leases: Sequence[Lease]) -> Write:
    """The cursor's part; the page's is `retry_page.put`. A parked lease only ever gets marks, under a token that is
    never used again, so that its length says whether it is the one that was seen."""
    noted: Effect = Set(page.path, page.noted())
    has_map: Guard = Exists(("pages",))
    if not cursor.has_pages:
        noted, has_map = Set(("pages",), {page.id: page.noted()}), Absent(("pages",))
    return write(
        cursor,
        Change(
            (has_map, *(SizeIs(lease.path, lease.size) for lease in leases)),
            (noted, *(Remove(lease.path) for lease in leases)),
        ),
    )


def after_putting_away(cursor: Cursor, page: RetryPage, leases: Sequence[Lease]) -> Cursor:
    gone = {lease.token for lease in leases}
    left = {token: lease for token, lease in cursor.leases.items() if token not in gone}
    return replace(cursor, leases=left, pages={**cursor.pages, page.id: page}, has_pages=True)


def due_page(cursor: Cursor, now: int, want: int) -> RetryPage | None:
    """The page to bring back next, when the cursor itself has less than `want` messages that are due."""
    due = [page for page in cursor.pages.values() if page.due <= now]
    if not due or len(cursor.leases) >= LEASES_MAX or sum(len(lease.owed) for lease in cursor.due(now)) >= want:
        return None
    return min(due, key=lambda page: (page.due, page.low))


def bring_back(cursor: Cursor, page: RetryPage, leases: Sequence[Lease]) -> Write:
    """The cursor's part; the page's is `retry_page.remove`. The leases are new, the messages those of the page."""
    return write(
        cursor,
        Change(
            (Exists(page.path), SizeBelow(("leases",), LEASES_MAX), *(Absent(lease.path) for lease in leases)),
            (Remove(page.path), *(Set(lease.path, lease.listed()) for lease in leases)),
            tuple(lease.token for lease in leases),
        ),
    )


def after_bringing_back(cursor: Cursor, page: RetryPage, leases: Sequence[Lease]) -> Cursor:
    left = {page_id: each for page_id, each in cursor.pages.items() if page_id != page.id}
    return replace(cursor, leases={**cursor.leases, **{lease.token: lease for lease in leases}}, pages=left)
