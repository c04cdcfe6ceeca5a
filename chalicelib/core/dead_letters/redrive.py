"""Redrives dead messages: their group delivers them again as if for the first time."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol, TypeVar

from chalicelib.core.base.errors import GroupNotFound
from chalicelib.core.base.limits import DEAD_MS, LEASES_MAX, TAKEOVERS_MAX
from chalicelib.core.catalogue.agenda import ALWAYS_MS, CHECK
from chalicelib.core.catalogue.catalogue import Env
from chalicelib.core.catalogue.group import Group
from chalicelib.core.catalogue.topic import Topic
from chalicelib.core.cursors import Cursors
from chalicelib.core.cursors.cursor import Cursor, read_again
from chalicelib.core.cursors.cursor_writes import redrive, write
from chalicelib.core.cursors.lease import parked, runs
from chalicelib.core.dead_letters import bury
from chalicelib.core.dead_letters.bury import DeadLetter, RedriveResult
from chalicelib.core.dead_letters.queue import PURGED_TOGETHER_MAX, DeadLetterQueue, by_cursor
from chalicelib.core.table import keys
from chalicelib.core.table.writes import Key, Refused

REDRIVEN_LEASES_MAX = LEASES_MAX // 2
"""The most leases of a cursor that accepts redriven messages: the remaining room is for consumers. Adjacent messages
share a lease."""


class Redrive:
    def __init__(self, env: Env, letters: DeadLetterQueue, cursors: Cursors) -> None:
        self._store, self._runtime = env.store, env.runtime
        self._catalogue, self._agenda, self._letters = env.catalogue, env.agenda, letters
        self._retries, self._consumers = cursors.retries, cursors.consumers

    def some(self, topic: Topic, name: str, message_ids: Sequence[str]) -> RedriveResult:
        """Redrives these messages, as many as time and room allow; none unless all of them are dead. Raises
        GroupNotFound, MessageNotFound."""
        group = self._catalogue.group(topic, name)
        until_ms = self._runtime.uptime() + DEAD_MS
        letters = self._letters.named(topic, group, message_ids)
        counted = by_cursor(group, letters).items()
        count = sum(self._own(topic, group, cursor, own, until_ms)[0] for cursor, own in counted)
        return RedriveResult(count, self.remaining(topic, name))

    def all(self, topic: Topic, name: str) -> RedriveResult:
        """Redrives all messages that are dead now, as time and room allow. Raises GroupNotFound."""
        group = self._catalogue.group(topic, name)
        until_ms = self._runtime.uptime() + DEAD_MS
        count, since = 0, keys.FIRST
        stopped: set[Key] = set()
        while letters := self._letters.read(group, since, PURGED_TOGETHER_MAX):
            since = letters[-1].key.sk + keys.AFTER  # messages that die again meanwhile wait for the next call
            for cursor, own in by_cursor(group, letters).items():
                if cursor not in stopped:
                    redriven_here, is_stopped = self._own(topic, group, cursor, own, until_ms)
                    count += redriven_here
                    stopped |= {cursor} if is_stopped else set()
            if self._runtime.uptime() > until_ms:
                break
            if group.cursor_key(letters[-1].queue) in stopped:
                since = keys.dead(topic.id, group.id, letters[-1].queue + 1, 0).sk
        return RedriveResult(count, self.remaining(topic, name))

    def remaining(self, topic: Topic, name: str) -> int:
        """The number of the group's dead messages. Raises GroupNotFound."""
        return sum(cursor.dead for cursor in self._consumers.all(topic, self._catalogue.group(topic, name)))

    def _own(self, topic: Topic, group: Group, key: Key, letters: list[DeadLetter], until_ms: int) -> tuple[int, bool]:
        """Redrives letters, all counted by the cursor of this key, while there is time. Returns how many, and whether
        room ran out."""
        count = 0
        while letters and self._runtime.uptime() <= until_ms:
            [cursor] = read_again(self._store, [key])
            if cursor is None:
                raise GroupNotFound(f"topic '{topic.name}' has no group '{group.name}' any more")
            # The message of a letter from before a reset may be ready or owed as well.
            is_ancient = any(letter.epoch != cursor.epoch for letter in letters)
            paged = self.paged(cursor) if is_ancient else set()
            if paged is None:
                continue
            chosen, back = choose(cursor, letters, paged)
            if not chosen:
                return count, True
            if keys.queue_of(key) >= topic.queues:  # a sweep that finds this reads the queue again, if it has left
                self._agenda.appoint(CHECK, topic.name, ALWAYS_MS)
            self._agenda.note_ready(topic)
            now = self._runtime.now()
            change = redrive([parked(self._runtime, run, now, attempt=0) for run in back], len(chosen))
            try:
                self._store.write_together([write(cursor, change), *map(bury.remove, chosen)])
            except Refused:
                letters = self._letters.again(letters)
                continue
            count += len(chosen)
            letters = letters[len(chosen) :]
        return count, False

    def paged(self, cursor: Cursor) -> set[int] | None:
        """The offsets in the cursor's pages, or None if one was brought back since the cursor was read."""
        held = self._retries.read([(cursor, cursor.pages.values())])[0]
        if held.keys() != cursor.pages.keys():
            return None
        return {offset for leases in held.values() for lease in leases for offset in lease.owed_offsets}


class Dead(Protocol):
    """A letter, or the copy of a message in a topic for dead messages."""

    @property
    def offset(self) -> int: ...


D = TypeVar("D", bound=Dead)


def choose(cursor: Cursor, letters: Sequence[D], paged: Collection[int] = ()) -> tuple[list[D], list[range]]:
    """The first of these letters, in offset order, that one transaction can remove, and the redriven offsets as one run
    per lease; none if the cursor has no room. `paged`: offsets that the cursor's pages owe.

    If a reset to before a message delivers it anyway, only its letter is removed."""
    alive = {*paged, *(offset for lease in cursor.owing for offset in lease.owed_offsets)}
    room = min(TAKEOVERS_MAX, REDRIVEN_LEASES_MAX - len(cursor.leases))
    chosen: list[D] = []
    back: list[int] = []
    leases = 0
    for letter in letters[:PURGED_TOGETHER_MAX]:
        if letter.offset < cursor.next and letter.offset not in alive:
            if back[-1:] != [letter.offset - 1]:
                leases += 1
            if leases > room:
                break
            back.append(letter.offset)
        chosen.append(letter)
    return chosen, runs(back)
