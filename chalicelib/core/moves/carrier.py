"""Carries messages that a worker has leased from one subscription to another.

One transaction takes messages out of their leases, stores them at their destination, and counts them in the task. So a
message is always in one place and arrives once, even if a worker crashes or continues late.

A subscription with its own topic gets a new message, stored as a delayed one that is due at once. A subscription to a
shared topic gets back the message that the topic still has: its group owes it again, in a parked lease that is due, and
other groups are not affected."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from chalicelib.core.base.message import Message, Stored
from chalicelib.core.catalogue import group as groups
from chalicelib.core.catalogue.agenda import ALWAYS_MS, CHECK
from chalicelib.core.catalogue.catalogue import Env
from chalicelib.core.catalogue.group import Group
from chalicelib.core.catalogue.topic import Topic
from chalicelib.core.consuming.delivery import Delivery
from chalicelib.core.consuming.receipt_batch import Owed
from chalicelib.core.consuming.settle import Take
from chalicelib.core.cursors.cursor import Cursor, read_again
from chalicelib.core.cursors.cursor_writes import bring_back, bury, create, write
from chalicelib.core.cursors.lease import Lease, parked, runs
from chalicelib.core.dead_letters import DeadLetters
from chalicelib.core.dead_letters.bury import together
from chalicelib.core.dead_letters.move import ID, ORIGIN, as_new
from chalicelib.core.dead_letters.queue import choose
from chalicelib.core.log.reader import LogReader, Want
from chalicelib.core.moves.task import Subscription
from chalicelib.core.table import keys
from chalicelib.core.table.writes import Refused, Write

NO_SOURCE = "no source"
"""The reason of a task that fails on a message that no known subscription has given up."""

_ORIGIN = re.compile("([0-9]{1,3}):([0-9]{1,15})")


class Unmovable(Exception):
    """A message cannot move to the task's destination. The text is the task's reason."""


class NoRoom(Exception):
    """The destination group's cursor has too many leases for now."""


class Copy(NamedTuple):
    """A dead message: its offset in its original queue, the lease that owes it now, its place there, and its first
    id."""

    offset: int
    lease: Lease
    place: int
    first_id: str


Count = Callable[[int], Write]
"""Counts moved messages in the task, in the transaction that moves them."""


