"""The consumers of a broadcast group. Each has its own cursors; the group drops consumers that are idle for long.

`at` of a cursor is the instant of a pop. The newest of a consumer's cursors records its last pop from any queue. If
that is over an hour old (`PRESENCE_MS`), a pop updates it on the newest cursor. This cursor therefore decides whether
the consumer returned in time: dropping a consumer removes this cursor first, if it is unchanged, and then the others.
Those have been idle even longer, so any caller that finds only them removes them. (If clocks differ, a consumer that
returns at just that time may keep its place in some queues and begin again in others.) A removed cursor begins at the
group's start again. A cursor that counts dead letters, which stay, is not removed but reset to the start, without an
`at`; it gets the group's purge when its consumer returns. A cursor's first epoch is the instant of its creation, so no
old receipt and no late write fits the cursors of a returned consumer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby

from chalicelib.core.base.errors import StoreUnavailable
from chalicelib.core.base.limits import HOUR_MS, IDLE_CONSUMER_MS
from chalicelib.core.catalogue.catalogue import Env
from chalicelib.core.catalogue.group import Group
from chalicelib.core.catalogue.topic import Topic
from chalicelib.core.cursors.cursor import Cursor, completed
from chalicelib.core.cursors.cursor_writes import create, reset
from chalicelib.core.cursors.retries import Retries
from chalicelib.core.store import Range, raise_trouble
from chalicelib.core.table import keys
from chalicelib.core.table.writes import Absent, Equals, Guard, Item, Refused, Remove, RemoveItem, Set, Write

PRESENCE_MS = HOUR_MS
"""How far the recorded last pop of a consumer may lag while its pops return nothing, which saves a write for each. The
group may drop the consumer early by as much."""
MOVED_TOGETHER_MAX = 100
"""Cursors that a reset, or dropping consumers, writes in parallel."""


def by_consumer(cursors: Iterable[Cursor]) -> list[list[Cursor]]:
    ordered = sorted(cursors, key=lambda cursor: cursor.key)
    return [list(own) for _, own in groupby(ordered, key=lambda cursor: cursor.consumer)]


def newest(cursors: Iterable[Cursor]) -> Cursor | None:
    """The cursor that records the consumer's last pop, or None if it never popped or was dropped."""
    noted = [cursor for cursor in cursors if cursor.last_pop_at_ms is not None]
    return max(noted, key=lambda cursor: (cursor.last_pop_at_ms or 0, cursor.key), default=None)


def is_idle(last: Cursor, now: int) -> bool:
    """Whether to drop the consumer with this newest cursor."""
    return now - (last.last_pop_at_ms or 0) > IDLE_CONSUMER_MS


def is_known(cursors: Sequence[Cursor], now: int) -> bool:
    last = newest(cursors)
    return last is not None and not is_idle(last, now)


def note(last: Cursor, now: int) -> Write:
    """Records a pop on the newest of the consumer's cursors, if that is unchanged."""
    return Write(
        last.key,
        unchanged(last),
        (Set(("at",), now),),
        landed=lambda before: before.get("at") == now,
    )


def forget(cursor: Cursor, start: int, now: int) -> Write:
    """Removes a cursor if it is unchanged, or resets it if it counts dead letters."""
    guards = (*unchanged(cursor), Equals(("dead",), cursor.dead))
    if not cursor.dead:
        return Write(cursor.key, guards, (RemoveItem(),), landed=lambda before: not before)
    epoch = max(now, cursor.epoch + 1)
    left = (Set(("epoch",), epoch), Set(("next",), [start]), Set(("leases",), {}))
    return Write(
        cursor.key,
        guards,
        (*left, *(Remove((name,)) for name in ("pages", "segment", "at", "by"))),
        landed=lambda before: before.get("epoch") == epoch,
    )


def unchanged(cursor: Cursor) -> tuple[Guard, ...]:
    at: Guard = Absent(("at",)) if cursor.last_pop_at_ms is None else Equals(("at",), cursor.last_pop_at_ms)
    return Equals(("epoch",), cursor.epoch), at


class ReadAgain(Exception):
    """The settings and cursors of a group, as read, do not belong together: strong reads show it as it is now."""


