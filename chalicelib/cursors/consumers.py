"""The consumers of broadcast groups: noting that they are there, forgetting and moving them. See `presence`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from chalicelib.base.errors import StoreUnavailable
from chalicelib.base.limits import MOVED_TOGETHER_MAX
from chalicelib.base.runtime import Runtime
from chalicelib.catalogue.group import Group
from chalicelib.catalogue.topic import Topic
from chalicelib.cursors.changes import create, reset
from chalicelib.cursors.cursor import Cursor
from chalicelib.cursors.presence import (
    LEAVING,
    by_consumer,
    completed,
    is_known,
    is_to_be_forgotten,
    is_to_be_noted,
    leave,
    mark_leaving,
    newest,
    note,
    place_of,
)
from chalicelib.cursors.retries import Retries
from chalicelib.store import Range, Store
from chalicelib.store.outcomes import raise_trouble
from chalicelib.table import keys
from chalicelib.table.writes import Item, Refused, Write


class Consumers:
    def __init__(self, store: Store, runtime: Runtime, retries: Retries) -> None:
        self._store = store
        self._runtime = runtime
        self._retries = retries

    def as_made_by(self, consumer_id: str, cursors: Sequence[Cursor]) -> list[Cursor]:
        """The same; those that are not there yet as a pop of this consumer will make them."""
        now = self._runtime.now()
        return [cursor.to_be_made(now, now, consumer_id) for cursor in cursors]

    def admits(self, group: Group, cursors: Sequence[Cursor], is_current: bool) -> bool:
        """Whether a consumer may go on from these cursors. If not, it has to look again, at what is there now: it was
        forgotten, here or at the same time, or these were not read `is_current`ly enough to tell."""
        now = self._runtime.now()
        standing = [cursor for cursor in cursors if cursor.stands]
        last = newest(standing)
        if last is None:
            return True
        if is_to_be_forgotten(standing, now):
            if is_current:
                self._forget(group, standing)
            return False
        return not is_to_be_noted(last, now) or self._is_written(note(last, now))

    def forget_idle(self, topic: Topic, group: Group, now: int) -> int:
        """Forgets the consumers that have not popped for `IDLE_CONSUMER_MS`. Returns how many."""
        forgotten = 0
        for cursors in by_consumer(self.all(topic, group)):
            if is_to_be_forgotten(cursors, now):
                forgotten += self._forget(group, cursors)
            elif newest(cursors) is None:  # what counted dead letters that are gone by now
                self._leave(group, [cursor for cursor in cursors if not cursor.dead])
        return forgotten

    def all(self, topic: Topic, group: Group) -> list[Cursor]:
        """All cursors of the group that there are."""
        partition = Range(*keys.cursors(topic.id, group.name, group.id), strong=True)
        return [Cursor.of(item) for item in self._store.read([partition])[0]]

    def reset(self, topic: Topic, group: Group, targets: Mapping[int, int]) -> None:
        """Moves all consumers that there are. Who comes meanwhile comes after it, and begins at the start."""
        moving = self._moving(topic, group, targets)
        while moving:
            now, moving = moving[:MOVED_TOGETHER_MAX], moving[MOVED_TOGETHER_MAX:]
            writes = [reset(cursor, offset) if cursor.stands else create(cursor) for cursor, offset in now]
            for (cursor, offset), outcome in zip(now, self._each(writes), strict=True):
                found = outcome.before if isinstance(outcome, Refused) else outcome
                is_done = cursor.stands and not isinstance(outcome, Refused)
                if is_done:
                    self._retries.forget(place_of(group, cursor), cursor.pages.values())
                elif found:  # without an item the consumer was forgotten, or the group deleted
                    moving.append((Cursor.of(found), offset))

    def _moving(self, topic: Topic, group: Group, targets: Mapping[int, int]) -> list[tuple[Cursor, int]]:
        """The cursors to move, and where to. One that is not there yet is made as old as its consumer is."""
        now = self._runtime.now()
        found: list[tuple[Cursor, int]] = []
        for own in by_consumer(self.all(topic, group)):
            last = newest(own)
            if last and is_known(own, now):
                cursors = completed(group, topic.queues, own, last.consumer)
                at_ms, by = last.last_pop_at_ms, last.last_consumer_id
                found += [(cursors[queue].to_be_made(now, at_ms, by), offset) for queue, offset in targets.items()]
        return found

    def _forget(self, group: Group, cursors: Sequence[Cursor]) -> bool:
        """Whether the consumer is now forgotten. If not, it has come back, or whoever comes next goes on with it."""
        marked = next((each for each in cursors if each.last_pop_at_ms == LEAVING), None) or self._marked(cursors)
        if marked is None:
            return False
        others = [each for each in cursors if each.key != marked.key]
        return self._leave(group, others) and self._leave(group, [marked])

    def _marked(self, cursors: Sequence[Cursor]) -> Cursor | None:
        last = newest(cursors)
        try:
            found = self._store.write(mark_leaving(last)) if last else None
        except Refused:
            return None
        return Cursor.of(found) if found else None

    def _leave(self, group: Group, cursors: Sequence[Cursor]) -> bool:
        now = self._runtime.now()
        writes = [leave(each, group.start_of(keys.queue_of(each.key)), now) for each in cursors]
        outcomes = self._each(writes)
        for cursor, outcome in zip(cursors, outcomes, strict=True):
            if cursor.pages and not isinstance(outcome, Refused):
                self._retries.forget(place_of(group, cursor), cursor.pages.values())
        return not any(isinstance(outcome, Refused) for outcome in outcomes)

    def _each(self, writes: Sequence[Write]) -> list[Item | Refused]:
        outcomes = self._store.write_each(writes) if writes else []
        raise_trouble(outcomes)
        return [outcome for outcome in outcomes if not isinstance(outcome, StoreUnavailable)]

    def _is_written(self, write: Write) -> bool:
        try:
            return bool(self._store.write(write))
        except Refused:
            return False
