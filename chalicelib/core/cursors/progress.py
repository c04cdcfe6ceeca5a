"""The progress of a group in a queue, from its cursor and the end of the log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, replace

from chalicelib.core.base.fields import Answer, instant, integer, nullable, required, string
from chalicelib.core.base.message import QUEUE
from chalicelib.core.base.records import record
from chalicelib.core.catalogue.group import Group
from chalicelib.core.cursors.broadcast import by_consumer, is_known
from chalicelib.core.cursors.cursor import Cursor, completed

END_OFFSET = integer(examples=[21], description="The offset that the next message of the queue will get.")


@record
class QueueOffsets(Answer):
    """The offsets of one queue.

    first_offset: The offset of the oldest message that can be read."""

    queue: int = required(QUEUE)
    first_offset: int = required(integer())
    end_offset: int = required(END_OFFSET)


@record
class QueueProgress(Answer):
    """How far the group is in one queue.

    committed_offset: The lowest offset that is not settled; in a broadcast group, the lowest of all consumers. Unless
        the group is ordered, nacked messages do not hold it back.
    next_offset: The lowest offset that no pop has taken.
    ready: Messages that a pop can take now, including those whose lease expired.
    in_flight: Messages that are leased.
    oldest_ready_at_ms: When the first ready message was stored. Null: none is ready.
    last_pop_at_ms: When a pop last took messages. Null: no pop has yet.
    last_consumer_id: The `consumer_id` of that pop. Null: there was no such pop, or it gave none."""

    _: KW_ONLY
    queue: int = required(QUEUE)
    committed_offset: int = required(integer(examples=[17]))
    next_offset: int = required(integer(examples=[18]))
    end_offset: int = required(END_OFFSET)
    ready: int = required(integer(examples=[3]))
    in_flight: int = required(integer(examples=[1]))
    oldest_ready_at_ms: int | None = required(nullable(instant()))
    last_pop_at_ms: int | None = required(nullable(instant()))
    last_consumer_id: str | None = required(nullable(string(examples=["worker-1"])))
    retrying: int
    delayed: int
    dead: int
    first_ready: int | None
    """The offset of the first ready message, or None without one."""


def progress(
    queue: int, cursor: Cursor, group: Group, first: int, end: int, now: int, ripe: int | None = None
) -> QueueProgress:
    """Expired leases, due retries and messages set aside count as ready, except undelivered messages past the
    retention. `ripe`: the offset from which on the group's `delay_ms` holds messages back. None: the group has no
    delay."""
    due = [lease.owed_offsets for lease in cursor.owing if lease.is_due(now)]
    aside = [offset for lease in cursor.owing if lease.is_aside for offset in lease.owed_offsets if offset >= first]
    end = max(end, cursor.next)
    untaken = range(max(first, cursor.next), end)
    held_back = 0 if ripe is None else max(0, min(len(untaken), end - ripe))
    untaken = untaken[: len(untaken) - held_back]
    return QueueProgress(
        queue=queue,
        committed_offset=cursor.committed(bool(group.ordered)),
        next_offset=cursor.next,
        end_offset=end,
        ready=len(untaken) + len(aside) + sum(map(len, due)),
        in_flight=cursor.live(now),
        retrying=cursor.retrying(now),
        delayed=held_back,
        dead=cursor.dead,
        first_ready=min([*(offsets[0] for offsets in due), *aside, *untaken[:1]], default=None),
        oldest_ready_at_ms=None,  # the log knows
        last_pop_at_ms=cursor.last_pop_at_ms,
        last_consumer_id=cursor.last_consumer_id,
    )


def total(parts: Sequence[QueueProgress], dead: int) -> QueueProgress:
    """The progress of all consumers of a group in one queue: sums, the lowest offsets, the newest pop. `dead`
    includes forgotten consumers."""
    return replace(
        max(parts, key=lambda part: part.last_pop_at_ms or 0),
        committed_offset=min(part.committed_offset for part in parts),
        next_offset=min(part.next_offset for part in parts),
        end_offset=max(part.end_offset for part in parts),
        ready=sum(part.ready for part in parts),
        in_flight=sum(part.in_flight for part in parts),
        retrying=sum(part.retrying for part in parts),
        delayed=sum(part.delayed for part in parts),
        dead=dead,
        first_ready=min((part.first_ready for part in parts if part.first_ready is not None), default=None),
    )


def of_group(
    group: Group,
    cursors: Sequence[Cursor],
    firsts: Sequence[int],
    ends: Sequence[int],
    now: int,
    ripe: Sequence[int | None] = (),
) -> list[QueueProgress]:
    """The progress of a group in each queue, from all its cursors. A broadcast group without consumers is at the start
    of its first one. `ripe`: for each queue, the offset from which on the group's `delay_ms` holds messages back;
    without it, all count as ready."""
    known = [own for own in by_consumer(cursors) if not group.is_broadcast or is_known(own, now)] or [[]]
    standing = [completed(group, range(len(ends)), own) for own in known]
    queues: list[QueueProgress] = []
    for queue, (first, end, until) in enumerate(zip(firsts, ends, ripe or [None] * len(ends), strict=True)):
        dead = sum(cursor.dead for cursor in cursors if cursor.queue == queue)
        queues.append(total([progress(queue, own[queue], group, first, end, now, until) for own in standing], dead))
    return queues