class Consumers:
    def __init__(self, env: Env, retries: Retries) -> None:
        self._store, self._runtime = env.store, env.runtime
        self._retries = retries

    def admit(self, group: Group, consumer_id: str, cursors: Sequence[Cursor], is_current: bool) -> list[Cursor]:
        """The cursors from which a pop of this consumer continues, with new ones ready to be created. Drops a consumer
        that was idle for too long, and records the pop if the last record is old. Raises ReadAgain if the consumer was
        dropped, another call changed the cursors, or they were not `is_current`."""
        now = self._runtime.now()
        last = newest(cursors)
        if last and is_idle(last, now):
            if is_current:
                self._forget(group, [cursor for cursor in cursors if cursor.exists], last)
            raise ReadAgain
        outdated = [cursor for cursor in cursors if cursor.purged_at_ms != group.purged_at_ms]
        if last is None and outdated:  # resets have left them alone
            self.move([(cursor, group.start_of(cursor.queue)) for cursor in outdated], group.purged_at_ms)
            raise ReadAgain
        if last and now - (last.last_pop_at_ms or 0) > PRESENCE_MS:
            try:
                self._store.write(note(last, now))
            except Refused:
                raise ReadAgain from None
        return [cursor.as_created(now, now, consumer_id) for cursor in cursors]

    def forget_idle(self, topic: Topic, group: Group, now: int) -> int:
        """Drops consumers that have not popped for `IDLE_CONSUMER_MS`. Returns how many."""
        forgotten = 0
        for cursors in by_consumer(self.all(topic, group)):
            last = newest(cursors)
            if last is None:  # it counted dead letters that are removed by now
                self._remove(group, [cursor for cursor in cursors if not cursor.dead])
            elif is_idle(last, now):
                forgotten += self._forget(group, cursors, last)
        return forgotten

    def all(self, topic: Topic, group: Group) -> list[Cursor]:
        """All existing cursors of the group."""
        pages = keys.cursors(topic.id, group.name, group.id, topic.most)
        answers = self._store.read([Range(*page, strong=True) for page in pages])
        return [Cursor.of(item) for items in answers for item in items]

    def move(self, moving: Sequence[tuple[Cursor, int]], purged_at_ms: int | None = None) -> None:
        """Resets each of these cursors to an offset, except those of consumers that are dropped meanwhile. Consumers of
        a broadcast group that appear meanwhile begin at the start. `purged_at_ms`: of a purge, which leaves cursors
        that a later one has moved."""
        moving = list(moving)
        while moving:
            batch, moving = moving[:MOVED_TOGETHER_MAX], moving[MOVED_TOGETHER_MAX:]
            batch = [
                (cursor, offset)
                for cursor, offset in batch
                if purged_at_ms is None or (cursor.purged_at_ms or 0) <= purged_at_ms
            ]
            writes = [
                reset(cursor, offset, purged_at_ms) if cursor.exists else create(cursor) for cursor, offset in batch
            ]
            for (cursor, offset), outcome in zip(batch, self._each(writes), strict=True):
                item = outcome.before if isinstance(outcome, Refused) else outcome
                is_done = cursor.exists and not isinstance(outcome, Refused)
                if is_done:
                    self._retries.forget(cursor)
                elif item:
                    met = Cursor.of(item)
                    is_forgotten = met.last_pop_at_ms is None and cursor.last_pop_at_ms is not None
                    if not is_forgotten:
                        moving.append((met, offset))

    def moving(self, topic: Topic, group: Group, targets: Mapping[int, int]) -> list[tuple[Cursor, int]]:
        """The cursors that a reset moves, and their targets. A new cursor of a broadcast group gets the age of its
        consumer."""
        standing = self.all(topic, group)
        if not group.is_broadcast:
            cursors = completed(group, range(topic.readers), standing)
            return [(cursors[queue], offset) for queue, offset in targets.items()]
        now = self._runtime.now()
        moving: list[tuple[Cursor, int]] = []
        for own in by_consumer(standing):
            last = newest(own)
            if last and not is_idle(last, now):
                cursors = completed(group, range(topic.readers), own, last.consumer)
                at_ms, by = last.last_pop_at_ms, last.last_consumer_id
                moving += [(cursors[queue].as_created(now, at_ms, by), offset) for queue, offset in targets.items()]
        return moving

    def _forget(self, group: Group, cursors: Sequence[Cursor], last: Cursor) -> bool:
        """Whether the consumer is now dropped. If not, it has returned."""
        return self._remove(group, [last]) and self._remove(group, [cursor for cursor in cursors if cursor is not last])

    def _remove(self, group: Group, cursors: Sequence[Cursor]) -> bool:
        """Whether all of these were unchanged and are removed now."""
        now = self._runtime.now()
        outcomes = self._each([forget(cursor, group.start_of(cursor.queue), now) for cursor in cursors])
        for cursor, outcome in zip(cursors, outcomes, strict=True):
            if not isinstance(outcome, Refused):
                self._retries.forget(cursor)
        return not any(isinstance(outcome, Refused) for outcome in outcomes)

    def _each(self, writes: Sequence[Write]) -> list[Item | Refused]:
        outcomes = self._store.write_each(writes) if writes else []
        raise_trouble(outcomes)
        return [outcome for outcome in outcomes if not isinstance(outcome, StoreUnavailable)]
