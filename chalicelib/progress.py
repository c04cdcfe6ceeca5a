"""How far a group is in a queue, from its cursor and the end of the log."""

from __future__ import annotations

from dataclasses import dataclass

from chalicelib.cursor import Cursor
from chalicelib.group import Group


@dataclass(frozen=True, slots=True)
class QueueProgress:
    queue: int
    committed_offset: int
    next_offset: int
    end_offset: int
    ready: int
    in_flight: int
    retrying: int
    dead: int
    first_ready: int | None
    """The offset of the first message that is ready; None when none is."""
    last_pop_at_ms: int | None
    last_consumer_id: str | None


def progress(queue: int, cursor: Cursor, group: Group, first: int, end: int, now: int) -> QueueProgress:
    """An expired lease, and a retry that is due, count as ready; what was never taken and has expired does not."""
    due = cursor.due(now)
    end = max(end, cursor.next)
    untaken = range(max(first, cursor.next), end)
    return QueueProgress(
        queue,
        committed_offset=cursor.committed(group.ordered),
        next_offset=cursor.next,
        end_offset=end,
        ready=len(untaken) + sum(len(lease.owed) for lease in due),
        in_flight=cursor.live(now),
        retrying=cursor.retrying(now),
        dead=cursor.dead,
        first_ready=min([lease.owed_offsets[0] for lease in due] + [*untaken[:1]], default=None),
        last_pop_at_ms=cursor.last_pop_at_ms,
        last_consumer_id=cursor.last_consumer_id,
    )