class MessageCarrier:
    def __init__(self, env: Env, reader: LogReader, dead_letters: DeadLetters, stored: Callable[[Topic], None]) -> None:
        self._store, self._runtime, self._agenda = env.store, env.runtime, env.agenda
        self._reader, self._mover, self._dead_letters, self._stored = reader, dead_letters.mover, dead_letters, stored

    def taking(self, target: Subscription, deliveries: Sequence[Delivery], count: Count) -> Take:
        """Takes these messages to the subscription, as many in one transaction as fit. That raises Unmovable, NoRoom,
        Refused, TopicNotFound, StoreUnavailable."""
        messages = {(each.stored.queue, each.stored.offset): each.stored.message for each in deliveries}
        move = self._send if target.owns_topic else self._return

        def take(cursor: Cursor, owed: Sequence[Owed]) -> tuple[Cursor | None, Sequence[Owed]]:
            own = {offset: message for (queue, offset), message in messages.items() if queue == cursor.queue}
            chosen = move(target, cursor, together(owed), own, count)
            return read_again(self._store, [cursor.key])[0], chosen

        return take

    def _send(
        self, target: Subscription, cursor: Cursor, chosen: list[Owed], messages: Mapping[int, Message], count: Count
    ) -> list[Owed]:
        sent = [as_new(messages[offset]) for offset in _offsets(chosen)]
        self._mover.send(cursor, chosen, target.topic, sent, [groups.stands(target.group), count(len(sent))])
        return chosen

    def _return(
        self, target: Subscription, cursor: Cursor, chosen: list[Owed], messages: Mapping[int, Message], count: Count
    ) -> list[Owed]:
        queue, copies = _copies(chosen, messages)
        owing = self._cursor(target, queue)
        self._demand_there(target, owing, copies)
        paged = self._dead_letters.redrive.paged(owing)
        if paged is None:
            raise Refused({})  # a page was brought back just now
        taken, back = choose(owing, copies, paged)
        if not taken:
            raise NoRoom
        if queue >= target.topic.queues:  # a sweep that finds this reads the queue again, if it has left
            self._agenda.appoint(CHECK, target.topic.name, ALWAYS_MS)
        self._agenda.note_ready(target.topic)
        now = self._runtime.now()
        change = bring_back(owing, [parked(self._runtime, run, now, attempt=0) for run in back])
        by_lease = [(lease, [copy.place for copy in taken if copy.lease is lease]) for lease, _ in chosen]
        leaving = [(lease, places) for lease, places in by_lease if places]
        leaves = write(cursor, bury(leaving, 0))
        self._store.write_together([leaves, write(owing, change), groups.stands(target.group), count(len(taken))])
        self._stored(target.topic)
        return leaving

    def _cursor(self, target: Subscription, queue: int) -> Cursor:
        """The cursor of the subscription's group, created if there was no pop yet. Raises Refused."""
        key = target.group.cursor_key(queue)
        [cursor] = read_again(self._store, [key])
        if cursor is None:
            fresh = Cursor.fresh(key, target.group.start_of(queue), target.group.purged_at_ms)
            self._store.write_together([create(fresh), groups.stands(target.group)])
            [cursor] = read_again(self._store, [key])
        if cursor is None:
            raise Refused({})
        return cursor

    def _demand_there(self, target: Subscription, owing: Cursor, copies: Sequence[Copy]) -> None:
        """Raises Unmovable unless consumers of the subscription could receive all of these."""
        topic, log = target.topic, keys.log(target.topic.id, owing.queue)
        wants = [Want(log, run.start, len(run), None) for run in runs(copy.offset for copy in copies)]
        by_base = {segment.base: segment for chain in self._reader.chains(wants, strong=True) for segment in chain}
        chain = [by_base[base] for base in sorted(by_base)]
        now = self._runtime.now()
        found = {
            stored.offset: stored
            for stored in self._reader.stored(topic, owing.queue, chain, [copy.offset for copy in copies])
            if not (stored.message.is_lost or stored.has_expired(now) or stored.stored_at_ms <= topic.expired_ms(now))
        }
        for copy in copies:
            stored = found.get(copy.offset)
            if stored is None or stored.message.properties.get(ID, stored.message_id) != copy.first_id:
                raise Unmovable(f"topic '{topic.name}' no longer has one of the messages")
            if copy.offset >= owing.next and _is_passed(stored, target.group, owing):
                raise Unmovable(f"queue '{target.name}' does not receive one of the messages")


def _is_passed(stored: Stored, group: Group, cursor: Cursor) -> bool:
    """Whether the group will skip a message that it has not reached yet."""
    is_wanted = group.filter is None or group.filter.wants(stored.message)
    return not is_wanted or stored.is_purged(cursor.purged_at_ms)


def _offsets(chosen: Sequence[Owed]) -> list[int]:
    return sorted(lease.start + index for lease, indexes in chosen for index in indexes)


def _copies(chosen: Sequence[Owed], messages: Mapping[int, Message]) -> tuple[int, list[Copy]]:
    """The original queue of the first message, and the messages from it, in offset order; of a message that died again
    after a reset, one copy. Raises Unmovable."""
    queues: dict[int, dict[int, Copy]] = {}
    for lease, indexes in chosen:
        for index in indexes:
            properties = messages[lease.start + index].properties
            origin = _ORIGIN.fullmatch(properties.get(ORIGIN, ""))
            if origin is None:
                raise Unmovable(NO_SOURCE)
            queue, offset = map(int, origin.groups())
            queues.setdefault(queue, {})[offset] = Copy(offset, lease, index, properties.get(ID, ""))
    queue, own = next(iter(queues.items()))
    return queue, [own[offset] for offset in sorted(own)]
