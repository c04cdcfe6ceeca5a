"""The consumers of a broadcast group: whether they are still there, and what forgets them.

Each has cursors of its own. Every one of these has the instant of a pop in `at`; the newest of them is when the
consumer was last there. Where that is some time ago, a pop first writes it anew, on the cursor that has it: so whether
a consumer is forgotten or has come back in time is decided by that one cursor, whatever happens at once.

Forgetting goes in steps that anyone may repeat or go on with:

    1. `at` of the cursor with the newest becomes `LEAVING`, on condition that it is still what was seen
    2. the consumer's other cursors go
    3. that cursor goes

No new cursor is made before the last step, since every pop in between finds `LEAVING`, and goes on with the steps. Then
the consumer is new. A cursor that sent messages to the dead letters, which stay, is not removed: what is left of it
counts them, and stands at the start without an `at`.

A cursor's first epoch is the instant when it was made, so that a consumer that comes back has none that it had before:
no old receipt and no late write fits.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby

from chalicelib.base.limits import IDLE_CONSUMER_MS, PRESENCE_MS
from chalicelib.catalogue.group import Group
from chalicelib.cursors.cursor import Cursor
from chalicelib.table import keys
from chalicelib.table.writes import Absent, Equals, Guard, Remove, RemoveItem, Set, Write

LEAVING = 0
"""In place of an instant: the consumer is being forgotten."""


def by_consumer(cursors: Iterable[Cursor]) -> list[list[Cursor]]:
    ordered = sorted(cursors, key=lambda cursor: cursor.key)
    return [list(own) for _, own in groupby(ordered, key=lambda cursor: cursor.consumer)]


def place_of(group: Group, cursor: Cursor) -> keys.Place:
    """Where the retries of a cursor lie."""
    return keys.Place(group.topic_id, group.id, keys.queue_of(cursor.key))


def completed(group: Group, queues: int, own: Iterable[Cursor], consumer: str = "") -> list[Cursor]:
    """The cursors of one consumer for each queue: those that are there, and those that begin at the start."""
    standing = {keys.queue_of(cursor.key): cursor for cursor in own}
    return [
        standing.get(queue) or Cursor.fresh(group.cursor_key(queue, consumer), group.start_of(queue))
        for queue in range(queues)
    ]


def newest(cursors: Iterable[Cursor]) -> Cursor | None:
    """The one that says when the consumer was last there; None: it never was, or is forgotten."""
    return max(
        (each for each in cursors if _at(each) is not None), key=lambda each: (_at(each), each.key), default=None
    )


def _at(cursor: Cursor) -> int | None:
    return cursor.last_pop_at_ms if cursor.stands else None


def is_known(cursors: Sequence[Cursor], now: int) -> bool:
    return newest(cursors) is not None and not is_to_be_forgotten(cursors, now)


def is_to_be_forgotten(cursors: Sequence[Cursor], now: int) -> bool:
    """Whether the consumer has been idle for too long, or has been found so by someone."""
    last = newest(cursors)
    if last is None or last.last_pop_at_ms is None:
        return False
    is_leaving = any(_at(each) == LEAVING for each in cursors)
    return is_leaving or now - last.last_pop_at_ms > IDLE_CONSUMER_MS


def is_to_be_noted(last: Cursor, now: int) -> bool:
    return now - (last.last_pop_at_ms or 0) > PRESENCE_MS


def note(last: Cursor, now: int) -> Write:
    """Notes that the consumer is there, on the newest of its cursors, if that is what it was."""
    return Write(
        last.key,
        _as_seen(last),
        (Set(("at",), now),),
        landed=lambda before: before is not None and before.get("at") == now,
    )


def mark_leaving(last: Cursor) -> Write:
    """The first step, on the newest."""
    return Write(
        last.key,
        _as_seen(last),
        (Set(("at",), LEAVING),),
        landed=lambda before: before is None or before.get("at") == LEAVING,
    )


def leave(cursor: Cursor, start: int, now: int) -> Write:
    """Removes a cursor, or leaves of it what counts the dead letters."""
    guards = (*_as_seen(cursor), Equals(("dead",), cursor.dead))
    if not cursor.dead:
        return Write(cursor.key, guards, (RemoveItem(),), landed=lambda before: before is None)
    epoch = max(now, cursor.epoch + 1)
    left = (Set(("epoch",), epoch), Set(("next",), [start]), Set(("leases",), {}))
    return Write(
        cursor.key,
        guards,
        (*left, Remove(("pages",)), Remove(("segment",)), Remove(("at",)), Remove(("by",))),
        landed=lambda before: before is not None and before["epoch"] == epoch,
    )


def _as_seen(cursor: Cursor) -> tuple[Guard, ...]:
    at: Guard = Absent(("at",)) if cursor.last_pop_at_ms is None else Equals(("at",), cursor.last_pop_at_ms)
    return Equals(("epoch",), cursor.epoch), at
